//! Random calls (`tests/differential`), right ones and wrong ones, are answered with the library
//! as the simulated GPU alone answers them. `MEMCUDA_DIFFERENTIAL_SEEDS` asks for more programs.

#[path = "../support/keeper.rs"]
mod keeper;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use keeper::Keeper;
use support::{run, scratch, shim, simulator};

fn part(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join("tests/differential").join(name)
}

/// The program, built once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = scratch().join("differential");
        run(Command::new(part("build.sh")).arg(&program));
        program
    })
}

/// Programs of that many seeds, with these arguments and, where one is told, that keeper.
fn differs(seeds: u32, arguments: &[&str], keeper: Option<&Keeper>) -> Output {
    let seeds = match std::env::var("MEMCUDA_DIFFERENTIAL_SEEDS") {
        Ok(text) => text.parse().expect("a number of seeds"),
        Err(_) => seeds,
    };
    let mut command = Command::new(part("differ.py"));
    command.arg(program()).arg(shim()).args(arguments);
    command.arg("--seeds").arg(format!("1:{seeds}"));
    command.env("LD_LIBRARY_PATH", simulator());
    command.envs(keeper.map(|keeper| ("MEMCUDA_KEEPER", keeper.socket())));
    command.output().unwrap()
}

#[track_caller]
fn same(seeds: u32, arguments: &[&str], keeper: Option<&Keeper>) {
    let output = differs(seeds, arguments, keeper);
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "{text}{complaint}");
}

#[test]
fn whatever_is_called_the_answers_are_the_drivers() {
    same(40, &[], None);
}

#[test]
fn they_are_where_memory_is_short() {
    same(25, &["--small"], None);
}

#[test]
fn they_are_of_handles_of_cuda_ipc() {
    let mut keeper = Keeper::none();
    keeper.start();
    same(15, &["ipc", "--calls", "700"], Some(&keeper));
}

#[test]
fn the_simulated_gpu_answers_as_a_real_one_did() {
    let mut command = Command::new(part("recorded.py"));
    command.arg(program()).env("LD_LIBRARY_PATH", simulator());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaint}");
    assert!(text.ends_with(" programs, 0 differ\n"), "{text}");
}

/// The comparison itself: another device has other bytes in all.
#[test]
fn an_answer_that_differs_is_shown_with_the_fewest_calls() {
    let output = differs(3, &["--set", "MEMCUDA_SIM_MEMORY=3GiB"], None);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let shown: Vec<_> = text.lines().filter(|line| line.starts_with('+')).collect();
    assert!(shown[0].contains("info=0 3221225472 fits"), "{text}");
    assert!(text.contains("only="), "{text}");
}
