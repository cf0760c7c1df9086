//! How often the program retains the primary context of a device: as far as that is certain.
//! What came to no hook is not counted, nor what the library retains. Who counts holds
//! `primaries`. Calls no driver.

use std::sync::atomic::{AtomicU32, Ordering};

/// The retains of a device's primary context that are certain; there may be more.
#[derive(Default)]
pub struct Retains(AtomicU32);

impl Retains {
    /// A retain has succeeded.
    pub fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A release is about to be made: it counts whatever it answers. Is it certain that
    /// it is not the last one?
    pub fn one_less(&self) -> bool {
        let certain = self.0.load(Ordering::Relaxed);
        self.0.store(certain.saturating_sub(1), Ordering::Relaxed);
        certain > 1
    }

    /// The context has ended, or may be about to, whoever retains it.
    pub fn none(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_not_the_last_one_where_more_than_one_retain_is_certain() {
        let retains = Retains::default();
        assert!(!retains.one_less());
        retains.one_more();
        retains.one_more();
        assert!(retains.one_less() && !retains.one_less() && !retains.one_less());
        retains.one_more();
        retains.one_more();
        retains.none();
        assert!(!retains.one_less());
    }
}
