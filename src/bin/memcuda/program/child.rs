//! A program that a verb starts and waits for. The program has every signal that the
//! verb has, and the verb ends behind it: nothing goes on alone, no temporary file
//! stays, and what was seen until then can be told.
//!
//! A verb holds the signals before it makes a temporary file, and lets them go behind it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use memcuda::driver::ignored::{closed, was_ignored};
use nix::libc::SI_KERNEL;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitOptions, kill_process, pidfd_open, waitpid};

use crate::file_limit;

/// Signals by which somebody wants it to end.
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
];

/// How often an old kernel, which cannot tell of the end, is asked.
const PAUSE: Duration = Duration::from_millis(20);

/// Who runs a script that names no interpreter.
const SHELL: &CStr = c"/bin/sh";

/// Where a program reads and writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Where the verb does.
    Same,
    /// It has no input, and what it says is on standard error: standard output is the
    /// verb's own.
    Beside,
}

/// Signals that wait to be read and end nobody, as long as it lives.
pub struct Signals {
    waiting: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Holds them from now on.
    pub fn hold() -> io::Result<Self> {
        let mut signals: SigSet = ENDING.into_iter().collect();
        signals.add(Signal::SIGUSR1);
        signals.add(Signal::SIGUSR2);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            waiting: SignalFd::with_flags(&signals, flags)?,
            before: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?,
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// A program that was started.
pub struct Program<'a> {
    id: Pid,
    status: Option<ExitStatus>,
    signals: &'a SignalFd,
    asked: Option<Signal>,
}

impl<'a> Program<'a> {
    /// Starts what a command says of program, arguments and environment. It has the signals
    /// that are held, and in it those are blocked that were before.
    pub fn start(command: &Command, streams: Streams, signals: &'a Signals) -> io::Result<Self> {
        Ok(Self {
            id: spawn(command, streams, &signals.before)?,
            status: None,
            signals: &signals.waiting,
            asked: None,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().cast_unsigned()
    }

    /// Its status, if it has ended. What came meanwhile is passed on.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        while self.status.is_none()
            && let Ok(Some(signal)) = self.signals.read_signal()
        {
            self.hear(&signal);
        }
        if self.status.is_none() {
            let waited = waitpid(Some(self.id), WaitOptions::NOHANG)?;
            self.status = waited.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.status)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let end = pidfd_open(self.id, PidfdFlags::empty()).ok();
        let pause = Timespec::try_from(PAUSE).ok().filter(|_| end.is_none());
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            let mut awaited = vec![PollFd::new(self.signals, PollFlags::IN)];
            awaited.extend(end.as_ref().map(|end| PollFd::new(end, PollFlags::IN)));
            match poll(&mut awaited, pause.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The signal by which it was asked to end, if it was.
    pub fn asked_to_end(&self) -> Option<Signal> {
        self.asked
    }

    fn hear(&mut self, about: &siginfo) {
        let number = about.ssi_signo as i32;
        // Not by what the verb was told to ignore, as `nohup` tells it.
        let mut ending = ENDING.into_iter().filter(|_| !was_ignored(number));
        self.asked = ending.find(|it| *it as i32 == number).or(self.asked);
        // The terminal sends it to both.
        if about.ssi_code != SI_KERNEL
            && let Some(signal) = rustix::process::Signal::from_named_raw(number)
        {
            // Its number is its own until its status was taken.
            let _ = kill_process(self.id, signal);
        }
    }
}

/// Starts a program with these signals blocked, which `Command` cannot.
fn spawn(command: &Command, streams: Streams, mask: &SigSet) -> io::Result<Pid> {
    let place = look_for(command.get_program())?;
    let beside = streams == Streams::Beside;
    let nothing = beside.then(|| File::open("/dev/null")).transpose()?;
    let mut files = PosixSpawnFileActions::init()?;
    if let Some(nothing) = &nothing {
        files.add_dup2(nothing.as_raw_fd(), 0)?;
        files.add_dup2(2, 1)?;
    } else {
        for file in closed() {
            files.add_close(file)?;
        }
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(&file_limit::of_program(*mask))?;
    // This process ignores it, as every one in Rust does; the program only if it was told to.
    let told = |signal: &Signal| !was_ignored(*signal as i32);
    attributes.set_sigdefault(&[Signal::SIGPIPE].into_iter().filter(told).collect())?;
    let (masked, defaults) = (
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
        PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    );
    attributes.set_flags(masked | defaults)?;
    let program = c_string(command.get_program().to_owned())?;
    let mut words = vec![program.clone()];
    for word in command.get_args() {
        words.push(c_string(word.to_owned())?);
    }
    let environment = environment(command)?;
    let start = |program: &CStr, words: &[CString]| {
        posix_spawnp(program, &files, &attributes, words, &environment)
    };
    let id = match start(&program, &words) {
        // A script that names no interpreter: `execvp` has it run by the shell.
        Err(nix::errno::Errno::ENOEXEC) => {
            words.splice(..1, [SHELL.to_owned(), c_string(place.into())?]);
            start(SHELL, &words)?
        }
        id => id?,
    };
    Ok(Pid::from_raw(id.as_raw()).expect("a process has a number"))
}

/// Where `execvp` finds the program. Fails where it finds none: glibc before 2.24 says that it
/// was started.
fn look_for(program: &OsStr) -> io::Result<PathBuf> {
    let is_path = program.as_bytes().contains(&b'/');
    let places: Vec<PathBuf> = match std::env::var_os("PATH") {
        _ if is_path => vec![program.into()],
        path => std::env::split_paths(path.as_deref().unwrap_or(OsStr::new("/bin:/usr/bin")))
            .map(|folder| folder.join(program))
            .collect(),
    };
    let mut error = Errno::NOENT;
    for place in places {
        match access(&place, Access::EXEC_OK) {
            Ok(()) if !place.is_dir() => return Ok(place),
            Ok(()) => error = Errno::ACCESS,
            Err(found) if is_path || found == Errno::ACCESS => error = found,
            Err(_) => {}
        }
    }
    Err(error.into())
}

/// That of this process, with what the command changes.
fn environment(command: &Command) -> io::Result<Vec<CString>> {
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.insert(name.to_owned(), value.to_owned()),
            None => all.remove(name),
        };
    }
    let line = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        c_string(name)
    };
    all.into_iter().map(line).collect()
}

fn c_string(text: OsString) -> io::Result<CString> {
    CString::new(text.into_vec()).map_err(io::Error::other)
}
