//! What hooks ask of the driver, and what they note of its objects so as not to ask: contexts,
//! streams that capture, memory pools, the shapes of copies. The calls that the pool itself makes
//! are those of `memcuda_core::driver`.

pub mod calls;
pub mod captures;
pub mod marks;
pub mod memops;
pub mod own_pools;
pub mod pitch;
pub mod places;
pub mod primaries;
pub mod retains;
pub mod shapes;
pub mod stand_in;
pub mod views;
