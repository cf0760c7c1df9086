//! Programs of tests begin without the settings of whoever runs the tests.

use std::process::Command;

/// Takes them all from a command.
pub fn forget(command: &mut Command) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("MEMCUDA_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD");
}
