//! The tests of the Python scripts that need neither a GPU nor the library: how the
//! benchmarks' results are merged, what is drawn of them, what the documents say.

use std::path::Path;
use std::process::Command;

/// Runs every `test_*.py` of the folder, of which there are at least `least` tests.
fn unittest(folder: &str, least: u32) {
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "--verbose", "-s"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .env("MEMCUDA_COMMAND", env!("CARGO_BIN_EXE_memcuda"))
        .output()
        .expect("python3 is needed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran "));
    let ran = ran.and_then(|it| it.split(' ').next()?.parse::<u32>().ok());
    assert!(ran.unwrap() >= least && !said.contains("skipped"), "{said}");
}

#[test]
fn the_gpu_benchmarks_run_and_merge_as_said() {
    unittest("benches/gpu/tests", 50);
}

#[test]
fn two_builds_are_compared_and_replays_shown_as_said() {
    unittest("benches/tests", 6);
}

#[test]
fn charts_show_what_was_measured() {
    unittest("docs/charts/tests", 30);
}

#[test]
fn the_documents_lead_somewhere_and_say_what_is_there() {
    unittest("tests/documents", 13);
}

#[test]
fn programs_that_tests_need_are_found_unpacked_or_installed() {
    unittest("tests/support", 4);
}
