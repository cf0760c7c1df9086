//! `memcuda run`.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::{code, failed, library, memcuda, run, stderr, stdout};

#[test]
fn the_status_is_the_programs() {
    for status in [0, 1, 2, 7, 255] {
        let script = format!("exit {status}");
        assert_eq!(code(&run(&["run", "--", "sh", "-c", &script])), status);
    }
}

#[test]
fn a_shell_sees_128_and_the_signal() {
    let output = run(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));
    let command = env!("CARGO_BIN_EXE_memcuda");
    let script = format!("{command} run -- sh -c 'kill -TERM $$'; echo $?");
    let shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(stdout(&shell).trim(), "143");
}

/// For those that are closed this process has /dev/null.
#[test]
fn what_is_closed_is_closed_for_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let bits = "s=0; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] || s=$((s | 1 << n)); done; exit $s";
    let trace = folder.path().join("t").display().to_string();
    for (closed, status) in [("", 0), ("<&-", 1), (">&-", 2), ("<&- >&- 2>&-", 7)] {
        for verb in [&["run"][..], &["run", "--trace", &trace]] {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("\"$@\" {closed}"), "sh"]);
            shell.arg(env!("CARGO_BIN_EXE_memcuda")).args(verb);
            let output = shell.args(["--", "sh", "-c", bits]).output().unwrap();
            assert_eq!(
                code(&output),
                status,
                "{verb:?} {closed}: {}",
                stderr(&output)
            );
        }
    }
}

#[test]
fn of_a_script_every_verb_that_starts_programs_says_how_it_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "exit\n").unwrap();
        path
    };
    let trace = folder.path().join("trace").display().to_string();
    // None of them may be run.
    for (path, interpreter) in [(script("unset.py"), "python"), (script("unset.sh"), "sh")] {
        for (verb, options) in [
            ("run", &["--trace", &trace][..]),
            ("compare", &["--profiles", "bare"]),
            ("doctor", &[]),
        ] {
            let mut command = memcuda();
            let output = command
                .arg(verb)
                .args(options)
                .arg("--")
                .arg(&path)
                .output();
            let said = stderr(&output.unwrap());
            let how = format!("by its interpreter: memcuda {verb} -- {interpreter} FILE\n");
            let start = format!("memcuda: cannot run {}: ", path.display());
            assert!(said.starts_with(&start) && said.ends_with(&how), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn a_script_that_names_no_interpreter_is_the_shells() {
    let folder = tempfile::tempdir().unwrap();
    let (written, script) = (folder.path().join("written"), folder.path().join("unnamed"));
    std::fs::write(&written, "printf '%s\\n' \"$0 $*\" >&2\n").unwrap();
    // By a process of its own: another thread's child could have what this one writes open
    // for writing when it is run.
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg(written).arg(&script).status().unwrap().success());
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let trace = folder.path().join("trace").display().to_string();
    for verb in [
        &["run"][..],
        &["run", "--trace", &trace],
        &["compare", "--repeat", "1", "--profiles", "bare"],
        &["doctor"],
    ] {
        for name in [&script, Path::new("unnamed")] {
            let mut command = memcuda();
            command.args(verb).arg("--").arg(name).args(["a", "b"]);
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{path}:{}", folder.path().display()));
            let said = stderr(&command.output().unwrap());
            let line = format!("{} a b", script.display());
            assert!(said.lines().any(|it| it == line), "{verb:?}: {said}");
        }
    }
}

#[test]
fn a_program_that_cannot_be_run_is_127_or_126() {
    let output = run(&["run", "--", "no-such-program"]);
    assert_eq!(code(&output), 127);
    assert!(stderr(&output).contains("no-such-program"));
    assert!(!stderr(&output).contains("interpreter"));
    assert_eq!(code(&run(&["run", "--", "/"])), 126);
    let script = run(&["run", "no-such.py"]);
    assert!(
        stderr(&script).contains("memcuda run -- python"),
        "{}",
        stderr(&script)
    );
}

/// As in glibc before 2.24.
const SPAWN: &str = "#define _GNU_SOURCE
#include <spawn.h>
#include <unistd.h>
int posix_spawnp(pid_t *id, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const words[], char *const environment[]) {
    *id = fork();
    if (*id == 0) {
        environ = (char **)environment;
        execvp(file, words);
        _exit(127);
    }
    return 0;
}
";

#[test]
fn where_the_system_starts_no_program_and_says_it_did_the_answer_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (spawn, trace) = (library(folder.path(), SPAWN), folder.path().join("t.zst"));
    let recorded = |program: &str| {
        let mut command = memcuda();
        let command = command.args(["run", "--trace"]).arg(&trace).arg(program);
        command.env("LD_PRELOAD", &spawn).output().unwrap()
    };
    for (program, status) in [
        ("no-such-program", 127),
        ("./no-such-program", 127),
        ("/", 126),
        ("/etc/passwd", 126),
    ] {
        let output = recorded(program);
        let said = stderr(&output);
        assert_eq!(code(&output), status, "{program}: {said}");
        let clear = said.starts_with(&format!("memcuda: cannot run {program}: "));
        assert!(clear && said.lines().count() == 1, "{said}");
    }
    assert_eq!(code(&recorded("true")), 0);
}

/// Elsewhere it is, but a trace there would stand among what the program says.
#[test]
fn a_trace_goes_neither_to_standard_output_nor_to_what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let traced = |file: &str| {
        let mut command = memcuda();
        let command = command.current_dir(&folder).args(["run", "--trace", file]);
        command.args(["--", "touch", "begun"]).output().unwrap()
    };
    failed(
        &traced("-"),
        2,
        "--trace -: standard output is the program's own",
    );
    for no_name in [".", "new/", "new/."] {
        let said = format!("--trace {no_name}: a folder; accepted: a file");
        failed(&traced(no_name), 2, &said);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let mut make = std::process::Command::new("mkfifo");
    assert!(
        make.arg(folder.path().join("pipe"))
            .status()
            .unwrap()
            .success()
    );
    for no_file in ["pipe", "/dev/full"] {
        failed(&traced(no_file), 2, "a pipe or a device; accepted: a file");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(code(&traced("./-")), 0);
}

#[test]
fn a_trace_does_not_take_the_place_of_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    for trace in ["/dev/stdout", output.to_str().unwrap()] {
        let mut command = memcuda();
        command.args(["run", "--trace", trace, "--", "echo", "said"]);
        let file = std::fs::File::create(&output).unwrap();
        failed(
            &command.stdout(file).output().unwrap(),
            2,
            "the program's output goes there; accepted: another file",
        );
    }
    // Where nobody reads that nothing is lost.
    let mut command = memcuda();
    command.args(["run", "--trace", "/dev/null", "--", "echo", "said"]);
    let nowhere = std::fs::File::options().write(true).open("/dev/null");
    assert!(command.stdout(nowhere.unwrap()).status().unwrap().success());
}

#[test]
fn a_recording_may_go_to_an_empty_file_and_not_over_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let recorded = || {
        let mut command = memcuda();
        let command = command.args(["run", "--trace"]).arg(&file).arg("true");
        command.output().unwrap()
    };
    std::fs::write(&file, "").unwrap();
    assert_eq!(code(&recorded()), 0);
    std::fs::write(&file, "a letter").unwrap();
    failed(&recorded(), 2, "--trace would overwrite what is no trace");
    assert_eq!(std::fs::read(&file).unwrap(), b"a letter");
}

#[test]
fn the_preloaded_path_is_absolute_and_the_old_value_is_kept_byte_for_byte() {
    let output = memcuda()
        .args(["run", "printenv", "LD_PRELOAD"])
        .env("LD_PRELOAD", OsStr::from_bytes(b"/nowhere/\xff.so"))
        .output()
        .unwrap();
    let line = output.stdout.strip_suffix(b"\n").unwrap();
    let (ours, rest) = line.split_at(line.iter().position(|b| *b == b':').unwrap());
    let ours = Path::new(OsStr::from_bytes(ours));
    assert!(ours.is_absolute() && ours.is_file() && ours.ends_with("libmemcuda.so"));
    assert_eq!(rest, b":/nowhere/\xff.so");
}

#[test]
fn arguments_after_the_program_are_the_programs() {
    let output = run(&["run", "echo", "--json", "-h", "--", "x"]);
    assert_eq!(stdout(&output), "--json -h -- x\n");
}

#[test]
fn a_program_without_cuda_has_the_same_environment_and_output() {
    let bare = memcuda().arg("run").arg("env").output().unwrap();
    let lines = stdout(&bare);
    let without = lines
        .lines()
        .filter(|l| !l.starts_with("LD_PRELOAD=") && !l.starts_with("_="));
    let plain = stdout(&crate::settings::command("env").output().unwrap());
    let mut with: Vec<&str> = without.collect();
    let mut plain: Vec<&str> = plain.lines().filter(|l| !l.starts_with("_=")).collect();
    with.sort_unstable();
    plain.sort_unstable();
    assert_eq!(with, plain);
    assert!(bare.stderr.is_empty(), "{}", stderr(&bare));
}
