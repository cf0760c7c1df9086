//! What is lent: windows of stitches, who has them, and what a request needs
//! of one. Plain values.

use super::chunk::StitchId;
use super::request::{Order, Owner, Request};
use super::streams::StreamId;
use crate::driver::Context;

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
    /// The program.
    Program,
    /// The slabs.
    Slab,
    /// Nobody, but its bytes are not free again yet: the next request of this
    /// size gets it as it is.
    Warm,
    /// The program; the memory below is not the pool's own.
    Attached,
}

/// A window that somebody has.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Where.
    pub window: Window,
    /// Who has it.
    pub holder: Holder,
    /// Bytes asked for.
    pub asked: u64,
    /// Unique number of the allocation.
    pub id: u64,
    /// The context it was asked for in.
    pub context: Context,
    /// See [`Request::owner`].
    pub owner: Owner,
    /// The stream it was asked for on.
    pub order: Order,
    /// See [`Request::graph`].
    pub graph: bool,
}

impl Block {
    /// The program's block that answers a request.
    pub fn new(window: Window, request: &Request, id: u64) -> Self {
        Self {
            window,
            holder: Holder::Program,
            asked: request.bytes,
            id,
            context: request.context,
            owner: request.owner,
            order: request.order,
            graph: request.graph,
        }
    }
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
}
