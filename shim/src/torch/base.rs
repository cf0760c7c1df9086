//! Torch's answer which segment a tensor lies in (`getBaseAllocation`), by which extensions pass its
//! memory on with CUDA IPC. In expandable segments torch throws. Where it has them by our choice alone
//! the answer is the run of pages, which to programs is the allocation. Knows no page: who does says
//! at the start how to ask. Whoever has these segments by the user's wish gets torch's own answer.

use std::sync::OnceLock;

use memcuda_core::driver::Address;

use super::environment;

/// The allocation that pages are at an address: its first byte and how many there are.
pub type Around = fn(Address) -> Option<(Address, u64)>;

static AROUND: OnceLock<Around> = OnceLock::new();

/// From now on it is asked so.
pub fn set(around: Around) {
    let _ = AROUND.set(around);
}

/// What torch answers, where it would throw for our sake.
pub fn of(at: Address) -> Option<(Address, u64)> {
    let around = AROUND.get().filter(|_| environment::turned_pages_on())?;
    around(at)
}
