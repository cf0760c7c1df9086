//! libmemcuda.so: preloaded into a program, it serves the program's CUDA
//! memory from the stitching pool of `memcuda`.
//!
//! It acts on nothing before `cuInit` has succeeded but lookups, keeps every
//! symbol of CUDA out of its own dependencies, and hands what it does not know
//! to the real driver unchanged. `exports.txt` lists what it exports.

#![allow(
    non_snake_case,
    non_upper_case_globals,
    reason = "exported symbols have the names that CUDA gave them"
)]

mod aimdo;
mod api;
mod aside;
pub mod asm;
mod backtrace;
mod boundary;
mod caller;
mod calls;
mod captures;
mod carry;
mod device;
mod dlopen;
mod dynamic;
mod endings;
mod engine;
mod environment;
mod fork;
mod fork_gate;
mod getenv;
#[macro_use]
mod hook;
mod hooks;
mod in_vain;
mod inherited;
mod listener;
mod loader;
mod log;
mod lookup;
mod memops;
mod modules;
mod names;
mod neighbours;
mod nvml;
mod offers;
mod old_libc;
mod oom;
mod others;
mod own_pools;
mod pages;
mod picture;
mod pitch;
mod places;
mod pool;
mod primaries;
mod record;
mod reserve;
mod resolve;
mod retains;
mod room;
mod routes;
mod scope;
mod shapes;
mod share;
mod signals;
mod stand_in;
mod standard_error;
mod stats_page;
mod substitute;
mod sums;
mod system_calls;
mod tagged;
mod tags;
mod threads;
mod thunks;
mod torch;
mod track;
mod ucx;
mod unwind;
mod views;
mod watch;
mod whose;
mod worker;
mod yama;
