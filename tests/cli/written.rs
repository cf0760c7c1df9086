//! Files that verbs write where a user said: whole or not at all, whatever ends the
//! command, and links and pipes stay what they are.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::snapshot::{Holder, mixed};
use crate::traces::small;
use crate::{code, done, memcuda, run, stderr};

fn bundled() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = root.join("tests/traces/detect_varsize.csv.zst");
    trace.to_str().unwrap().to_owned()
}

/// A short trace in a folder of its own.
fn short() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let trace = small(folder.path()).to_str().unwrap().to_owned();
    (folder, trace)
}

/// What is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn who_is_killed_while_it_writes_leaves_what_was_there_and_nothing_else() {
    let (holder, trace) = (Holder::start(&[], &mixed()), bundled());
    let pid = holder.pid();
    let verbs: [&[&str]; 5] = [
        &["snapshot", &pid, "-o"],
        &["snapshot", &pid, "--html", "-o"],
        &["snapshot", &pid, "--json", "-o"],
        &["explain", &trace, "--svg"],
        &["trace", &trace, "-o"],
    ];
    for verb in verbs {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "as it was").unwrap();
        // Its first bytes are written, and the next ones end it by a signal.
        let mut killed = Command::new("sh");
        killed.args(["-c", "ulimit -c 0; ulimit -f 1; exec \"$@\"", "sh"]);
        killed.arg(memcuda().get_program()).args(verb).arg(&file);
        let output = killed.output().unwrap();
        let signal = output.status.signal();
        assert_eq!(signal, Some(25), "{verb:?}: {}", stderr(&output));
        assert_eq!(names(folder.path()), ["file"], "{verb:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "as it was", "{verb:?}");
    }
}

#[test]
fn a_link_stays_a_link_and_what_it_leads_to_is_written() {
    let (folder, (_kept, trace)) = (tempfile::tempdir().unwrap(), short());
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    fs::write(&file, "as it was").unwrap();
    symlink("file", &link).unwrap();
    done(run(&["explain", &trace, "--svg", link.to_str().unwrap()]));
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&file).unwrap().starts_with("<svg"));
    assert_eq!(names(folder.path()), ["file", "link"]);
}

/// As `/dev/stdout` is one: a link to what may be a file.
#[test]
fn a_link_to_standard_output_stays_one() {
    let (folder, (_kept, trace)) = (tempfile::tempdir().unwrap(), short());
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    symlink("/proc/self/fd/1", &link).unwrap();
    let mut command = memcuda();
    command.args(["trace", &trace, "-o"]).arg(&link);
    command.stdout(File::create(&file).unwrap());
    assert!(command.status().unwrap().success());
    assert!(link.is_symlink());
    let read = run(&["explain", file.to_str().unwrap()]);
    assert_eq!(code(&read), 0, "{}", stderr(&read));
}

#[test]
fn a_pipe_is_written_as_it_is() {
    let (folder, (_kept, trace)) = (tempfile::tempdir().unwrap(), short());
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let copy = folder.path().join("copy");
    let mut reader = Command::new("cat");
    reader.arg(&pipe).stdout(File::create(&copy).unwrap());
    let mut reader = reader.spawn().unwrap();
    done(run(&["trace", &trace, "-o", pipe.to_str().unwrap()]));
    assert!(reader.wait().unwrap().success());
    let read = run(&["explain", copy.to_str().unwrap()]);
    assert_eq!(code(&read), 0, "{}", stderr(&read));
    assert_eq!(names(folder.path()), ["copy", "pipe"]);
}
