//! Files of rules, as people write them: text, read whole and never waited for, as a pipe
//! would be, nor beyond what rules may be long, as a device might. Knows nothing of rules,
//! but in which line they are none.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{Error, Result};

/// Most bytes of a file.
const MOST_BYTES: usize = 1 << 20;

/// The text of a file.
pub fn read(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| Error::new(error.to_string());
    let mut options = OpenOptions::new();
    // A pipe that nobody writes to would be waited for here.
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::new(
            "is no file; accepted: a TOML file, which is read more than once: no pipe, such as <(...)",
        ));
    }
    let mut text = Vec::new();
    let most = MOST_BYTES as u64 + 1;
    file.take(most).read_to_end(&mut text).map_err(failed)?;
    if text.len() > MOST_BYTES {
        return Err(Error::new(format!(
            "it is too long; accepted: up to {MOST_BYTES} bytes"
        )));
    }
    String::from_utf8(text).map_err(|error| Error::new(error.to_string()))
}

/// What is wrong with a text, in one line.
pub fn where_and_why(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().map_or(0, |span| span.start.min(text.len()));
    let ends = text.as_bytes()[..before].iter().filter(|&&b| b == b'\n');
    let (line, said) = (1 + ends.count(), error.message().replace('\n', " "));
    format!("line {line}: {said}")
}
