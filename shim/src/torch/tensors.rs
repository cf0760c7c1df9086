//! Torch's tensors in expandable segments, told to who keeps the pages below: where each lies
//! that may lie on several, and whether torch mapped pages for it. Changes nothing of what torch
//! is asked for, knows no page, and asks torch for nothing.

use std::cell::Cell;
use std::sync::OnceLock;

use memcuda_core::driver::Address;
use memcuda_core::units::MIB;

use super::{environment, switch};

/// Up to so many bytes a tensor lies among those that are as small, on pages of their own.
const SMALL: usize = MIB as usize;

/// A tensor of so many bytes was allocated at an address, with pages that were mapped for it or
/// without.
pub type Tell = fn(Address, u64, bool);

static TELL: OnceLock<Tell> = OnceLock::new();

thread_local! {
    /// Has torch mapped pages on this thread since it began to allocate?
    static MAPPED: Cell<bool> = const { Cell::new(false) };
}

/// From now on it is told so.
pub fn set(tell: Tell) {
    let _ = TELL.set(tell);
}

/// Torch has mapped a page on this thread.
pub fn mapped() {
    MAPPED.set(true);
}

/// A tensor that is about to be allocated, in pages that others share.
pub struct Tensor {
    bytes: usize,
}

/// A tensor of so many bytes is about to be allocated; `None` where nobody is to be told.
pub fn begin(bytes: usize) -> Option<Tensor> {
    if bytes <= SMALL || !environment::maps_pages() || switch::is_off() {
        return None;
    }
    MAPPED.set(false);
    Some(Tensor { bytes })
}

impl Tensor {
    /// It was, at this address.
    pub fn is_at(&self, at: usize) {
        if let Some(tell) = TELL.get() {
            tell(at as Address, self.bytes as u64, MAPPED.get());
        }
    }
}
