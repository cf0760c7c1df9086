//! Programs of tests begin without the settings of whoever runs the tests.

use std::ffi::OsStr;
use std::process::Command;

/// A program that has none of them.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("MEMCUDA_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD");
    command
}
