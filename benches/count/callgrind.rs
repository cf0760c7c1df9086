//! Runs a program under callgrind with few and with many pairs: what the many
//! cost more is what pairs cost, whatever start and end took.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Pairs of the two runs.
const FEW: u64 = 500;
const MANY: u64 = 2_500;

/// What is counted of the preloaded library: name, argument of
/// `benches/hooks.c`, bytes.
pub const HOOKED: [(&str, &str, u64); 3] = [
    ("library: cuMemAllocAsync, slab, 512 B", "async", 512),
    (
        "library: cuMemAllocAsync, warm window, 64 MiB",
        "async",
        64 << 20,
    ),
    (
        "library: cuMemAlloc, recalled window, 64 MiB",
        "malloc",
        64 << 20,
    ),
];

/// Valgrind, and what it runs.
pub struct Callgrind {
    valgrind: PathBuf,
    release: PathBuf,
    hooks: PathBuf,
    scratch: tempfile::TempDir,
}

impl Callgrind {
    /// Finds valgrind (`tests/support/program.sh`) and the library, builds `benches/hooks.c`.
    pub fn find(root: &Path) -> Result<Self, String> {
        let found = Command::new(root.join("tests/support/program.sh"))
            .arg("valgrind")
            .arg(root.join("target/valgrind"))
            .stderr(std::process::Stdio::inherit())
            .output();
        let found = found.map_err(|error| format!("program.sh: {error}"))?;
        if !found.status.success() {
            return Err("no valgrind could be had".into());
        }
        let release = root.join("target/release");
        let library = release.join("libmemcuda.so");
        if !library.exists() {
            return Err(format!("{} is missing: make build", library.display()));
        }
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let hooks = scratch.path().join("hooks");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(compiler)
            .args(["-O2", "-o"])
            .arg(&hooks)
            .arg(root.join("benches/hooks.c"))
            .args(["-ldl", "-lpthread"])
            .status();
        match built {
            Ok(status) if status.success() => {}
            _ => return Err("benches/hooks.c could not be built".into()),
        }
        let valgrind = String::from_utf8_lossy(&found.stdout).trim().into();
        Ok(Self {
            valgrind,
            release,
            hooks,
            scratch,
        })
    }

    /// Instructions of a pair in the pool; see `pairs`.
    pub fn pool(&self, name: &str, ballast: u64) -> Result<u64, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        self.difference("", |pairs, valgrind| {
            let (pairs, ballast) = (pairs.to_string(), ballast.to_string());
            valgrind
                .arg(&program)
                .args(["pairs", name, &pairs, &ballast]);
        })
    }

    /// Instructions of a pair in the preloaded library, over the simulated
    /// driver, whose own are not counted.
    pub fn hooked(&self, calls: &str, bytes: u64) -> Result<u64, String> {
        self.difference("libmemcuda.so", |pairs, valgrind| {
            let (pairs, bytes) = (pairs.to_string(), bytes.to_string());
            let driver = ["libcuda.so.1", calls, &bytes, "1", &pairs, "1"];
            valgrind
                .arg(&self.hooks)
                .args(driver)
                .env("LD_LIBRARY_PATH", self.release.join("sim"))
                // Valgrind leaves little address space.
                .env("MEMCUDA_SIM_MEMORY", "1GiB")
                .env("MEMCUDA_SIM_CLOCK", "off")
                .env("LD_PRELOAD", self.release.join("libmemcuda.so"));
        })
    }

    fn difference(&self, object: &str, program: impl Fn(u64, &mut Command)) -> Result<u64, String> {
        let run = |pairs: u64| -> Result<u64, String> {
            let out = self.scratch.path().join("callgrind.out");
            let mut valgrind = Command::new(&self.valgrind);
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("MEMCUDA_") {
                    valgrind.env_remove(name);
                }
            }
            valgrind
                .args(["--tool=callgrind", "--compress-strings=no"])
                .arg(format!("--callgrind-out-file={}", out.display()));
            program(pairs, &mut valgrind);
            let ended = valgrind.output().map_err(|error| error.to_string())?;
            if !ended.status.success() {
                let said = String::from_utf8_lossy(&ended.stderr);
                return Err(format!("callgrind failed:\n{said}"));
            }
            let text = std::fs::read_to_string(out).map_err(|error| error.to_string())?;
            instructions(&text, object)
        };
        Ok((run(MANY)? - run(FEW)?).div_ceil(MANY - FEW))
    }
}

/// Instructions of the objects whose path ends like this, by callgrind's
/// output: `ob=` names the object of the functions that follow, a line that
/// begins with a digit, `+`, `-` or `*` is a place and its cost, and the one
/// after `calls=` belongs to the function that was called.
fn instructions(output: &str, object: &str) -> Result<u64, String> {
    let (mut sum, mut counts, mut called) = (0, object.is_empty(), false);
    for line in output.lines() {
        if let Some(path) = line.strip_prefix("ob=") {
            counts = path.ends_with(object);
        } else if line.starts_with("calls=") {
            called = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            if counts && !called {
                let cost = line
                    .split(' ')
                    .nth(1)
                    .and_then(|cost| cost.parse::<u64>().ok());
                sum += cost.ok_or_else(|| format!("callgrind wrote {line:?}"))?;
            }
            called = false;
        }
    }
    match sum {
        0 => Err(format!("callgrind saw no instruction of {object:?}")),
        sum => Ok(sum),
    }
}
