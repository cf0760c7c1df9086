//! What is said of a program that cannot be run: which, why, and of a script how it is run
//! instead. Every verb that starts programs says it in these words. Starts nothing.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// The line. The verb is the one that was to start it.
pub fn why(verb: &str, program: &OsStr, error: &io::Error) -> String {
    let interpreter = match Path::new(program).extension().and_then(OsStr::to_str) {
        Some("py") => Some("python"),
        Some("sh") => Some("sh"),
        _ => None,
    };
    let hint = interpreter.map(|interpreter| {
        format!("; a script is run by its interpreter: memcuda {verb} -- {interpreter} FILE")
    });
    let program = program.display();
    format!("cannot run {program}: {error}{}", hint.unwrap_or_default())
}
