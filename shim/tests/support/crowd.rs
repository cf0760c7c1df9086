//! Many libraries that ask for functions of the driver, in one process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::support::compile;

/// A library to be preloaded, in this folder, and what CROWD must say for it to load so many
/// others, each of which asks for a function of the driver.
pub fn crowd(folder: &Path, others: usize) -> (PathBuf, OsString) {
    let made = compile(
        "../support/crowd.c",
        "libcrowd.so",
        &["-shared", "-fPIC", "-ldl"],
    );
    std::fs::create_dir_all(folder).unwrap();
    let copy = |name: &str| {
        let copy = folder.join(name);
        std::fs::copy(&made, &copy).unwrap();
        copy
    };
    let others = (0..others).map(|number| copy(&format!("crowd-{number}.so")));
    let others = std::env::join_paths(others).unwrap();
    (copy("crowd.so"), others)
}
