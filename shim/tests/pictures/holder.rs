//! `holder.c`, driven line by line.

#[path = "../support/process.rs"]
mod process;
#[path = "../../../tests/support/waiting.rs"]
mod waiting;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use process::Process as Holder;
pub use waiting::until;

use crate::support::{compile, preloaded, program, shim, simulator};

pub const MIB: u64 = 1 << 20;

/// The command of a holder on a device of 1 GiB of its own.
pub fn command() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    command_of(BUILT.get_or_init(|| program("holder.c", "holder")))
}

/// The same, of a holder with so much thread-local memory.
pub fn command_with_local(bytes: usize) -> Command {
    let directory = format!("-L{}", simulator().display());
    let local = format!("-DLOCAL={bytes}");
    let arguments = [&local, &directory, "-l:libcuda.so.1"];
    command_of(&compile("holder.c", "holder-local", &arguments))
}

fn command_of(built: &Path) -> Command {
    let mut command = preloaded(built, &[shim()]);
    command.env("MEMCUDA_SIM_MEMORY", "1GiB");
    command
}

impl Holder {
    /// The address of an allocation that is served.
    pub fn alloc(&mut self, words: &str) -> u64 {
        let answer = self.say(words);
        let (code, at) = answer.split_once(' ').unwrap();
        assert_eq!(code, "0", "{words}");
        u64::from_str_radix(at.trim_start_matches("0x"), 16).unwrap()
    }
}
