//! Whether this process has one context alone: then one wait on the device orders
//! whatever it does (`cuCtxWaitEvent`). Whether it has some of several devices. Asks no driver,
//! and forgets no context.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::driver::Context;

const NONE: u64 = 0;
const SEVERAL: u64 = u64::MAX;

/// The contexts that this process has had.
#[derive(Debug, Default)]
pub struct Contexts {
    only: AtomicU64,
    /// A bit for each device that had one, by ordinal.
    devices: AtomicU64,
}

impl Contexts {
    /// A context was made, or another use of one. True where it is not the only one: then
    /// [`super::Pages::others_come`] is due before the program has it.
    pub fn begins(&self, context: Context) -> bool {
        let first = self.only.compare_exchange(NONE, context.0, SeqCst, SeqCst);
        let is_only = first.is_ok() || first == Err(context.0);
        if !is_only {
            self.only.store(SEVERAL, SeqCst);
        }
        !is_only
    }

    /// A context of this device was made, or another use of one.
    pub fn begins_on(&self, device: u32) {
        self.devices.fetch_or(1 << (device % 64), SeqCst);
    }

    /// Had more than one device a context?
    pub fn are_on_several(&self) -> bool {
        self.devices.load(SeqCst).count_ones() > 1
    }

    /// Contexts may have been made of which nothing is known.
    pub fn are_unknown(&self) {
        self.only.store(SEVERAL, SeqCst);
    }

    /// Is this context the only one there ever was?
    pub fn is_only(&self, context: Context) -> bool {
        let only = self.only.load(SeqCst);
        only == context.0 && ![NONE, SEVERAL].contains(&only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_the_only_one_until_another_one_comes() {
        let contexts = Contexts::default();
        assert!(!contexts.is_only(Context(0)) && !contexts.is_only(Context(1)));
        assert!(!contexts.begins(Context(1)) && !contexts.begins(Context(1)));
        assert!(contexts.is_only(Context(1)) && !contexts.is_only(Context(2)));
        assert!(contexts.begins(Context(2)) && contexts.begins(Context(1)));
        assert!(!contexts.is_only(Context(1)) && !contexts.is_only(Context(2)));
        assert!(!contexts.is_only(Context(SEVERAL)));
        assert!(!contexts.are_on_several());
        for (device, several) in [(3, false), (3, false), (0, true)] {
            contexts.begins_on(device);
            assert_eq!(contexts.are_on_several(), several);
        }
        let contexts = Contexts::default();
        contexts.are_unknown();
        assert!(contexts.begins(Context(1)) && !contexts.is_only(Context(1)));
    }
}
