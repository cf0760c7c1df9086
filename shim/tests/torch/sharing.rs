//! Processes that do what they are told (`../ipc/actor.c`), with a torch that has its
//! memory over pages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::actor::{Actor, Place};
use crate::support::{self, shim, simulator};
use crate::torch;

pub const MIB: u64 = 1 << 20;
/// What torch maps at once under the profile.
pub const PAGE: u64 = 12 * MIB;
pub const INVALID_VALUE: i32 = 1;
/// An attribute of a pointer.
pub const RANGE_START: u32 = 11;

/// The program that does what it is told, with the torch that has expandable segments.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| with_torch("../ipc/actor.c", "actor"))
}

/// A program over that torch.
pub fn with_torch(source: &str, name: &str) -> PathBuf {
    let newer = format!("-L{}", torch().join("expandable").display());
    let older = format!("-L{}", torch().display());
    let driver = format!("-L{}", simulator().display());
    // Torch's functions are weak in one of them: no reason to need it.
    let search = [newer.as_str(), &older, &driver, "-Wl,--no-as-needed"];
    let libraries = ["-l:libc10_cuda.so", "-l:libc10.so", "-l:libcudart.so.13"];
    let rest = ["-l:libcuda.so.1", "-ldl", "-pthread"];
    support::compile(source, name, &[&search[..], &libraries, &rest].concat())
}

/// The program, over the devices of a place.
pub fn command(place: &Place, libraries: &[PathBuf]) -> Command {
    command_of(program(), place, libraries)
}

/// Any program that was made [`with_torch`].
pub fn command_of(program: &Path, place: &Place, libraries: &[PathBuf]) -> Command {
    let mut command = place.command(program, libraries);
    let newer = torch().join("expandable");
    let search = std::env::join_paths([&newer, torch(), &simulator()]).unwrap();
    command
        .env("LD_LIBRARY_PATH", search)
        .env("MEMCUDA_TORCH", "native")
        .env_remove("PYTORCH_CUDA_ALLOC_CONF");
    command
}

/// A process whose torch has its memory over pages.
pub fn actor(place: &Place) -> Actor {
    Actor::start(&mut command(place, &[shim()]))
}

/// How many exports the keeper of a place has.
pub fn exports(place: &Place) -> usize {
    let said = place.keeper.verb(&["ls", "--all", "--json"]).unwrap();
    said.lines().count()
}

pub fn number(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

pub fn moved(at: &str, by: u64) -> String {
    format!("{:x}", number(at) + by)
}

/// What a program does with torch's memory, one line a command.
pub trait Torch {
    /// Memory that nobody sees torch lend, as on machines on which not all that allocates is.
    fn torch(&mut self, bytes: u64) -> String;
    /// As torch allocates a tensor.
    fn tensor(&mut self, bytes: u64) -> String;
    fn give_up(&mut self, at: &str);
    fn attribute(&mut self, at: &str, attribute: u32) -> u64;
}

impl Torch for Actor {
    fn torch(&mut self, bytes: u64) -> String {
        self.must(&format!("torch {bytes}"))
    }

    fn tensor(&mut self, bytes: u64) -> String {
        self.must(&format!("tensor {bytes}"))
    }

    /// Frees a tensor, and lets torch unmap its pages.
    fn give_up(&mut self, at: &str) {
        self.must(&format!("torch-free {at}"));
        self.must("torch-empty");
    }

    fn attribute(&mut self, at: &str, attribute: u32) -> u64 {
        number(&self.must(&format!("attribute {at} {attribute}")))
    }
}
