//! A program that tests need and a machine may lack.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Finds it, or has it unpacked into a folder of `target` (`program.sh`).
pub fn found(name: &str, folder: &str) -> String {
    // Of two tests at once the one would unpack what the other one runs.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = Command::new(root.join("tests/support/program.sh"))
        .arg(name)
        .arg(root.join("target").join(folder))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(found.status.success(), "no {name} could be had");
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}
