//! Files that verbs write where a user said: whole or not at all, whatever ends the
//! command, and links and pipes stay what they are.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use crate::snapshot::{Holder, for_all, mixed};
use crate::traces::small;
use crate::{bundled, code, done, failed, library, memcuda, open64, run, stderr, stdout};

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

/// Ends a process behind the first bytes that it writes to a file.
const KILL: &str = "#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int to, const void *from, size_t bytes) {
    struct stat about;
    if (to > 2 && fstat(to, &about) == 0 && S_ISREG(about.st_mode)) {
        if (about.st_size > 0) kill(getpid(), SIGKILL);
        bytes = bytes < 512 ? bytes : 512;
    }
    return syscall(SYS_write, to, from, bytes);
}
";

#[test]
fn who_is_killed_while_it_writes_leaves_what_was_there_and_nothing_else() {
    let holder = Holder::start(&[], &mixed());
    let trace = bundled("detect_varsize");
    let trace = trace.to_str().unwrap();
    let made = tempfile::tempdir().unwrap();
    let library = library(made.path(), KILL);
    let pid = holder.pid();
    let verbs: [&[&str]; 5] = [
        &["snapshot", &pid, "-o"],
        &["snapshot", &pid, "--html", "-o"],
        &["snapshot", &pid, "--json", "-o"],
        &["explain", trace, "--svg"],
        &["trace", trace, "-o"],
    ];
    for verb in verbs {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "as it was").unwrap();
        let mut killed = memcuda();
        killed.args(verb).arg(&file).env("LD_PRELOAD", &library);
        let output = killed.output().unwrap();
        let signal = output.status.signal();
        assert_eq!(signal, Some(9), "{verb:?}: {}", stderr(&output));
        assert_eq!(names(folder.path()), ["file"], "{verb:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "as it was", "{verb:?}");
        // Where no file may be longer, it says so instead.
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -c 0; ulimit -f 1; exec \"$@\"", "sh"]);
        limited.arg(memcuda().get_program()).args(verb).arg(&file);
        failed(&limited.output().unwrap(), 1, "File too large");
        assert_eq!(names(folder.path()), ["file"], "{verb:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "as it was", "{verb:?}");
    }
}

/// Programs and the keeper: these get the signal as it was before, that one as much room
/// as it may take.
#[test]
fn the_limit_of_files_is_the_programs_own_affair() {
    let blocked = |verb: &str| {
        let output = run(&[verb, "--", "grep", "SigBlk", "/proc/self/status"]);
        let said = stdout(&output) + &stderr(&output);
        assert!(said.contains("SigBlk:\t0000000000000000"), "{verb}: {said}");
    };
    blocked("run");
    blocked("doctor");
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = Command::new("sh");
    keeper.args(["-c", "ulimit -S -f 0; exec \"$@\"", "sh"]);
    let socket = folder.path().join("keeper.sock");
    keeper
        .arg(memcuda().get_program())
        .args(["keeper", "--idle", "600", "--socket"]);
    done(keeper.arg(&socket).output().unwrap());
    let mut stop = memcuda();
    done(
        stop.args(["keeper", "stop", "--force", "--socket"])
            .arg(&socket)
            .output()
            .unwrap(),
    );
}

/// As a file system that has no files without a name, such as NFS.
fn named() -> String {
    let body = "if ((flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
    return next(path, flags, mode);";
    open64("", body)
}

#[test]
fn a_new_file_is_as_open_as_any_and_one_that_was_there_as_it_was() {
    let (_kept, trace) = short();
    let made = tempfile::tempdir().unwrap();
    let library = library(made.path(), &named());
    for preloaded in ["", library.to_str().unwrap()] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let written = || {
            let mut command = Command::new("sh");
            command.args(["-c", "umask 027; exec \"$@\"", "sh"]);
            command.arg(memcuda().get_program());
            command.args(["trace", &trace, "-o"]).arg(&file);
            done(command.env("LD_PRELOAD", preloaded).output().unwrap());
            assert_eq!(names(folder.path()), ["file"]);
            fs::metadata(&file).unwrap().mode() & 0o777
        };
        assert_eq!(written(), 0o640, "{preloaded:?}");
        for mode in [0o600, 0o666] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(written(), mode, "{preloaded:?}");
        }
    }
}

/// As a file system over a network, which says at the end that there is no room: when what was
/// written is to be on the disk, or only when the file is closed.
const LATE: &str = "#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int says(const char *when, int file) {
    struct stat about;
    return strcmp(getenv(\"WHEN\"), when) == 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
           about.st_size > 0 && (fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY;
}
int fsync(int file) {
    if (says(\"none\", file)) return errno = EINVAL, -1;
    return says(\"fsync\", file) ? (errno = EDQUOT, -1) : syscall(SYS_fsync, file);
}
int close(int file) {
    int late = says(\"close\", file), closed = syscall(SYS_close, file);
    return late ? (errno = EDQUOT, -1) : closed;
}
";

#[test]
fn what_finds_no_room_at_its_end_leaves_what_was_there() {
    let (_kept, trace) = short();
    let made = [named(), LATE.to_owned()].map(|source| (tempfile::tempdir().unwrap(), source));
    let [named, late] = made
        .each_ref()
        .map(|(folder, source)| library(folder.path(), source));
    let both = format!("{}:{}", named.display(), late.display());
    for preloaded in [late.to_str().unwrap(), &both] {
        for verb in [&["trace", &trace, "-o"][..], &["explain", &trace, "--svg"]] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("file");
            fs::write(&file, "as it was").unwrap();
            let written = |when: &str| {
                let mut command = memcuda();
                command.args(verb).arg(&file);
                command.env("LD_PRELOAD", preloaded).env("WHEN", when);
                command.output().unwrap()
            };
            for when in ["fsync", "close"] {
                failed(&written(when), 1, "Disk quota exceeded");
                assert_eq!(names(folder.path()), ["file"], "{when} {verb:?}");
                assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
            }
            // There are such that cannot say so.
            let output = written("none");
            assert_eq!(code(&output), 0, "{verb:?}: {}", stderr(&output));
            assert_ne!(fs::read(&file).unwrap(), b"as it was");
        }
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

/// Whoever would read it may never come.
#[test]
fn who_waits_for_a_reader_ends_when_asked_to() {
    let (folder, (_kept, trace)) = (tempfile::tempdir().unwrap(), short());
    let pipe = folder.path().join("pipe");
    let mut make = Command::new("mkfifo");
    assert!(make.arg(&pipe).status().unwrap().success());
    for (verb, option) in [("trace", "-o"), ("explain", "--svg")] {
        let mut asked = Command::new("timeout");
        asked.args(["-k", "10", "0.5"]).arg(memcuda().get_program());
        let output = asked.args([verb, &trace, option]).arg(&pipe).output();
        assert_eq!(code(&output.unwrap()), 124, "{verb}");
    }
}

#[test]
fn what_is_read_is_not_overwritten() {
    let (folder, trace) = short();
    let recorded = folder.path().join("recorded").display().to_string();
    let holder = Holder::start(&[("MEMCUDA_TRACE", &recorded)], &mixed());
    let pid = holder.pid();
    let report = folder.path().join("report");
    fs::write(&report, "a report").unwrap();
    symlink(&report, folder.path().join("link")).unwrap();
    let [report, link] = ["report", "link"].map(|name| folder.path().join(name));
    let [report, link] = [&report, &link].map(|path| path.to_str().unwrap());
    for (verb, file) in [
        (&["explain", &trace, "--svg", &trace][..], &trace[..]),
        (&["explain", &recorded, "--svg", &recorded], &recorded),
        (&["explain", &pid, "--svg", &recorded], &recorded),
        (&["snapshot", &pid, "-o", &recorded], &recorded),
        (&["trace", &recorded, "-o", &recorded], &recorded),
        (&["snapshot", &pid, "--trace", &trace, "-o", &trace], &trace),
        (&["snapshot", report, "--html", "-o", link], report),
    ] {
        // What a process records goes on growing.
        let length = if file == recorded { 8 } else { usize::MAX };
        let look = || {
            let (bytes, about) = (fs::read(file).unwrap(), fs::metadata(file).unwrap());
            (bytes[..bytes.len().min(length)].to_vec(), about.ino())
        };
        let before = look();
        failed(&run(verb), 2, "is what is read, and would be lost");
        assert!(look() == before, "{verb:?}");
    }
}

#[test]
fn a_file_stays_closed_to_whom_it_is() {
    let (_kept, trace) = short();
    let folder = for_all();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let [own, closed] = ["own", "closed"].map(|name| folder.path().join(name));
    for file in [&own, &closed] {
        fs::write(file, "as it was").unwrap();
    }
    mode(&own, 0o600);
    done(run(&["trace", &trace, "-o", own.to_str().unwrap()]));
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o600);
    assert_ne!(fs::read(&own).unwrap(), b"as it was");
    if !rustix::process::geteuid().is_root() {
        mode(&closed, 0o400);
        let output = run(&["trace", &trace, "-o", closed.to_str().unwrap()]);
        failed(&output, 1, "Permission denied");
        assert_eq!(fs::read(&closed).unwrap(), b"as it was");
        return;
    }
    // Root may write everything; somebody else, who may put files there, not.
    mode(&closed, 0o644);
    mode(folder.path(), 0o777);
    let own = folder.path().join("trace");
    fs::copy(&trace, &own).unwrap();
    let mut stranger = Command::new(folder.path().join("memcuda"));
    stranger.arg("trace").arg(&own).arg("-o").arg(&closed);
    let output = stranger.uid(42_003).output().unwrap();
    failed(&output, 1, "Permission denied");
    assert_eq!(fs::read(&closed).unwrap(), b"as it was");
}
