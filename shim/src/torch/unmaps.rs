//! Which of the places where torch's allocator library waits for a stream is the one
//! before it unmaps pages. In others its users wait for results (`Stream.synchronize()`,
//! `.item()`), and may do so on a thread whose ladder was left by an exception. So a
//! place is known by what it did: it waited, and pages were unmapped next. One that has not
//! done so yet may be known by its name.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::layout;
use crate::process::{backtrace, fork_gate};

/// Return addresses, as they were found; 0: none yet. More than compilers make of one call.
static SITES: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Does torch unmap what it waits for from here?
pub fn unmaps_behind(site: usize) -> bool {
    SITES
        .iter()
        .any(|known| known.load(Ordering::Relaxed) == site)
}

/// The same, also where it never did so.
pub fn may_unmap_behind(site: usize) -> bool {
    unmaps_behind(site) || is_named(site)
}

/// Is this code torch's function that waits for a stream before it unmaps, by its name?
fn is_named(at: usize) -> bool {
    layout().is_some_and(|layout| layout.unmaps.iter().any(|code| code.contains(&at)))
}

/// A wait from here was followed by an unmapping.
pub fn waits_to_unmap(site: usize) {
    let fills = |known: &AtomicUsize| {
        let found = known.compare_exchange(0, site, Ordering::Relaxed, Ordering::Relaxed);
        found.is_ok() || found == Err(site)
    };
    SITES.iter().any(fills);
}

/// Frames below torch's own: ours and the runtime's.
const MOST_FRAMES: usize = 64;

/// Is the calling thread at the wait before an unmapping, by the name of torch's function?
pub fn is_unmapping() -> bool {
    if layout().is_none() {
        return false;
    }
    let (mut frames, mut found) = (0, false);
    let look = |at| {
        frames += 1;
        found = is_named(at);
        !found && frames < MOST_FRAMES
    };
    // The unwinder may look at the loader's list.
    fork_gate::pass(|| backtrace::walk(look));
    found
}
