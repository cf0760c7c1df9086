//! Was memory of torch's given to others who reach it by its physical pages, as network cards
//! do? By itself torch keeps what it has until its caches are emptied or the device is full, and
//! who registers it relies on that: what comes to lie there later is never registered anew. So
//! from the first time on torch is asked for nothing any more, and has no split size of this
//! library's. Forgets nothing: nobody says when such a registration ends.

use std::sync::atomic::{AtomicBool, Ordering};

use super::split;

static ANY: AtomicBool = AtomicBool::new(false);

/// Some is about to be.
pub fn note() {
    if !ANY.swap(true, Ordering::Relaxed) {
        split::leave();
        crate::log!(
            Info,
            "torch is asked for nothing any more: its memory is registered, as for a network card"
        );
    }
}

/// Was any?
pub fn is_any() -> bool {
    ANY.load(Ordering::Relaxed)
}
