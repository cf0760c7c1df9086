//! Builds the simulated libraries and the C programs, and runs their cases.

#[path = "../../../../tests/support/building.rs"]
mod building;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

use building::{build, install_simulator};

/// The directory of the simulated libraries, freshly built.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        build(["-p", "memcuda-sim-cuda", "-p", "memcuda-sim-cudart"]);
        install_simulator(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh"))
    })
}

/// Compiles `programs/NAME.c` against one of the libraries, once.
fn program(name: &str, library: &str) -> PathBuf {
    static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!("sim-", env!("CARGO_CRATE_NAME")));
    std::fs::create_dir_all(&directory).expect("a directory for the programs");
    let binary = directory.join(name);
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !done.iter().any(|other| other == name) {
        // Compiled aside and renamed: another test may run the old one.
        let fresh = binary.with_extension(std::process::id().to_string());
        let compiled = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
            .args([&fresh, &source])
            .arg(format!("-L{}", libraries().display()))
            .args([&format!("-l:{library}"), "-ldl"])
            .status();
        assert!(compiled.expect("a C compiler is needed").success());
        std::fs::rename(fresh, &binary).expect("both are in one directory");
        done.push(name.to_owned());
    }
    binary
}

/// Runs a C program over the simulation.
pub fn run(name: &str, library: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let libraries = libraries();
    Command::new(program(name, library))
        .args(arguments)
        .env("LD_LIBRARY_PATH", libraries)
        .env("MEMCUDA_SIM_DEVICES", "2")
        .envs(environment.iter().copied())
        .output()
        .expect("the program starts")
}
