//! Lists and sums.

use std::ops::Bound::{Excluded, Unbounded};

use super::{Entries, Item, references};
use crate::names::Name;
use crate::share::protocol::{Generation, Place, State};

/// Sums over all that the keeper has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Names that can be opened or are being made.
    pub names: u64,
    /// Deleted names that somebody holds.
    pub dying: u64,
    /// Exports.
    pub exports: u64,
    /// The sum of all counts.
    pub references: u64,
    /// Physical bytes.
    pub bytes: u64,
    /// Of them, of names that nobody holds.
    pub unheld_bytes: u64,
}

impl Entries {
    /// At most `most` items behind a place, of those that `shown` lets through:
    /// names in order, then, where `all`, exports. Deleted names only where `all`.
    pub fn list(
        &self,
        after: Option<&Place>,
        all: bool,
        most: usize,
        shown: impl Fn(&Item) -> bool,
    ) -> (Vec<&Item>, Option<Place>) {
        let names = match after {
            None => self.named.range(..),
            Some(Place::Named(name, generation)) => {
                let behind = Excluded((name.clone(), *generation));
                self.named.range((behind, Unbounded))
            }
            // Behind the last name: only exports are left.
            Some(Place::Unnamed(_)) => Default::default(),
        };
        let names = names
            .map(|(_, generation)| &self.items[generation])
            .filter(|item| all || item.state != State::Dying);
        let exports = match after {
            Some(Place::Unnamed(generation)) => self.items.range((Excluded(generation), Unbounded)),
            _ => self.items.range(..),
        };
        let exports = exports
            .map(|(_, item)| item)
            .filter(|item| all && item.name.is_none());
        let mut items = names.chain(exports).filter(|item| shown(item));
        let page: Vec<_> = items.by_ref().take(most).collect();
        let next = match (page.last(), items.next()) {
            (Some(last), Some(_)) => Some(place(last)),
            _ => None,
        };
        (page, next)
    }

    /// Sums.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for item in self.items.values() {
            match (&item.name, item.state) {
                (None, _) => totals.exports += 1,
                (Some(_), State::Dying) => totals.dying += 1,
                (Some(_), _) => totals.names += 1,
            }
            totals.references += references(item);
            totals.bytes = totals.bytes.saturating_add(item.mapped);
            if item.holders.is_empty() {
                totals.unheld_bytes = totals.unheld_bytes.saturating_add(item.mapped);
            }
        }
        totals
    }

    /// Is there nothing at all?
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Names that can be opened or are being made, in order.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        let live = |entry: &&(Name, Generation)| self.live.get(&entry.0) == Some(&entry.1);
        self.named.iter().filter(live).map(|(name, _)| name)
    }

    /// Every item.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values()
    }
}

fn place(item: &Item) -> Place {
    match &item.name {
        Some(name) => Place::Named(name.clone(), item.generation),
        None => Place::Unnamed(item.generation),
    }
}
