//! The kill storm of `tests/gpu/storm.py`, shortened, over the simulated GPU.
//! Needs libmemcuda.so and the simulated libraries beside the command.

use std::path::Path;
use std::process::Command;

#[test]
fn nothing_is_left_of_the_killed_and_the_others_keep_what_they_had() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let release = Path::new(env!("CARGO_BIN_EXE_memcuda")).parent().unwrap();
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storm.jsonl");
    let output = Command::new("python3")
        .arg("-B")
        .arg(root.join("tests/gpu/storm.py"))
        .args(["--kills", "60", "--keeper-kills", "6", "--deaths", "20"])
        // How soon is measured on a GPU's host; others have this one's processors, too.
        .args(["--within", "5000"])
        .args(["--workers", "4", "--life", "0.3", "--bytes", "65536"])
        .arg("--release")
        .arg(release)
        .arg("--simulated")
        .arg(release.join("sim"))
        .arg("--results")
        .arg(results)
        .output()
        .expect("python3 is needed");
    let out = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}{log}");
    println!("{out}");
}
