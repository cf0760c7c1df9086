//! What was decided while torch was being imported, said when CUDA starts: a
//! process that never starts CUDA stays silent. What the log's level leaves out is
//! not even put together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use memcuda_core::config::{Config, Level};

use crate::process::environment;

static PENDING: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// Something that a user should know.
pub fn warn(line: impl FnOnce() -> String) {
    push(Level::Warn, line);
}

/// A decision.
pub fn info(line: impl FnOnce() -> String) {
    push(Level::Info, line);
}

/// Writes what is pending, once the log is open.
pub fn flush() {
    if !PENDING.load(Ordering::Relaxed) || !crate::process::log::enabled(Level::Error) {
        return;
    }
    let Ok(mut lines) = LINES.lock() else { return };
    PENDING.store(false, Ordering::Relaxed);
    for (level, line) in lines.drain(..) {
        if crate::process::log::enabled(level) {
            crate::process::log::line(level, format_args!("{line}"));
        }
    }
}

/// Will a line of this level be written? Settings that are not valid are a line
/// of their own later, at the level that is then usual.
fn wanted(level: Level) -> bool {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    let read = |name: &str| match name {
        "MEMCUDA_LOG" => environment::variable(name),
        _ => None,
    };
    level <= *LEVEL.get_or_init(|| Config::read(read).unwrap_or_default().log)
}

fn push(level: Level, line: impl FnOnce() -> String) {
    if !wanted(level) {
        return;
    }
    let line = line();
    if let Ok(mut lines) = LINES.lock() {
        let known = lines.iter().any(|(_, l)| *l == line);
        if !known {
            lines.push((level, line));
            PENDING.store(true, Ordering::Relaxed);
        }
    }
}
