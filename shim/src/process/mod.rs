//! The process that the library is in: its threads and their stacks, its signals, its
//! descriptors, its environment, what it may hear of us. Nothing here knows of CUDA, nor which
//! libraries are loaded.

pub mod asm;
pub mod backtrace;
pub mod environment;
pub mod fork_gate;
pub mod inherited;
pub mod log;
pub mod signals;
pub mod standard_error;
pub mod system_calls;
pub mod tags;
pub mod threads;
pub mod yama;
