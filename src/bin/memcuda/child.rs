//! A program that a verb starts and waits for. The program has every signal that the
//! verb has, and the verb ends behind it: nothing goes on alone, no temporary file
//! stays, and what was seen until then can be told.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::libc::SI_KERNEL;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};

/// Signals by which somebody wants it to end.
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
];

/// How often an old kernel, which cannot tell of the end, is asked.
const PAUSE: Duration = Duration::from_millis(20);

/// A program that was started.
pub struct Program {
    child: Child,
    signals: SignalFd,
    /// What was blocked before.
    before: SigSet,
    asked: Option<Signal>,
}

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut signals: SigSet = ENDING.into_iter().collect();
        signals.add(Signal::SIGUSR1);
        signals.add(Signal::SIGUSR2);
        // Not blocked before it runs: what is blocked is blocked in it, too.
        let child = command.spawn()?;
        let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            child,
            signals: SignalFd::with_flags(&signals, flags)?,
            before,
            asked: None,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its status, if it has ended. What came meanwhile is passed on.
    pub fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            self.hear(&signal);
        }
        self.child.try_wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok();
        let pause = Timespec::try_from(PAUSE).ok().filter(|_| end.is_none());
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            let mut awaited = vec![PollFd::new(&self.signals, PollFlags::IN)];
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
        let mut ending = ENDING.into_iter();
        self.asked = ending.find(|it| *it as i32 == number).or(self.asked);
        // The terminal sends it to both.
        if about.ssi_code != SI_KERNEL
            && let Some(signal) = rustix::process::Signal::from_named_raw(number)
        {
            // Its number is its own until its status was taken.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
