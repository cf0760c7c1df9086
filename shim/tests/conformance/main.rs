//! What programs can ask the driver about memory (`tests/conformance`): the
//! simulated GPU answers as the real driver did, and the library over it does,
//! but for what docs/differences.md lists.

#[path = "../support/keeper.rs"]
mod keeper;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use keeper::Keeper;
use support::{preloaded, run, said, scratch, shim};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn part(name: &str) -> PathBuf {
    root().join("tests/conformance").join(name)
}

/// The program, and what its `--list` says, built once.
fn program() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = scratch().join("conformance");
        run(Command::new(part("build.sh")).arg(&program));
        let list = scratch().join("list");
        let (names, _) = said(Command::new(&program).arg("--list"));
        std::fs::write(&list, names).unwrap();
        (program, list)
    })
}

/// The program over two simulated GPUs, for the cases that those model.
fn cases(libraries: &[PathBuf]) -> Command {
    let (program, _) = program();
    let mut command = preloaded(program, libraries);
    command.args(["--flag", "SIM"]);
    command.env("MEMCUDA_SIM_DEVICES", "2");
    command
}

/// The golden files: at least one.
fn golden() -> Vec<PathBuf> {
    let files = std::fs::read_dir(part("golden")).expect("a golden file of a real GPU");
    let files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty(), "no golden file of a real GPU");
    files
}

/// Compares an output with a golden file.
fn compared(name: &str, output: &str, golden: &Path, differences: Option<&Path>) -> Output {
    let (_, list) = program();
    let file = scratch().join(format!("{name}.txt"));
    std::fs::write(&file, output).unwrap();
    let mut command = Command::new(part("compare.py"));
    command.args(["--flag", "SIM", "--list"]).arg(list);
    command.arg("--golden").arg(golden);
    command.arg("--output").arg(file);
    if let Some(differences) = differences {
        command.arg("--differences").arg(differences);
    }
    command.output().unwrap()
}

#[track_caller]
fn agrees(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaint}");
}

#[test]
fn the_simulated_gpu_answers_as_the_real_driver() {
    let (output, _) = said(&mut cases(&[]));
    for golden in golden() {
        agrees(&compared("bare", &output, &golden, None));
    }
}

#[test]
fn pooled_memory_answers_as_the_drivers_own() {
    let mut keeper = Keeper::none();
    keeper.start();
    let mut cases = cases(&[shim()]);
    let (output, _) = said(cases.env("MEMCUDA_KEEPER", keeper.socket()));
    let differences = root().join("docs/differences.md");
    for golden in golden() {
        agrees(&compared("pool", &output, &golden, Some(&differences)));
    }
}

#[test]
fn there_are_as_many_cases_as_were_asked_for() {
    let (_, list) = program();
    let list = std::fs::read_to_string(list).unwrap();
    let simulated = list.lines().filter(|line| line.contains(" SIM")).count();
    assert!(list.lines().count() >= 150, "{}", list.lines().count());
    assert!(simulated >= 100, "{simulated}");
}

#[test]
fn another_answer_is_found() {
    let (_, list) = program();
    let names = std::fs::read_to_string(list).unwrap();
    let named = names.lines().filter(|line| line.contains(" SIM"));
    let all = |text: &str| -> String {
        let line = |line: &str| format!("{}: {text}\n", line.split(' ').next().unwrap());
        named.clone().map(line).collect()
    };
    let golden = scratch().join("planted-golden.txt");
    std::fs::write(&golden, format!("# planted\n{}", all("as ever"))).unwrap();
    let first = names.lines().next().unwrap().split(' ').next().unwrap();
    let book = |rows: &str| {
        let path = scratch().join("planted-differences.md");
        let text = format!("## Answers of the driver\n| a | b | c |\n|---|---|---|\n{rows}");
        std::fs::write(&path, text).unwrap();
        path
    };
    let code = |output: String, differences: Option<&Path>| {
        let output = compared("planted", &output, &golden, differences);
        let last = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), last)
    };
    let same = all("as ever");
    let changed = same.replacen("as ever", "otherwise", 1);
    let without_first = same.split_once('\n').unwrap().1.to_owned();
    let row = format!("| `{first}` | as ever | otherwise |\n");
    let stale = format!("| `{first}` | as never | otherwise |\n");

    assert_eq!(code(same.clone(), None).0, 0);
    assert_eq!(code(changed.clone(), None).0, 1);
    assert_eq!(code(without_first, None).0, 1);
    assert_eq!(code(format!("{same}new_case: as ever\n"), None).0, 1);
    assert_eq!(code(changed.clone(), Some(&book(&row))).0, 0);
    // Listed, but it does not occur; not what was listed; of another golden line.
    assert_eq!(code(same.clone(), Some(&book(&row))).0, 1);
    let other = same.replacen("as ever", "thirdly", 1);
    assert_eq!(code(other, Some(&book(&row))).0, 1);
    assert_eq!(code(changed, Some(&book(&stale))).0, 1);
    let gone = book("| `no_such_case` | a | b |\n");
    assert!(code(same, Some(&gone)).1.contains("no case any more"));
}

#[test]
fn a_case_that_fails_says_so_and_harms_no_other() {
    let mut pitches = cases(&[]);
    pitches.args(["--only", "pitch"]);
    let (whole, _) = said(&mut pitches);
    let (failed, _) = said(pitches.env("MEMCUDA_SIM_FAIL", "cuMemAllocPitch@1=999"));
    assert!(failed.contains("NOT REACHED"), "{failed}");
    assert!(!whole.contains("NOT REACHED"), "{whole}");
    let both = failed.lines().zip(whole.lines());
    assert!(both.clone().any(|(a, b)| a == b) && both.clone().any(|(a, b)| a != b));

    // Where nothing can be asked at all.
    let mut zero = cases(&[]);
    zero.args(["--only", "allocation_zero"]);
    let (out, _) = said(zero.env("MEMCUDA_SIM_DEVICES", "none"));
    assert!(
        out.contains("allocation_zero: NOT REACHED: cuInit(0)"),
        "{out}"
    );
}

#[test]
fn a_mark_that_the_driver_refuses_is_none() {
    let mut marks = cases(&[shim()]);
    marks.args(["--only", "memops_two"]);
    let (out, _) = said(marks.env("MEMCUDA_SIM_FAIL", "cuCtxSetFlags@1=999"));
    let expected = "set: 999 UNKNOWN; set another: 0 SUCCESS; clear the first: 0 SUCCESS; \
                    the first: false; the other: true";
    assert!(out.contains(expected), "{out}");
}

#[test]
fn a_pool_that_cannot_be_opened_leaves_the_capture_as_it_is() {
    let mut captured = cases(&[shim()]);
    captured.args(["--only", "peers_captures_up"]);
    // The fifth: each device's pool learns what can be opened, and its memory is another one;
    // the capture's is the next.
    let (out, log) = said(captured.env("MEMCUDA_SIM_FAIL", "cuMemSetAccess@5=801"));
    let refused = "global: 1 INVALID_VALUE, capturing 0 SUCCESS 1, end 0 SUCCESS, graph yes";
    assert!(out.contains(refused), "{out}");
    assert!(out.contains("thread: 0 SUCCESS, capturing 0"), "{out}");
    assert!(log.contains("gets no access to the pooled memory"), "{log}");
}
