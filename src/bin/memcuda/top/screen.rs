//! The terminal: taken when the view begins, given back as it was however the
//! view ends, by a key, a signal or a panic.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use memcuda::error::Error;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::DefaultTerminal;

/// Signals that end the view.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// A terminal that is taken.
pub struct Screen {
    pub terminal: DefaultTerminal,
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
        Ok(Self { terminal, signals })
    }

    /// The number of a signal that ends the view, if one came.
    pub fn ended(&self) -> Option<u8> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let mut ending = ENDING.into_iter();
            if let Some(signal) = ending.find(|it| *it as u32 == signal.ssi_signo) {
                return Some(signal as u8);
            }
        }
        None
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Of a terminal that is gone nothing has to be given back.
        let _ = ratatui::try_restore();
    }
}
