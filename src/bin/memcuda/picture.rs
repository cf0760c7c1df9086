//! Where a verb's picture comes from (a process that runs, a report that one
//! wrote when it had no memory left, or a folder of such reports), and what is
//! said of the blocks in it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use memcuda::error::Error;
use memcuda::picture::layout::{Kind, Layout};
use memcuda::picture::{Block, Device, Owner, Picture, State, bytes};

use crate::survey;

/// What the names of reports begin and end with.
const REPORT: (&str, &str) = ("oom-", ".memcuda");

/// The picture that an argument names: a process by its number, a report, or the
/// latest report of a folder.
pub fn find(source: &Path) -> Result<Picture> {
    if let Some(pid) = process_of(source) {
        return survey::picture(pid);
    }
    match source.is_dir() {
        true => read(&latest(source)?),
        false => read(source),
    }
}

/// The process that an argument is the number of.
pub fn process_of(source: &Path) -> Option<u32> {
    source.to_str()?.parse().ok()
}

fn read(path: &Path) -> Result<Picture> {
    let shown = path.display();
    let long = |length: u64| length > bytes::MOST;
    // Not a device, whose length nobody knows.
    let about = fs::metadata(path).with_context(|| format!("{shown}"))?;
    if !about.is_file() || long(about.len()) {
        return Err(anyhow!(Error::new(format!(
            "{shown}: not a memcuda report"
        ))));
    }
    let all = fs::read(path).with_context(|| format!("{shown}"))?;
    let picture = bytes::decode(&all);
    picture.map_err(|error| anyhow!(Error::new(format!("{shown}: {error}"))))
}

fn latest(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).with_context(|| format!("{shown}"))?;
    let reports = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(REPORT.0) && name.ends_with(REPORT.1)
    });
    let newest = reports.max_by_key(|entry| entry.metadata().and_then(|m| m.modified()).ok());
    let newest = newest.ok_or_else(|| anyhow!("{shown}: no report of out of memory in it"))?;
    Ok(newest.path())
}

/// What bytes are, as views tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The program's, and nobody else's.
    Live,
    /// Others may have them open, or they are theirs.
    Shared,
    /// Free, though uses of them may still run.
    Pending,
    /// Free.
    Idle,
    /// Neither: being lent or taken back, or the rest of attached memory.
    Held,
}

/// A picture in order.
pub struct Reading<'a> {
    /// The picture.
    pub picture: &'a Picture,
    /// Its devices, each put in order.
    pub devices: Vec<(&'a Device, Layout)>,
    names: HashMap<(u32, u64), &'a str>,
}

impl<'a> Reading<'a> {
    /// Puts a picture in order.
    pub fn of(picture: &'a Picture) -> Self {
        let devices = picture.devices.iter();
        let names = picture.names.iter();
        Self {
            picture,
            devices: devices
                .map(|device| (device, Layout::of(&device.pool)))
                .collect(),
            names: names
                .map(|named| ((named.device, named.address), named.name.as_str()))
                .collect(),
        }
    }

    /// The name of a block, if it has one.
    pub fn name(&self, device: &Device, block: &Block) -> Option<&'a str> {
        self.names.get(&(device.ordinal, block.address)).copied()
    }

    /// What bytes are, as views tell them apart.
    pub fn what(&self, device: &Device, kind: Kind) -> What {
        let block = match kind {
            Kind::Pending => return What::Pending,
            Kind::Idle => return What::Idle,
            Kind::Held => return What::Held,
            Kind::Block(index) => &device.pool.blocks[index],
        };
        match block.state {
            State::Pending => What::Pending,
            State::Idle => What::Idle,
            State::Live if !block.exported && self.name(device, block).is_none() => What::Live,
            State::Live | State::Attached | State::Parked => What::Shared,
        }
    }

    /// Who has a block, in words; `None` where nobody has it.
    pub fn who(&self, device: &Device, block: &Block) -> Option<String> {
        let what = match (block.state, self.name(device, block), block.owner) {
            (State::Pending | State::Idle, ..) => return None,
            (_, Some(name), _) => format!("name {name}"),
            (State::Attached, None, _) => "another process's memory".to_owned(),
            (State::Parked, ..) => "freed, but open in other processes".to_owned(),
            (State::Live, _, Owner::Context) => "cudaMalloc".to_owned(),
            (State::Live, _, Owner::MemoryPool) => "cudaMallocAsync".to_owned(),
            (State::Live, _, Owner::Page) => "a page of torch's expandable segments".to_owned(),
        };
        let shared = block.exported && block.state == State::Live;
        Some(if shared { what + ", exported" } else { what })
    }
}
