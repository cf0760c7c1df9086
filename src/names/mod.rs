//! Names of memory: what a name may look like, what its elements are. Knows
//! nothing of processes and devices.

mod dtype;
mod name;
mod pattern;
pub mod rules;
mod wanted;

pub use dtype::{Dtype, bytes_of};
pub use name::Name;
pub use pattern::Pattern;
pub use wanted::{Backend, Mode};

/// Most extents of a shape.
pub const MOST_EXTENTS: usize = 32;
