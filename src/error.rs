//! The library's one error type, for input that people write (variables,
//! traces, arguments). Driver results are [`crate::driver::Code`]s instead.

use std::fmt;
use std::path::Path;

/// A message that names what is wrong, which value it was, and what is
/// accepted, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// What is wrong with a file, which it names.
    pub fn of_file(path: &Path, why: impl fmt::Display) -> Self {
        Self(format!("{}: {why}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A result with the library's error.
pub type Result<T> = std::result::Result<T, Error>;
