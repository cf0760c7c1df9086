//! A valid name, checked once, where it comes in.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The name of memory: 1 to 200 bytes of letters, digits and `. _ - / : + @ =`.
/// `cmd` is none, since Redis has the command queue under that key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Most bytes of a name.
    pub const MOST_BYTES: usize = 200;
    const RESERVED: &str = "cmd";
    const MARKS: &[u8] = b"._-/:+@=";

    /// Checks a name.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let wrong = |why: &str| {
            let mut shown: String = text.escape_debug().take(60).collect();
            if shown.len() < text.len() {
                shown.push_str("...");
            }
            Err(Error::new(format!(
                "the name \"{shown}\" {why}; accepted: 1 to {} bytes of letters, digits and . _ - / : + @ =",
                Self::MOST_BYTES
            )))
        };
        if text.is_empty() {
            wrong("is empty")
        } else if text.len() > Self::MOST_BYTES {
            wrong("is too long")
        } else if !text.bytes().all(Self::may_have) {
            wrong("has a character that names do not have")
        } else if text == Self::RESERVED {
            wrong("is reserved")
        } else {
            Ok(Self(text))
        }
    }

    /// Is there a name with this byte in it?
    pub fn may_have(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || Self::MARKS.contains(&byte)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Maps by name are asked by text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_refused_in_one_line() {
        for good in [
            "w",
            "/models/weights",
            "layer.0/q:proj@rank=3",
            &"n".repeat(200),
        ] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "cmd",
            "a b",
            "a\nb",
            "a\u{1b}[2J",
            "ü",
            &"n".repeat(201),
        ] {
            let said = Name::new(bad).unwrap_err().to_string();
            assert!(said.contains("accepted"), "{said}");
            assert!(
                !said.contains('\n') && !said.contains('\u{1b}') && said.len() < 260,
                "{said}"
            );
        }
    }
}
