//! Stacks of Python, of a real interpreter: with its lock and without. It must be
//! there; one of a version that is not known is to be told so.

use std::process::Command;

use super::*;

/// Does the recording know this interpreter? Asked of itself.
fn is_known() -> bool {
    let script = "import sys; free = 'free-threading' in sys.version; \
                  print(sys.implementation.name == 'cpython' and (3, 11) <= sys.version_info < (3, 14) and not free)";
    let output = support::run(Command::new("python3").args(["-c", script]));
    String::from_utf8(output.stdout).unwrap().trim() == "True"
}

/// Runs a case; what it printed, what was said, and the columns of its
/// allocations.
fn stacks(case: &str) -> (Vec<String>, String, Vec<Vec<String>>) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t");
    let mut command = support::preloaded("python3", &[support::shim()]);
    command.arg(support::source("stacks.py")).arg(case);
    command.env("PYTHONIOENCODING", "utf-8");
    command.env("MEMCUDA_TRACE", &trace);
    command.env("MEMCUDA_TRACE_STACKS", "python");
    let output = support::run(&mut command);
    let printed = String::from_utf8(output.stdout).unwrap();
    let (lines, lacks) = read(&trace);
    assert_eq!(lacks, "");
    let allocs = lines.iter().map(|line| columns(line));
    let allocs = allocs.filter(|line| line[1] == "alloc");
    (
        printed.lines().map(str::to_owned).collect(),
        String::from_utf8(output.stderr).unwrap(),
        allocs
            .map(|line| line.into_iter().map(str::to_owned).collect())
            .collect(),
    )
}

/// A stack as the script prints it: without the files, where they are its own.
fn brief(stack: &str) -> String {
    let script = format!("{}:", support::source("stacks.py").display());
    stack.replace(&script, "").replace(';', " ")
}

#[test]
fn functions_of_python_are_recorded_with_and_without_the_lock() {
    let (expected, said, allocs) = stacks("cases");
    assert_eq!((expected.len(), allocs.len()), (14, 14));
    if !is_known() {
        assert!(said.contains("no CPython 3.11 to 3.13"), "{said}");
        let c = |line: &Vec<String>| line[11].contains("ffi");
        assert!(allocs.iter().any(c), "{allocs:?}");
        return;
    }
    assert_eq!(said, "");
    for (expected, line) in expected.iter().zip(&allocs) {
        // Code of `exec` and of the standard library have other files.
        let all: Vec<&str> = line[11].split(';').collect();
        let found = brief(&line[11]);
        let found: Vec<&str> = found.split(' ').collect();
        let expected: Vec<&str> = expected.split(' ').collect();
        assert_eq!(found.len(), expected.len(), "{all:?} {expected:?}");
        for (found, expected) in found.iter().zip(&expected) {
            let bare = found.rsplit_once(':').map_or(*found, |(_, bare)| bare);
            assert_eq!(bare, *expected, "{all:?}");
        }
        // Who asks for it in C: what is nearest and not CUDA's.
        assert!(line[9].contains("ffi"), "{line:?}");
    }
    let text = |at: usize| brief(&allocs[at][11]);
    assert!(text(1).contains("!größe") && text(0).contains("!Net.forward"));
    assert_eq!(text(4).matches("!recursive").count(), 31);
    assert!(
        allocs[5][11].contains("<string>:1!<module>"),
        "{}",
        allocs[5][11]
    );
}

#[test]
fn threads_without_the_lock_are_read_while_others_run() {
    let (_, _, allocs) = stacks("busy");
    assert_eq!(allocs.len(), 3 * 300);
    if !is_known() {
        return;
    }
    for line in &allocs {
        let stack = &line[11];
        let number = stack.split(";<string>:1!f").nth(1);
        let number = number.and_then(|rest| rest.split(';').next()?.parse::<u32>().ok());
        assert!(number.is_some_and(|number| number < 300), "{stack}");
        assert!(stack.contains("!busy.<locals>.ask;"), "{stack}");
    }
}

#[test]
fn code_is_not_taken_for_what_lay_there_before() {
    let (_, _, allocs) = stacks("cells");
    assert_eq!(allocs.len(), 8);
    if !is_known() {
        return;
    }
    for (number, line) in allocs.iter().enumerate() {
        assert_eq!(line[3], ((number + 1) << 20).to_string());
        let cell = format!(";<cell-{number}>:1!<module>;");
        assert!(line[11].contains(&cell), "{cell} {}", line[11]);
    }
}
