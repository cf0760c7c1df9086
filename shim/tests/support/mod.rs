//! Builds what the tests run: the C programs, the simulated GPU, and the
//! library under test. A piece that is missing fails the test.
#![allow(dead_code, reason = "each of those who share it uses a part")]

#[path = "../../../tests/support/building.rs"]
mod building;
#[path = "../../../tests/support/settings.rs"]
mod settings;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use building::install_simulator;
pub use building::{build, profile};

/// libmemcuda.so of this tree.
pub fn shim() -> PathBuf {
    built().join("libmemcuda.so")
}

/// The directory of the simulated libcuda.so.1 and libcudart.so.13.
pub fn simulator() -> PathBuf {
    built().join("sim")
}

/// The directory that the libraries are in, built once.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let packages = [
            "memcuda-shim",
            "memcuda-sim-cuda",
            "memcuda-sim-cudart",
            "memcuda-sim-nvml",
        ];
        build(packages.iter().flat_map(|package| ["-p", package]));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        install_simulator(&root.join("sim/install.sh"));
        profile()
    })
}

/// The directory of what this test makes; no other test writes there.
pub fn scratch() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let name = concat!("shim-", env!("CARGO_CRATE_NAME"));
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).unwrap();
        directory
    })
}

/// A file of this test's own directory.
pub fn source(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join(env!("CARGO_CRATE_NAME")).join(name)
}

/// Compiles a source of this test's own directory.
pub fn compile(file: &str, name: &str, arguments: &[&str]) -> PathBuf {
    // Compiled aside and renamed: another test may run the old one.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = scratch().join(format!("{name}.{number}"));
    run(Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-o"])
        .args([&fresh, &source(file)])
        .args(arguments));
    let output = scratch().join(name);
    std::fs::rename(fresh, &output).unwrap();
    output
}

/// Compiles a program that links to the simulated driver and runtime.
pub fn program(file: &str, name: &str) -> PathBuf {
    let directory = format!("-L{}", simulator().display());
    let arguments = [&directory, "-l:libcudart.so.13", "-l:libcuda.so.1", "-ldl"];
    compile(file, name, &arguments)
}

/// A command with these libraries preloaded, over the simulated GPU, without
/// any setting of the caller's.
pub fn preloaded(program: impl AsRef<Path>, libraries: &[PathBuf]) -> Command {
    let mut command = settings::command(program.as_ref());
    let libraries: Vec<_> = libraries.iter().map(|l| l.to_str().unwrap()).collect();
    command.env("LD_PRELOAD", libraries.join(":"));
    command.env("LD_LIBRARY_PATH", simulator());
    // None is started but by a test that ends it.
    command.env("MEMCUDA_KEEPER", "off");
    command
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Sends a signal to a process, if it still is. The program `kill` is not everywhere.
pub fn signal(pid: i32, which: i32) {
    assert!(pid > 1);
    // SAFETY: takes no pointer.
    unsafe { libc::kill(pid, which) };
}

/// What a command that must succeed wrote: its output, its diagnostics.
pub fn said(command: &mut Command) -> (String, String) {
    let output = run(command);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}
