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

mod api;
mod carry;
mod counters;
mod driver;
mod engine;
mod entry;
mod fork;
#[macro_use]
mod hook;
mod hooks;
mod libraries;
mod names;
mod neighbours;
mod oom;
mod pages;
mod picture;
mod pool;
mod process;
mod record;
mod room;
mod share;
mod torch;
mod watch;
mod whose;
