//! How much each user has made, of what there is.

use super::Entries;

/// Names and exports, and the physical handles below them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Made {
    /// Names and exports.
    pub items: usize,
    /// Handles.
    pub parts: usize,
}

impl Entries {
    /// What there is of all users.
    pub fn made(&self) -> Made {
        let mut all = Made::default();
        for made in self.made.values() {
            all.items += made.items;
            all.parts += made.parts;
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

    /// There is one handle fewer.
    pub(super) fn note_given_up(&mut self, uid: u32) {
        self.made.entry(uid).or_default().parts -= 1;
    }

    /// An item with so many handles is gone.
    pub(super) fn note_gone(&mut self, uid: u32, parts: usize) {
        let made = self.made.entry(uid).or_default();
        made.items -= 1;
        made.parts -= parts;
        if made.items == 0 {
            self.made.remove(&uid);
        }
    }
}
