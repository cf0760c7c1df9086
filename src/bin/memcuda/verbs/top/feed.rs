//! What the screen is fed with, by two threads, so that a process that does not
//! answer keeps nobody from pressing keys: the counters of all processes; and the
//! picture of the chosen one and the names, both at most once a second.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memcuda::picture::Picture;

use crate::survey::{self, Names, Seen, Survey};
use memcuda::lock::lock;

/// How often names and pictures are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// What is new.
pub enum News {
    Seen(Result<Seen, String>),
    Names(Names),
    Picture(u32, Box<Result<Picture, String>>),
}

/// Where news come from.
pub struct Feed {
    pub news: Receiver<News>,
    wanted: Arc<Mutex<Option<u32>>>,
}

impl Feed {
    /// Looks at all processes at this distance, from now on.
    pub fn start(every: Duration) -> Result<Self> {
        let (sender, news) = sync_channel(8);
        let wanted = Arc::new(Mutex::new(None));
        let (others, asked) = (sender.clone(), wanted.clone());
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let counters = thread("counters").spawn(move || counters(&sender, every));
        let pictures = thread("pictures").spawn(move || pictures(&others, &asked));
        counters
            .and(pictures)
            .context("cannot start a thread that looks at processes")?;
        Ok(Self { news, wanted })
    }

    /// Whose picture is wanted.
    pub fn want(&self, pid: Option<u32>) {
        *lock(&self.wanted) = pid;
    }
}

fn counters(news: &SyncSender<News>, every: Duration) {
    let mut survey = Survey::default();
    loop {
        let begin = Instant::now();
        let seen = survey.look().map_err(|why| format!("{why:#}"));
        if news.send(News::Seen(seen)).is_err() {
            return;
        }
        std::thread::sleep(every.saturating_sub(begin.elapsed()));
    }
}

fn pictures(news: &SyncSender<News>, wanted: &Mutex<Option<u32>>) {
    let mut last = None;
    let mut looked: Option<Instant> = None;
    loop {
        let pid = *lock(wanted);
        let due = looked.is_none_or(|then| then.elapsed() >= PERIOD);
        if pid == last && !due {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        if let Some(pid) = pid {
            let picture = survey::picture(pid).map_err(|why| format!("{why:#}"));
            if news.send(News::Picture(pid, Box::new(picture))).is_err() {
                return;
            }
        }
        if due && news.send(News::Names(survey::names())).is_err() {
            return;
        }
        (last, looked) = (pid, Some(Instant::now()));
    }
}
