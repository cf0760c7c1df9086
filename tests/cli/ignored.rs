//! Verbs that start a program where signals were ignored before them, as by `nohup`, in a
//! service of systemd's or by who wants to hear nothing of its children.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use crate::whole::{simulated, simulation};
use crate::{code, done, memcuda, run, stderr, stdout};

/// Becomes the command behind the names of signals, which alone are ignored of these.
const BEGIN: &str = "import os, signal, sys
at = sys.argv.index('--')
for name in ('SIGPIPE', 'SIGXFSZ', 'SIGCHLD', 'SIGHUP', 'SIGINT'):
    ignored = name in sys.argv[1:at]
    signal.signal(getattr(signal, name), signal.SIG_IGN if ignored else signal.SIG_DFL)
os.execvp(sys.argv[at + 1], sys.argv[at + 1:])
";

/// A command that is begun with these ignored.
pub fn begun(ignored: &[&str], command: &Command) -> Command {
    let mut begun = Command::new("python3");
    begun.args(["-c", BEGIN]).args(ignored).arg("--");
    begun.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => begun.env(name, value),
            None => begun.env_remove(name),
        };
    }
    begun.env("LD_LIBRARY_PATH", simulation());
    begun
}

/// What a program that shows it says of the signals that it ignores.
fn shown(output: &Output) -> String {
    let said = stdout(output) + &stderr(output);
    let line = said.lines().find(|line| line.starts_with("SigIgn:"));
    line.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn a_program_ignores_what_it_would_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.zst").display().to_string();
    let mut seen = Vec::new();
    for ignored in [&[][..], &["SIGPIPE"], &["SIGHUP", "SIGINT"]] {
        let show = ["grep", "SigIgn", "/proc/self/status"];
        let mut bare = Command::new(show[0]);
        bare.args(&show[1..]);
        let bare = shown(&begun(ignored, &bare).output().unwrap());
        for verb in [
            &["run"][..],
            &["run", "--trace", &trace],
            &["compare", "--repeat", "1", "--profiles", "bare"],
            &["doctor"],
        ] {
            let mut command = memcuda();
            command.args(verb).arg("--").args(show);
            // Some verbs begin anew without it.
            command.env("LD_PRELOAD", simulation().join("../libmemcuda.so"));
            let output = begun(ignored, &command).output().unwrap();
            assert_eq!(shown(&output), bare, "{verb:?} after {ignored:?}");
        }
        seen.push(bare);
    }
    assert_eq!(seen.iter().filter(|it| **it == seen[0]).count(), 1);
}

/// As in the terminal that is closed.
#[test]
fn a_comparison_that_was_told_to_ignore_hangups_goes_on_after_one() {
    let mut command = memcuda();
    command.args(["compare", "--repeat", "1", "--profiles", "bare,keep"]);
    command.args(["--", "sh", "-c", "kill -HUP $PPID; sleep 0.5"]);
    let output = begun(&["SIGHUP"], &command).output().unwrap();
    let table = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        table.lines().any(|line| line.starts_with("keep ")),
        "{table}"
    );
    let ended = begun(&[], &command).output().unwrap();
    let signal = ended.status.signal();
    assert_eq!(signal, Some(libc::SIGHUP), "{}", stderr(&ended));
}

#[test]
fn who_started_the_verb_may_want_to_hear_nothing_of_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.zst").display().to_string();
    let begun = |verb: &[&str]| {
        let output = begun(&["SIGCHLD"], &simulated(verb)).output().unwrap();
        assert_eq!(code(&output), 0, "{verb:?}: {}", stderr(&output));
        stdout(&output)
    };
    begun(&["run", "--trace", &trace, "--"]);
    let recorded = done(run(&["trace", &trace, "-o", "-"]));
    assert!(recorded.contains(",alloc,"), "{recorded}");
    let found = begun(&["doctor", "--json", "--"]);
    assert!(found.contains("ended with exit status: 0"), "{found}");
    let table = begun(&["compare", "--repeat", "1", "--profiles", "bare,keep", "--"]);
    assert!(
        table.lines().any(|line| line.starts_with("keep ")),
        "{table}"
    );
}
