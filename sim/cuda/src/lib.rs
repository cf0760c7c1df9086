//! `libcuda.so.1` of the simulated GPU: a checker, not a mock, and no CUDA
//! emulator. It answers as a real driver does, keeps device memory in memfds
//! that are really mapped, runs work on a virtual clock, and ends the program
//! with one line where a real GPU would corrupt memory silently.
//!
//! A call enters through `entry`, which holds the one lock; the modules named
//! after parts of the driver interface hold its bodies; `check` and `claims`
//! say what is misuse.

#![allow(non_snake_case, reason = "exported names are the driver's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the driver's interface is documented by its vendor"
)]

mod abi;
mod address;
mod arena;
mod array;
mod attributes;
mod blocks;
mod capture;
mod capture_info;
mod check;
mod claims;
mod clock;
mod context;
mod device;
mod entry;
mod event;
mod fault;
mod fill;
mod graph;
mod green;
mod handle;
mod held;
mod host;
mod host_functions;
mod ipc;
mod lacks;
mod launch;
mod lookup;
mod mapping;
mod memory;
mod mempool;
mod module;
mod multicast;
mod nodes;
mod old_libc;
mod order;
mod peers;
mod primary;
mod ranges;
mod rows;
mod settings;
mod shared;
mod state;
mod stream;
mod stream_handles;
#[path = "../../../shim/src/process/system_calls.rs"]
mod system_calls;
mod transfer;
mod uses;
mod values;
mod wait;
mod work;
