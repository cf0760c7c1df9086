//! What a descriptor of the keeper is, as its vaults call it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::share::protocol::Generation;

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// The lock beside the socket.
    Lock,
    /// The listening socket.
    Listener,
    /// The epoch page.
    Epoch,
    /// The journal, by its number: a new one is there before the old one goes.
    State(u32),
    /// A physical handle of a generation, by its place.
    Part(Generation, u32),
    /// The timeline page of a generation.
    Timeline(Generation),
}

impl Key {
    /// No key has more bytes as text: a part of an export has the largest numbers.
    pub const LONGEST: usize = "part--65535".len() + 32;
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::Listener => f.write_str("listener"),
            Self::Epoch => f.write_str("epoch"),
            Self::State(number) => write!(f, "state-{number}"),
            Self::Part(generation, place) => write!(f, "part-{generation}-{place}"),
            Self::Timeline(generation) => write!(f, "timeline-{generation}"),
        }
    }
}

impl FromStr for Key {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "lock" => return Ok(Self::Lock),
            "listener" => return Ok(Self::Listener),
            "epoch" => return Ok(Self::Epoch),
            _ => {}
        }
        if let Some(number) = text.strip_prefix("state-") {
            return number.parse().map(Self::State).map_err(|_| ());
        }
        if let Some(generation) = text.strip_prefix("timeline-") {
            return Ok(Self::Timeline(generation_of(generation).ok_or(())?));
        }
        let part = text.strip_prefix("part-").and_then(|t| t.split_once('-'));
        let (generation, place) = part.ok_or(())?;
        let generation = generation_of(generation).ok_or(())?;
        Ok(Self::Part(generation, place.parse().map_err(|_| ())?))
    }
}

fn generation_of(text: &str) -> Option<Generation> {
    let number = u128::from_str_radix(text, 16).ok();
    number
        .filter(|_| text.len() == 32)
        .map(|n| Generation(n.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_as_text() {
        let generation = Generation([0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        for key in [
            Key::Lock,
            Key::Listener,
            Key::Epoch,
            Key::State(3),
            Key::Part(generation, 70),
            Key::Part(generation, u16::MAX.into()),
            Key::Timeline(generation),
        ] {
            let text = key.to_string();
            assert!(!text.contains(':') && text.len() <= Key::LONGEST);
            assert_eq!(text.parse(), Ok(key));
        }
        for wrong in [
            "",
            "part-",
            "state-x",
            "part-00-1",
            "timeline-xyz",
            "stored",
        ] {
            assert_eq!(wrong.parse::<Key>(), Err(()));
        }
    }
}
