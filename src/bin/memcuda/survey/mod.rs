//! The preloaded processes of this machine: their counters, from the pages that
//! they show, how quickly these change, their pictures, and the named memory that
//! the keeper knows. Every verb that looks at processes looks through here.
//! Changes nothing in them.

mod names;
mod pictures;
mod rates;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use memcuda::stats_page::Counters;
use serde::Serialize;

pub use names::{Names, names};
pub use pictures::picture;
pub use rates::Rates;

use crate::output::plain;
use crate::process::{self, Page};

/// What is said where there is nobody to look at.
pub const NOBODY: &str = "no process that can be seen here runs on the pool";

/// Fails, in one line, for a process that is not there or may not be looked into.
pub fn check(pid: u32) -> Result<()> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    open.map(drop).map_err(|error| unseen(pid, &error))
}

/// Why a process cannot be looked into.
fn unseen(pid: u32, error: &io::Error) -> anyhow::Error {
    let own = Some(rustix::process::geteuid().as_raw());
    match error.kind() {
        ErrorKind::NotFound => anyhow!("there is no process {pid}"),
        ErrorKind::PermissionDenied if process::user(pid) != own => another_user_s(pid),
        _ => anyhow!("process {pid}: {error}"),
    }
}

/// Who may not ask is told so by every verb.
fn another_user_s(pid: u32) -> anyhow::Error {
    anyhow!("process {pid} is another user's: only that user and root may ask it")
}

/// The statistics page of a process, or in one line why it has none.
pub fn page_of(pid: u32) -> Result<Page> {
    let page = process::page(pid).map_err(|error| unseen(pid, &error))?;
    page.ok_or_else(|| {
        anyhow!(
            "process {pid} has no statistics page: it was not started under memcuda, MEMCUDA_STATS is off, or it has not used CUDA yet"
        )
    })
}

/// Processes whose page cannot be read, and why, in a line.
pub type Unread = Vec<(u32, String)>;

/// Pages of all processes; those of others, who may not be looked into, are left out, and
/// a page that forked processes share is its first process's.
pub fn pages() -> Result<(Vec<Page>, Unread)> {
    let pids = process::all().context("the processes of this machine cannot be listed")?;
    let (mut pages, mut unread) = (Vec::new(), Unread::new());
    let mut seen = HashSet::new();
    for pid in pids {
        match process::page(pid) {
            Ok(page) => pages.extend(page.filter(|page| seen.insert(page.inode))),
            Err(error) if process::is_out_of_sight(&error) => {}
            Err(error) => unread.push((pid, error.to_string())),
        }
    }
    Ok((pages, unread))
}

/// A process and a device that it has a pool on.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The process.
    pub pid: u32,
    /// Which page the counters are of: a process that got the number of one that
    /// ended has another.
    #[serde(skip)]
    pub page: u64,
    /// The short name of the process, without control characters.
    pub command: String,
    /// How quickly the counters change; `None` at the first look.
    #[serde(flatten)]
    pub rates: Option<Rates>,
    /// The counters of the device.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Row {
    /// What tells a process and a device from all others that this machine has had.
    pub fn key(&self) -> Key {
        (self.page, self.pid, self.counters.ordinal)
    }
}

/// See [`Row::key`].
pub type Key = (u64, u32, u64);

/// What was seen at one look.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// By process, then by device.
    pub rows: Vec<Row>,
    pub unread: Unread,
}

/// Looks again and again, and remembers the last look.
#[derive(Default)]
pub struct Survey {
    before: HashMap<Key, (Instant, Counters)>,
}

impl Survey {
    /// Every process that can be seen now.
    pub fn look(&mut self) -> Result<Seen> {
        let (pages, unread) = pages()?;
        Ok(self.read(&pages, unread))
    }

    fn read(&mut self, pages: &[Page], unread: Unread) -> Seen {
        let rows = Vec::new();
        let mut seen = Seen { rows, unread };
        for page in pages {
            match page.read() {
                Ok(devices) => self.add(&mut seen, page, devices),
                // A page that goes with its process is no news.
                Err(_) if !process::is_alive(page.pid) => {}
                Err(error) => seen.unread.push((page.pid, error.to_string())),
            }
        }
        let now: HashSet<Key> = seen.rows.iter().map(Row::key).collect();
        self.before.retain(|key, _| now.contains(key));
        seen
    }

    fn add(&mut self, seen: &mut Seen, page: &Page, devices: Vec<Counters>) {
        let command = plain(&process::name(page.pid));
        let at = Instant::now();
        for counters in devices {
            let mut row = Row {
                pid: page.pid,
                page: page.inode,
                command: command.clone(),
                counters,
                rates: None,
            };
            if let Some((then, before)) = self.before.insert(row.key(), (at, counters)) {
                row.rates = Rates::between(&before, &counters, at - then);
            }
            seen.rows.push(row);
        }
    }
}
