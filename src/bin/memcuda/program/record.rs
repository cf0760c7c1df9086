//! `memcuda run --trace`: starts the program, with every process of it recording
//! itself, passes signals on, and turns the recordings into traces at the end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result};
use memcuda::driver::children;
use memcuda::error::Error;
use memcuda::frames::{MAGIC, path_of};
use rustix::fs::FlockOperation;

use crate::output::{say, times};
use crate::program::child::{Program, Signals, Streams};
use crate::verbs::trace;
use crate::whole;

/// Runs a command to its end and writes what it recorded to `file`: with the
/// process id behind it where there is more than one recording, or in the place of
/// `%p`. Ends as the program did; the inner error is that it cannot be run.
pub fn run(command: &mut Command, file: &Path) -> Result<std::io::Result<ExitCode>> {
    check(file)?;
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut prefix = file.file_name().unwrap_or_default().to_owned();
    prefix.push(".recording-");
    children::can_be_waited_for();
    let signals = Signals::hold()?;
    let recordings = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(folder)
        .map_err(whole::alone)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    let inside = recordings.path().canonicalize()?;
    // With a slash at its end: a folder, in which each takes a name that is free.
    command.env("MEMCUDA_TRACE", inside.join(""));
    let mut program = match Program::start(command, Streams::Same, &signals) {
        Ok(program) => program,
        Err(error) => return Ok(Err(error)),
    };
    let status = program.wait();
    // What is recorded goes only once it is written elsewhere, whatever ends this process.
    let recordings = recordings.keep();
    write(&inside, file);
    // Not while anything is in it.
    let _ = fs::remove_dir(recordings);
    Ok(Ok(code(status?)))
}

/// Is a trace to be put there at all? Before the program runs, which may take long.
fn check(file: &Path) -> Result<()> {
    let refused = |why: &str| Error::new(format!("--trace {}: {why}", file.display()));
    if file.as_os_str() == "-" {
        let why = "standard output is the program's own; accepted: a file, such as ./-";
        return Err(refused(why).into());
    }
    // Of what ends in a slash no file can be made.
    let name = file.file_name().unwrap_or_default();
    let is_name = file.as_os_str().as_bytes().ends_with(name.as_bytes());
    if file.is_dir() || !is_name {
        return Err(refused("a folder; accepted: a file").into());
    }
    // A pipe is waited for when the program has ended, a device may take nothing then.
    let nowhere = whole::is_one_of(file, [Path::new("/dev/null")]);
    if file.exists() && !file.is_file() && !nowhere {
        return Err(refused("a pipe or a device; accepted: a file").into());
    }
    // What the program says would be lost with the file in whose place the trace is put.
    let outputs = ["/proc/self/fd/1", "/proc/self/fd/2"].map(Path::new);
    if file.is_file() && whole::is_one_of(file, outputs) {
        return Err(refused("the program's output goes there; accepted: another file").into());
    }
    if std::fs::metadata(file).is_ok_and(|it| it.is_file() && it.len() > 0) {
        // It is written anew: not what is no trace.
        let opened = trace::open(file).map_err(|error| Error::of_file(file, error));
        opened.context("--trace would overwrite what is no trace")?;
    }
    Ok(())
}

/// Ends as the program did; returns where that was no signal.
fn code(status: ExitStatus) -> ExitCode {
    match status.signal() {
        Some(signal) => ExitCode::from(children::end_by(signal)),
        None => ExitCode::from(status.code().unwrap_or(1) as u8),
    }
}

/// Turns recordings into traces, and removes them one by one: what cannot be written stays
/// as it is, and so do all where they cannot be listed.
fn write(folder: &Path, file: &Path) {
    let mut found = match list(folder) {
        Ok(found) => found,
        Err(error) => {
            let there = folder.display();
            say(format_args!(
                "the recordings cannot be listed: {error}; they are in {there}"
            ));
            return;
        }
    };
    // Where there was no room for its beginning, the process has said so.
    keep(&mut found, has_begun);
    found.sort();
    let idle = |path: &Path| trace::open(path).is_ok_and(|mut trace| trace.next().is_none());
    if !found.iter().all(|path| idle(path)) {
        // Who started CUDA and asked for nothing is of no interest then.
        keep(&mut found, |path| !idle(path));
    }
    if found.is_empty() {
        say("nothing was recorded: no process started CUDA, or none could record");
    }
    let several = found.len() > 1;
    for path in found {
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        let to = name(file, &own, several);
        if is_recording(&path) {
            let pid = own.split('.').next().unwrap_or_default();
            say(format_args!(
                "process {pid} still runs: the trace ends here"
            ));
        }
        match trace::convert(&path, &to) {
            Ok((events, shortfall)) => {
                let events = times(events, "event", "events");
                say(format_args!("{events} in {}", to.display()));
                trace::say(&to, shortfall);
                let _ = fs::remove_file(&path);
            }
            Err(error) => {
                let mut kept = to.into_os_string();
                kept.push(".recording");
                let kept = PathBuf::from(kept);
                let there = match fs::rename(&path, &kept) {
                    Ok(()) => kept,
                    Err(_) => path,
                };
                let there = there.display();
                say(format_args!(
                    "{error:#}; the recording is not compressed, it is in {there}"
                ));
            }
        }
    }
}

/// All that is in a folder.
fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Removes those of which there is nothing to be kept.
fn keep(found: &mut Vec<PathBuf>, is_kept: impl Fn(&Path) -> bool) {
    for path in found.extract_if(.., |path| !is_kept(path)) {
        let _ = fs::remove_file(path);
    }
}

/// Did its process get so far as to record? What cannot be read may be a recording.
fn has_begun(path: &Path) -> bool {
    let mut first = [0; 8];
    match File::open(path).and_then(|mut file| file.read_exact(&mut first)) {
        Ok(()) => u64::from_le_bytes(first) == MAGIC,
        Err(error) => error.kind() != ErrorKind::UnexpectedEof,
    }
}

/// Where the trace of a recording goes that is called `own`: a process id, and a number where
/// several have that.
fn name(file: &Path, own: &str, several: bool) -> PathBuf {
    let asked = Path::new(file.file_name().unwrap_or_default());
    let mut name = OsString::from(path_of(asked, own));
    if several && name == asked {
        name.push(format!(".{own}"));
    }
    file.with_file_name(name)
}

/// Does its process still record?
fn is_recording(path: &Path) -> bool {
    let file = File::open(path);
    file.is_ok_and(|file| {
        let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        free == Err(rustix::io::Errno::WOULDBLOCK)
    })
}
