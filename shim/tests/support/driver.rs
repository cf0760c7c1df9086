//! A driver of a test's own in the place of the simulated one, to which it passes calls on.

use std::path::PathBuf;

use crate::support::{compile, scratch, simulator};

/// The directory of a driver of this kind (`KIND_driver.c`). What is behind it, the simulated
/// driver by another name, is itself only while it is linked.
pub fn driver(kind: &str) -> PathBuf {
    let directory = scratch().join(kind);
    std::fs::create_dir_all(&directory).unwrap();
    let shared = |name: &str, needs: &[&str]| {
        let soname = format!("-Wl,-soname,{name}");
        let arguments = [&["-shared", "-fPIC", &soname], needs, &["-ldl"]].concat();
        let source = format!("{kind}_driver.c");
        compile(&source, &format!("{kind}/{name}"), &arguments)
    };
    let behind = shared("libsimulated.so", &[]);
    let search = format!("-L{}", directory.display());
    let needs = ["-Wl,--no-as-needed", &search, "-l:libsimulated.so"];
    shared("libcuda.so.1", &needs);
    std::fs::remove_file(&behind).unwrap();
    for (library, place) in [
        ("libcuda.so.1", behind),
        ("libcudart.so.13", directory.join("libcudart.so.13")),
    ] {
        std::fs::copy(simulator().join(library), place).unwrap();
    }
    directory
}
