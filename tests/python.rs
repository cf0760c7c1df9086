//! The tests of the Python package (`python/tests`), over the simulated GPU:
//! the library preloaded, a keeper for them alone. Needs libmemcuda.so and the
//! simulated libraries beside the command; `make test` builds them.

#[path = "support/settings.rs"]
mod settings;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A keeper in a folder of its own, ended with the test.
struct Keeper(tempfile::TempDir);

fn memcuda() -> Command {
    settings::command(env!("CARGO_BIN_EXE_memcuda"))
}

impl Keeper {
    fn start() -> Self {
        let keeper = Self(tempfile::tempdir().unwrap());
        let started = memcuda()
            .args(["keeper", "--idle", "600", "--socket"])
            .arg(keeper.socket())
            .output()
            .unwrap();
        assert!(started.status.success(), "{}", text(&started));
        keeper
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("keeper.sock")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut stop = memcuda();
        stop.args(["keeper", "stop", "--force", "--socket"]);
        let _ = stop.arg(self.socket()).output();
    }
}

fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// What was built beside the command.
fn built(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_memcuda")).parent().unwrap();
    let file = folder.join(name);
    assert!(file.exists(), "no {}: make test-build", file.display());
    file
}

#[test]
fn the_package_does_what_its_tests_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let keeper = Keeper::start();
    let output = settings::command("python3")
        .args(["-B", "-m", "unittest", "discover", "--verbose", "-s"])
        .arg(root.join("python/tests"))
        .env("PYTHONPATH", root.join("python"))
        .env("LD_PRELOAD", built("libmemcuda.so"))
        .env("LD_LIBRARY_PATH", built("sim"))
        .env("MEMCUDA_SIM_DEVICES", "2")
        .env("MEMCUDA_KEEPER", keeper.socket())
        .env("MEMCUDA_SIM_SHARED", keeper.0.path().join("devices"))
        .output()
        .expect("python3 is needed");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran "));
    let ran: u32 = ran
        .and_then(|it| it.split(' ').next()?.parse().ok())
        .unwrap();
    assert!(ran >= 30 && !said.contains("skipped"), "{said}");
}
