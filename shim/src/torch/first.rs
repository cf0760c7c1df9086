//! Torch's first page. Releases 2.11 and 2.12 find out with it whether handles can be for a
//! fabric, and note for the whole process that they are to be, as long as that takes: a
//! thread that asks for the first page of another device meanwhile fails, by the driver's
//! error or for want of memory. So until a page is made torch's threads allocate one after
//! the other (`turns`).

use std::sync::atomic::{AtomicBool, Ordering};

use super::{environment, switch};

static MADE: AtomicBool = AtomicBool::new(false);

/// Torch has got a page.
pub fn made() {
    MADE.store(true, Ordering::Release);
}

/// May an allocation of torch's make its first page?
pub fn may_come() -> bool {
    !MADE.load(Ordering::Acquire) && environment::maps_pages() && !switch::is_off()
}
