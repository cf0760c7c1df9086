//! The figures that a process shows: the page on which they stand, pool and pages as one, the
//! books of `MEMCUDA_POLICY=track`. Nothing is decided by them.

pub mod stats_page;
pub mod sums;
pub mod track;
