//! A program that closes what it does not know, as daemons do, has those numbers to itself:
//! nothing of the library's is read, written, made longer or closed under them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{of, read, support};

/// The program, recording, with its log in a file.
fn closing(folder: &Path, what: &str) -> Command {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let program = MADE.get_or_init(|| support::program("closing.c", "closing"));
    let mut command = support::preloaded(program, &[support::shim()]);
    command.arg(what).env("MEMCUDA_TRACE", folder.join("t"));
    command
}

/// Runs it with data of its own, which stay as they are; what it says.
fn with_data(folder: &Path, what: &str, log: Option<&Path>) -> String {
    let data = folder.join("data");
    let mut command = closing(folder, what);
    if let Some(log) = log {
        command.env("MEMCUDA_LOG", "debug");
        command.env("MEMCUDA_LOG_FILE", log);
    }
    let (_, said) = support::said(command.arg(&data));
    let bytes = fs::read(data).unwrap();
    assert_eq!(bytes.len(), 1 << 18);
    assert!(bytes.iter().all(|&byte| byte == b'x'));
    said
}

#[test]
fn a_recording_whose_file_the_program_closed_keeps_what_it_had_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let said = with_data(folder.path(), "file", None);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the program has closed the file"), "{said}");
    let (lines, said) = read(&folder.path().join("t"));
    assert!(said.contains(" events are missing"), "{said}");
    assert!(of(&lines, "alloc") > 40_000, "{}", lines.len());
}

#[test]
fn a_closed_bell_neither_rings_nor_hears() {
    let folder = tempfile::tempdir().unwrap();
    support::said(&mut closing(folder.path(), "pipe"));
}

#[test]
fn a_forked_child_keeps_the_programs_files_open() {
    let folder = tempfile::tempdir().unwrap();
    with_data(folder.path(), "fork", None);
}

#[test]
fn once_the_log_is_closed_lines_go_to_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let said = with_data(folder.path(), "log", Some(&log));
    // That the recording's file is closed as well may be said before.
    let mut lines = said.lines();
    assert!(
        lines.any(|line| line.starts_with("memcuda: debug: ")),
        "{said}"
    );
    assert!(fs::read_to_string(log).unwrap().contains("info: started"));
}

#[test]
fn nothing_of_the_librarys_has_a_number_that_programs_write_to_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = closing(folder.path(), "first");
    support::run(command.env("MEMCUDA_LOG_FILE", folder.path().join("log")));
}
