//! What epoll tells of, in the 64 bits that it gives back.

use rustix::event::epoll::EventData;

use super::entries::ClientId;

/// One of the things that the loop waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Somebody connects.
    Listener,
    /// A signal.
    Signal,
    /// The standby is gone.
    Standby,
    /// The registry asks.
    Desk,
    /// The lock of its place is gone.
    Place,
    /// A connection speaks, or ends.
    Client(ClientId),
    /// The process behind a connection has ended, or behind a former one.
    Watch(ClientId),
}

impl Token {
    /// As epoll keeps it.
    pub fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Listener => 0,
            Self::Signal => 1,
            Self::Standby => 2,
            Self::Desk => 3,
            Self::Place => 4,
            Self::Client(id) => id << 1 | 1 << 63,
            Self::Watch(id) => id << 1 | 1 << 63 | 1,
        })
    }

    /// From what epoll gave back.
    pub fn of(data: EventData) -> Self {
        match data.u64() {
            0 => Self::Listener,
            1 => Self::Signal,
            2 => Self::Standby,
            3 => Self::Desk,
            4 => Self::Place,
            n if n & 1 == 0 => Self::Client(n << 1 >> 2),
            n => Self::Watch(n << 1 >> 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_what_is_heard() {
        for token in [
            Token::Listener,
            Token::Signal,
            Token::Standby,
            Token::Desk,
            Token::Place,
            Token::Client(1),
            Token::Watch(1),
            Token::Client((1 << 60) + 5),
            Token::Watch((1 << 60) + 5),
        ] {
            assert_eq!(Token::of(token.data()), token);
        }
    }
}
