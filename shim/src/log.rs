//! Diagnostics: one `write(2)` a line from a buffer on the stack. Says nothing
//! before [`configure`], so nothing in a process that never starts CUDA; never
//! allocates, never changes `errno`.

use std::ffi::CString;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use memcuda_core::config::{Config, Level};

static LEVEL: AtomicU8 = AtomicU8::new(Level::Off as u8);
static DESCRIPTOR: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);
static JSON: AtomicBool = AtomicBool::new(false);

/// Longest line; what is longer is cut.
const LINE: usize = 1024;

/// Takes level, file and form from the settings. A file that cannot be opened
/// leaves the log on standard error and says so.
pub fn configure(config: &Config) {
    LEVEL.store(config.log as u8, Ordering::Relaxed);
    JSON.store(config.log_json, Ordering::Relaxed);
    let Some(path) = &config.log_file else { return };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    let opened = CString::new(path.as_str()).map_or(-1, |path| {
        // SAFETY: the path is a string that ends in NUL.
        unsafe { libc::open(path.as_ptr(), flags, 0o644) }
    });
    if opened >= 0 {
        DESCRIPTOR.store(opened, Ordering::Relaxed);
    } else {
        crate::log_once!(
            Warn,
            "MEMCUDA_LOG_FILE={path} cannot be opened; logging here"
        );
    }
}

/// Is this level written?
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes one line; use [`log!`](crate::log!) or [`log_once!`](crate::log_once!).
pub fn line(level: Level, message: fmt::Arguments<'_>) {
    let mut line = Line::default();
    let word = match level {
        Level::Off => return,
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    // Writing to the buffer cannot fail: it cuts what is too long.
    if JSON.load(Ordering::Relaxed) {
        let pid = std::process::id();
        let _ = write!(
            line,
            "{{\"schema\":\"memcuda.log/1\",\"level\":\"{word}\",\"pid\":{pid},\"message\":\""
        );
        let _ = Escaped(&mut line).write_fmt(message);
        line.close("\"}\n");
    } else {
        let _ = write!(line, "memcuda: {word}: ");
        let _ = line.write_fmt(message);
        line.close("\n");
    }
    line.send(DESCRIPTOR.load(Ordering::Relaxed));
}

/// Writes a line if its level is enabled: `log!(Info, "...", ...)`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::log::enabled(memcuda_core::config::Level::$level) {
            $crate::log::line(memcuda_core::config::Level::$level, format_args!($($message)+));
        }
    };
}

/// As [`log!`](crate::log!), but each place of the source only once a process.
#[macro_export]
macro_rules! log_once {
    ($level:ident, $($message:tt)+) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !SAID.swap(true, std::sync::atomic::Ordering::Relaxed) {
            $crate::log!($level, $($message)+);
        }
    }};
}

struct Line {
    bytes: [u8; LINE],
    used: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; LINE],
            used: 0,
        }
    }
}

impl Line {
    /// Ends the line, over its tail where there is no room left.
    fn close(&mut self, end: &str) {
        self.used = self.used.min(LINE - end.len());
        let _ = self.write_str(end);
    }

    fn send(&self, descriptor: i32) {
        // SAFETY: errno is this thread's own; the buffer is as long as said.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::write(descriptor, self.bytes.as_ptr().cast(), self.used);
            *errno = before;
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE - self.used;
        let taken = text.len().min(room);
        self.bytes[self.used..self.used + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

struct Escaped<'a>(&'a mut Line);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' | '\\' => write!(self.0, "\\{c}")?,
                c if c < ' ' => write!(self.0, "\\u{:04x}", c as u32)?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}
