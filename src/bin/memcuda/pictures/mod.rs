//! Pictures of processes: where one comes from, what its bytes are, what was before.

pub mod history;
pub mod picture;
pub mod reading;
