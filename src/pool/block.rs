//! What is lent: windows of stitches, who has them, and what a request needs
//! of one. Plain values.

use super::chunk::StitchId;
use super::streams::StreamId;

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
}
