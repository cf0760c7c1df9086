//! How much each user has made, of what there is.

use super::{Entries, Item};
use crate::share::protocol::Generation;

/// Names and exports, and the descriptors that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Made {
    /// Names and exports.
    pub items: usize,
    /// The physical handles below them.
    pub parts: usize,
    /// Pages of versions, whoever made the names.
    pub pages: usize,
}

impl Entries {
    /// What there is of all users.
    pub fn made(&self) -> Made {
        let mut all = Made::default();
        for made in self.made.values() {
            all.items += made.items;
            all.parts += made.parts;
            all.pages += made.pages;
        }
        all
    }

    /// What there is of one.
    pub fn made_by(&self, uid: u32) -> Made {
        self.made.get(&uid).copied().unwrap_or_default()
    }

    /// There is more of a user's.
    pub(super) fn note_made(&mut self, uid: u32, items: usize, parts: usize) {
        let made = self.made.entry(uid).or_default();
        made.items += items;
        made.parts += parts;
    }

    /// An item has a page of versions, which was made for this user.
    pub fn note_page(&mut self, generation: Generation, uid: u32) {
        if let Some(item) = self.items.get_mut(&generation) {
            item.page_for = Some(uid);
            self.made.entry(uid).or_default().pages += 1;
        }
    }

    /// There is one handle fewer.
    pub(super) fn note_given_up(&mut self, uid: u32) {
        self.made.entry(uid).or_default().parts -= 1;
    }

    /// An item is gone.
    pub(super) fn note_gone(&mut self, item: &Item) {
        let made = self.made.entry(item.maker.uid).or_default();
        made.items -= 1;
        made.parts -= item.held_parts();
        if let Some(uid) = item.page_for {
            self.made.entry(uid).or_default().pages -= 1;
        }
        for uid in [Some(item.maker.uid), item.page_for].into_iter().flatten() {
            if self.made_by(uid) == Made::default() {
                self.made.remove(&uid);
            }
        }
    }
}
