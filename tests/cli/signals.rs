//! Verbs that start a program and wait for it, and are asked to end: the program has
//! the signal, whatever it is, and the verb cleans up behind it.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::ignored::begun;
use crate::whole::simulation;
use crate::{code, library, memcuda, open64, stderr, stdout, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// The program says its number in a file, and is no shell, which would unblock signals.
const PROGRAM: &str = "import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open(sys.argv[1] + '.new', 'w') as out:
    print(os.getpid(), file=out)
os.rename(sys.argv[1] + '.new', sys.argv[1])
time.sleep(60)
";

/// Runs a verb, and sends a signal once its program runs.
fn interrupted(folder: &Path, verb: &[&str], send: impl Fn(&Child)) -> Output {
    let (said, temporary) = (folder.join("pid"), folder.join("tmp"));
    fs::create_dir(&temporary).unwrap();
    let mut command: Command = memcuda();
    command
        .args(verb)
        .args(["--", "python3", "-c", PROGRAM])
        .arg(&said)
        .env("TMPDIR", &temporary);
    // Who runs the tests in the background is told to ignore SIGINT.
    let mut command = begun(&[], &command);
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    until("the program runs", || said.exists());
    send(&child);
    let ended = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < ended {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whatever is left must not outlive the test.
    let hangs = child.try_wait().unwrap().is_none();
    let program = fs::read_to_string(&said).unwrap();
    let alone = Path::new(&format!("/proc/{}", program.trim())).exists();
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let output = child.wait_with_output().unwrap();
    assert!(!hangs, "{verb:?} goes on");
    assert!(!alone, "{verb:?}: the program goes on alone");
    let left = fs::read_dir(temporary).unwrap().count();
    assert_eq!(left, 0, "{verb:?}: temporary files are left");
    output
}

/// The signal by which it ended.
fn ended_by(output: &Output) -> Option<Signal> {
    output.status.signal().and_then(Signal::from_named_raw)
}

fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
}

/// As a terminal does, but for who is said to have sent it.
fn interrupt_all(child: &Child) {
    kill_process_group(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn compare_stops_and_leaves_nothing() {
    for (send, signal) in [
        (terminate as fn(&Child), Signal::TERM),
        (interrupt_all, Signal::INT),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = interrupted(folder.path(), &["compare"], send);
        assert_eq!(ended_by(&output), Some(signal), "{}", stderr(&output));
    }
}

#[test]
fn doctor_tells_what_it_saw_until_then() {
    for (send, signal) in [
        (terminate as fn(&Child), "signal: 15"),
        (interrupt_all, "signal: 2"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = interrupted(folder.path(), &["doctor"], send);
        let text = stdout(&output);
        let ended = text.lines().find(|line| line.contains("ended with"));
        let ended = ended.unwrap_or_else(|| panic!("{text}{}", stderr(&output)));
        assert!(ended.contains(signal), "{ended}");
    }
}

#[test]
fn a_program_that_is_recorded_ends_by_the_signal() {
    for (send, signal) in [
        (terminate as fn(&Child), Signal::TERM),
        (interrupt_all, Signal::INT),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("t.zst");
        let verb = ["run", "--trace", trace.to_str().unwrap()];
        let output = interrupted(folder.path(), &verb, send);
        assert_eq!(ended_by(&output), Some(signal), "{}", stderr(&output));
    }
}

/// Also by one that the verb has a handler for, or ignores.
#[test]
fn whatever_ends_a_program_that_is_recorded_ends_the_verb() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [
        Signal::KILL,
        Signal::SEGV,
        Signal::QUIT,
        Signal::PIPE,
        Signal::XFSZ,
    ] {
        let mut verb = memcuda();
        verb.args(["run", "--trace"])
            .arg(folder.path().join("t.zst"));
        // Whoever starts these tests in the background may ignore some of them.
        let script = "import os, signal, sys; which = int(sys.argv[1])\n\
                      which == 9 or signal.signal(which, signal.SIG_DFL)\n\
                      os.kill(os.getpid(), which)";
        let which = signal.as_raw().to_string();
        let output = verb.args(["--", "python3", "-c", script, &which]);
        let output = output.output().unwrap();
        assert_eq!(ended_by(&output), Some(signal), "{}", stderr(&output));
        assert!(!output.status.core_dumped());
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

/// It asks for its end at once, by way of who started it.
const HASTY: &str = "#include <signal.h>
#include <unistd.h>
int main(void) {
    kill(getppid(), SIGTERM);
    sleep(60);
    return 1;
}
";

#[test]
fn a_program_has_the_signals_that_come_while_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("hasty.c"), folder.path().join("hasty"));
    fs::write(&source, HASTY).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());
    for _ in 0..50 {
        let mut verb = memcuda();
        verb.args(["run", "--trace"])
            .arg(folder.path().join("t.zst"));
        let output = verb.arg(&program).output().unwrap();
        assert_eq!(ended_by(&output), Some(Signal::TERM));
        // It is not before it could pass the signal on.
        assert!(stderr(&output).contains("nothing was recorded"));
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

/// Somebody wants the verb to end as soon as it has made a temporary file or folder.
fn prompt() -> String {
    open64(
        "#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
static int made(const char *path, int result) {
    if (result >= 0 && (strstr(path, \".recording-\") || strstr(path, \"/memcuda-\")))
        kill(getpid(), SIGTERM);
    return result;
}
int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, \"mkdir\");
    return made(path, real(path, mode));
}",
        "int file = next(path, flags, mode);
    return flags & O_EXCL ? made(path, file) : file;",
    )
}

#[test]
fn a_signal_before_the_program_starts_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = library(folder.path(), &prompt());
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let trace = temporary.join("t.zst");
    let record = ["run", "--trace", trace.to_str().unwrap()];
    for (verb, is_ended) in [
        (&record[..], true),
        (&["compare"], true),
        (&["doctor"], false),
    ] {
        let output = memcuda()
            .args(verb)
            .args(["--", "sleep", "60"])
            .env("LD_LIBRARY_PATH", simulation())
            .env("LD_PRELOAD", &prompt)
            .env("TMPDIR", &temporary)
            .output()
            .unwrap();
        let said = stdout(&output) + &stderr(&output);
        let signal = is_ended.then_some(Signal::TERM);
        assert_eq!(ended_by(&output), signal, "{verb:?}: {said}");
        assert!(
            is_ended || code(&output) == 0 && said.contains("signal: 15"),
            "{said}"
        );
        let left = fs::read_dir(&temporary).unwrap().count();
        assert_eq!(left, 0, "{verb:?}: temporary files are left");
    }
}
