//! What is lent: windows of stitches, who has them, and what a request needs
//! of one. Plain values.

use super::chunk::StitchId;
use super::streams::StreamId;
use crate::units::{HANDLE, align_up};

/// Where in the pool's address ranges a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The stitch.
    pub stitch: StitchId,
    /// Offset in the stitch, in bytes.
    pub offset: u64,
    /// Length in bytes, a multiple of 512.
    pub bytes: u64,
}

/// Who has a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The program, or nobody just now: the front with this number knows.
    Front(u8),
    /// The slabs.
    Slab,
}

/// A window that somebody has.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Where.
    pub window: Window,
    /// Who has it.
    pub holder: Holder,
}

/// A request as the windows see it.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Length in bytes, a multiple of 512.
    pub bytes: u64,
    /// Alignment of the base in bytes.
    pub align: u64,
    /// The stream of the first use, `None` where it is not known.
    pub stream: Option<StreamId>,
    /// May that stream be ordered behind more than the uses of what it gets?
    pub late: bool,
    /// May it be exported? It is then best alone on its handles, at addresses of its kind.
    pub alone: bool,
    /// Must it lie in one page, as the driver's own does ([`Owner::Context`](super::Owner))?
    /// It then keeps one page from being joined with others, and not two.
    pub one_page: bool,
}

impl Need {
    /// The first offset of a stitch from this one on at which it may begin.
    pub fn first_from(&self, from: u64) -> Option<u64> {
        let at = align_up(from, self.align)?;
        match self.crosses(at) {
            true => align_up(at, HANDLE),
            false => Some(at),
        }
    }

    /// The last one at which it ends before this one.
    pub fn last_before(&self, end: u64) -> Option<u64> {
        let before = |end: u64| Some(end.checked_sub(self.bytes)? & !(self.align - 1));
        let at = before(end)?;
        match self.crosses(at) {
            true => before((at + self.bytes) & !(HANDLE - 1)),
            false => Some(at),
        }
    }

    /// Would it lie in more pages there than it may? Stitches begin with a page.
    pub fn crosses(&self, at: u64) -> bool {
        self.one_page && at / HANDLE != (at + self.bytes - 1) / HANDLE
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
