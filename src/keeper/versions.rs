//! Published versions reach the registry: programs write them on pages that they
//! map and tell nobody, so a keeper with a registry looks at these pages. Asks
//! and disturbs no client.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::pages;
use super::state::Keeper;
use crate::share::protocol::Generation;

/// How often the pages are looked at, where there are any.
const LOOK: Duration = Duration::from_millis(100);
/// The most that looking may take: one part in so many of the time.
const SHARE: u32 = 50;

/// What was seen.
#[derive(Default)]
pub(super) struct Versions {
    seen: HashMap<Generation, u64>,
    /// When to look again; `None` while there is no page.
    pub next: Option<Instant>,
}

impl Keeper {
    /// Tells the registry which names have another version than before.
    pub(super) fn look_at_versions(&mut self, now: Instant) {
        let Some(desk) = &self.desk else {
            return;
        };
        if self.versions.next.is_some_and(|next| now < next) {
            return;
        }
        let mut pages = 0;
        let mut changed = Vec::new();
        for (generation, page) in self.descriptors.timelines() {
            pages += 1;
            let newest = pages::word(page);
            let before = self.versions.seen.insert(generation, newest).unwrap_or(0);
            let item = self.entries.item(generation).filter(|_| newest != before);
            changed.extend(item.and_then(|item| item.name.clone()));
        }
        if self.versions.seen.len() > pages {
            let there = |generation: &Generation| self.entries.item(*generation).is_some();
            self.versions.seen.retain(|generation, _| there(generation));
        }
        if !changed.is_empty() {
            desk.mark(changed);
        }
        let pause = LOOK.max(now.elapsed() * SHARE);
        self.versions.next = (pages > 0).then(|| now + pause);
    }
}
