//! The memcuda library: a stitching memory pool for CUDA device memory.
//!
//! ARCHITECTURE.md has the order in which modules may use each other. The
//! library never looks up a symbol of the host program, never prints, and
//! starts no thread: `shim/` and the `memcuda` command do that. (But for
//! `keeper::redis`, which only the command has.)

pub mod config;
pub mod descriptor;
pub mod driver;
pub mod epoch;
pub mod error;
pub mod frames;
#[cfg(feature = "cli")]
pub mod keeper;
pub mod lock;
pub mod log_line;
pub mod names;
pub mod pages;
pub mod picture;
pub mod pool;
pub mod proc_stat;
pub mod reclaim;
pub mod rules_file;
pub mod share;
pub mod stats_page;
#[cfg(feature = "cli")]
pub mod trace;
pub mod units;
pub mod waiting;

#[cfg(test)]
#[path = "../tests/support/random.rs"]
mod random;
