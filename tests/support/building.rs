//! Builds what a test runs but cargo does not build for it: shared libraries, and programs of
//! other packages. Never builds what `make test` has built: cargo would wait for whoever else
//! builds in this tree, a minute or more beside the lints.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `target/PROFILE`, where this test runs from.
pub fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    // It lies in target/PROFILE/deps.
    test.ancestors().nth(2).expect("its folder").to_owned()
}

/// Builds what these words for cargo name, in the profile of this test.
pub fn build<'a>(words: impl IntoIterator<Item = &'a str>) {
    if std::env::var_os("MEMCUDA_TESTS_BUILT").is_some() {
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).args(words);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile().ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo starts").success(), "{cargo:?}");
}

/// Places the built simulated libraries where the loader looks for them; their directory.
pub fn install_simulator(script: &Path) -> PathBuf {
    let placed = Command::new(script).arg(profile()).status();
    assert!(placed.expect("install.sh starts").success());
    profile().join("sim")
}
