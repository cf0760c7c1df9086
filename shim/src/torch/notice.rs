//! What was decided while torch was being imported, said when CUDA starts: a
//! process that never starts CUDA stays silent.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::config::Level;

static PENDING: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// Something that a user should know.
pub fn warn(line: String) {
    push(Level::Warn, line);
}

/// A decision.
pub fn info(line: String) {
    push(Level::Info, line);
}

/// Writes what is pending, once the log is open.
pub fn flush() {
    if !PENDING.load(Ordering::Relaxed) || !crate::log::enabled(Level::Error) {
        return;
    }
    let Ok(mut lines) = LINES.lock() else { return };
    PENDING.store(false, Ordering::Relaxed);
    for (level, line) in lines.drain(..) {
        if crate::log::enabled(level) {
            crate::log::line(level, format_args!("{line}"));
        }
    }
}

fn push(level: Level, line: String) {
    if let Ok(mut lines) = LINES.lock() {
        let known = lines.iter().any(|(_, l)| *l == line);
        if !known {
            lines.push((level, line));
            PENDING.store(true, Ordering::Relaxed);
        }
    }
}
