//! The terminal: taken when the view begins, given back as it was however the
//! view ends, by a key, a signal, a hang-up or a panic. Keys are read by a thread of
//! their own: of a terminal that has hung up the reader never comes back.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};
use memcuda::error::Error;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Signals that end the view.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// A terminal that is taken.
pub struct Screen {
    /// Never dropped: it would say on standard error what fails, and panic where that is
    /// gone, too.
    pub terminal: ManuallyDrop<DefaultTerminal>,
    /// Keys, and new sizes.
    pub events: Receiver<io::Result<Event>>,
    signals: SignalFd,
}

impl Screen {
    /// Takes the terminal. From here on threads begin with the signals blocked.
    pub fn take() -> Result<Self> {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        if dumb || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            let what = if dumb { "TERM is dumb" } else { "this is none" };
            return Err(Error::new(format!(
                "top needs a terminal, and {what}: top --once prints the table once, --json for programs"
            ))
            .into());
        }
        let mut set: SigSet = ENDING.into_iter().collect();
        // Stopped, it would leave the terminal as it is.
        set.add(Signal::SIGTSTP);
        set.thread_block().context("cannot wait for signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).context("cannot wait for signals")?;
        // It also gives the terminal back at a panic.
        let terminal = ratatui::try_init().context("the terminal cannot be used")?;
        let (sender, events) = sync_channel(8);
        let screen = Self {
            terminal: ManuallyDrop::new(terminal),
            events,
            signals,
        };
        let thread = std::thread::Builder::new().name("keys".to_owned());
        let reading = thread.spawn(move || read(&sender));
        reading.context("cannot start a thread that reads keys")?;
        Ok(screen)
    }

    /// The number of a signal that ends the view, if one came, or the terminal hung up:
    /// of one that is not its controlling terminal, no signal tells.
    pub fn ended(&self) -> Option<u8> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let mut ending = ENDING.into_iter();
            if let Some(signal) = ending.find(|it| *it as u32 == signal.ssi_signo) {
                return Some(signal as u8);
            }
        }
        hung_up().then_some(Signal::SIGHUP as u8)
    }
}

/// Reads what happens in the terminal, until it fails.
fn read(events: &SyncSender<io::Result<Event>>) {
    loop {
        let event = event::read();
        let failed = event.is_err();
        if events.send(event).is_err() || failed {
            return;
        }
    }
}

/// Has nobody the other end of the terminal any more?
fn hung_up() -> bool {
    let stdin = io::stdin();
    let mut look = [PollFd::new(&stdin, PollFlags::empty())];
    let at_once = Timespec::default();
    let gone = PollFlags::HUP | PollFlags::ERR;
    poll(&mut look, Some(&at_once)).is_ok() && look[0].revents().intersects(gone)
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Of a terminal that is gone nothing has to be given back.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}
