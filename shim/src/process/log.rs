//! Diagnostics: one `write(2)` a line from a buffer on the stack. Says nothing
//! before [`configure`], so nothing in a process that never starts CUDA, and
//! nothing from inside `dlsym`, whatever the level; never allocates, never
//! changes `errno`.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use memcuda_core::config::{Config, Level};
use memcuda_core::descriptor::Lasting;
use memcuda_core::epoch;
use memcuda_core::log_line::{self, Form, Head, Part};

use crate::process::{signals, standard_error};

static LEVEL: AtomicU8 = AtomicU8::new(Level::Off as u8);
static FILE: OnceLock<Lasting> = OnceLock::new();
static JSON: AtomicBool = AtomicBool::new(false);

/// Was something left to be said by a lookup?
static DUE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Is this thread inside our `dlsym`? No destructor, so that it works at any
    /// moment of a thread's life.
    static IN_DLSYM: Cell<bool> = const { Cell::new(false) };
}

/// Longest line; what is longer is cut.
const LINE: usize = 1024;
/// Room for what ends a line.
const END: usize = 4;

/// Takes level, file and form from the settings. A file that cannot be opened
/// leaves the log on standard error and says so.
pub fn configure(config: &Config) {
    standard_error::remember();
    LEVEL.store(config.log as u8, Ordering::Relaxed);
    JSON.store(config.log_json, Ordering::Relaxed);
    let Some(path) = &config.log_file else { return };
    match open(path) {
        Ok(file) => drop(FILE.set(file)),
        Err(why) => crate::log_once!(
            Warn,
            "MEMCUDA_LOG_FILE={} cannot be opened ({why}); logging here",
            path.display()
        ),
    }
}

fn open(path: &Path) -> std::io::Result<Lasting> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o644);
    // A pipe that nobody reads would be waited for here.
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    // SAFETY: takes no pointer. Lines wait for who reads them, as on standard error.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
    Ok(Lasting::new(file.into())?)
}

/// Is this level written?
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Runs a lookup of ours: the loader may hold its locks, so nothing is formatted
/// and nothing is written on this thread.
pub fn silent<T>(lookup: impl FnOnce() -> T) -> T {
    let before = IN_DLSYM.replace(true);
    let result = lookup();
    IN_DLSYM.set(before);
    result
}

/// Is this thread inside [`silent`]?
pub fn is_silent() -> bool {
    IN_DLSYM.get()
}

/// A lookup has something to say: the next call of a hook says it.
pub fn make_due() {
    DUE.store(true, Ordering::Release);
}

/// Is there something to be said? One load, on every call of a hook.
pub fn is_due() -> bool {
    DUE.load(Ordering::Relaxed)
}

/// It is being said.
pub fn none_due() {
    DUE.swap(false, Ordering::Acquire);
}

/// Writes one line; use [`log!`](crate::log!) or [`log_once!`](crate::log_once!).
pub fn line(level: Level, message: fmt::Arguments<'_>) {
    if is_silent() {
        return;
    }
    // Once the program has closed the file, as at first, there is standard error, if that is
    // not something else by now.
    let file = FILE.get().and_then(Lasting::number);
    let form = Form::of(JSON.load(Ordering::Relaxed), file.is_some());
    let head = Head {
        level,
        part: Part::Library,
        pid: std::process::id(),
        time: epoch::now(),
    };
    let mut line = Line::default();
    // That it is full only means that the line is cut.
    let _ = log_line::write(&mut line, form, &head, message);
    line.close(form.end());
    line.send(file);
}

/// Writes a line if its level is enabled: `log!(Info, "...", ...)`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::process::log::enabled(memcuda_core::config::Level::$level) {
            $crate::process::log::line(memcuda_core::config::Level::$level, format_args!($($message)+));
        }
    };
}

/// As [`log!`](crate::log!), but each place of the source only once a process.
#[macro_export]
macro_rules! log_once {
    ($level:ident, $($message:tt)+) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if $crate::process::log::enabled(memcuda_core::config::Level::$level)
            && !SAID.swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            $crate::log!($level, $($message)+);
        }
    }};
}

struct Line {
    bytes: [u8; LINE],
    used: usize,
    full: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; LINE],
            used: 0,
            full: false,
        }
    }
}

impl Line {
    /// Ends the line; there is always room for that.
    fn close(&mut self, end: &str) {
        self.bytes[self.used..self.used + end.len()].copy_from_slice(end.as_bytes());
        self.used += end.len();
    }

    fn send(&self, file: Option<i32>) {
        // SAFETY: errno is this thread's own; the buffer is as long as said.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            let held = signals::hold();
            let number = || standard_error::is_there().then_some(libc::STDERR_FILENO);
            if let Some(number) = file.or_else(number) {
                libc::write(number, self.bytes.as_ptr().cast(), self.used);
            }
            drop(held);
            *errno = before;
        }
    }
}

impl Write for Line {
    /// The whole text or nothing, and nothing more after that.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.full |= text.len() > LINE - END - self.used;
        if self.full {
            return Err(fmt::Error);
        }
        self.bytes[self.used..self.used + text.len()].copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is formatted.
    struct Counted;
    static FORMATTED: AtomicUsize = AtomicUsize::new(0);

    impl fmt::Display for Counted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            FORMATTED.fetch_add(1, Ordering::Relaxed);
            f.write_str("counted")
        }
    }

    /// One test, since level and descriptor are the process's.
    #[test]
    fn nothing_is_formatted_that_is_not_written() {
        let formatted = || FORMATTED.swap(0, Ordering::Relaxed);
        crate::log!(Error, "{}", Counted);
        assert_eq!(formatted(), 0, "before there are settings");
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = Config {
            log: Level::Info,
            log_file: Some(file.path().to_owned()),
            ..Config::default()
        };
        configure(&config);
        crate::log!(Debug, "{}", Counted);
        crate::log_once!(Debug, "{}", Counted);
        assert_eq!(formatted(), 0, "of a level that is off");
        silent(|| crate::log!(Error, "{}", Counted));
        assert_eq!(formatted(), 0, "inside dlsym");
        crate::log!(Info, "{}", Counted);
        assert_eq!(formatted(), 1);
        let written = std::fs::read_to_string(file.path()).unwrap();
        assert!(written.ends_with("Z memcuda: info: counted\n"), "{written}");
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters_and_still_an_object() {
        for length in 0..40 {
            let message = "-".repeat(length) + &"é\n\"".repeat(400);
            let head = Head {
                level: Level::Warn,
                part: Part::Library,
                pid: 1,
                time: std::time::Duration::ZERO,
            };
            let mut line = Line::default();
            let full = log_line::write(&mut line, Form::Json, &head, format_args!("{message}"));
            line.close(Form::Json.end());
            assert!(full.is_err() && line.used <= LINE);
            let text = std::str::from_utf8(&line.bytes[..line.used]).unwrap();
            let object: serde_json::Value = serde_json::from_str(text).unwrap();
            assert!(message.starts_with(object["message"].as_str().unwrap()));
        }
    }
}
