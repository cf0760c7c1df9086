//! Asks at the doors of other processes and hears what is answered: all of them, some at a
//! time, each for a bounded time and all for one. First those that had something when they
//! were last asked, last those that did not answer. Gives nothing itself.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use memcuda_core::lock::lock;
use memcuda_core::waiting::{Waiting, nap};

use super::{Answer, is_ours};

/// At so many doors at a time: each takes a descriptor, of which the program has so many.
pub(super) const MOST: usize = 64;

/// What others are asked.
pub(super) struct Question<'a> {
    pub words: &'a [u8],
    /// So many bytes are enough: nobody else is asked then.
    pub enough: u64,
    /// How long each is waited for: a stopped process gives no answer.
    pub each: Duration,
    /// How long all together are.
    pub all: Duration,
}

/// What came of it when a door was last asked; in this order they are asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Last {
    Had,
    Unasked,
    Nothing,
    Silent,
}

/// What is known of doors; of those that were there when anybody was last asked.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<String, Last>>);

impl Known {
    /// Asks at these doors, and adds the answers up.
    pub fn ask(&self, mut doors: Vec<String>, question: &Question<'_>) -> Answer {
        self.sort(&mut doors);
        let mut doors = doors.into_iter();
        let mut last = HashMap::new();
        let mut sum = Answer::default();
        let mut asked: Vec<Asked> = Vec::new();
        let mut waiting = Waiting::begin();
        loop {
            while asked.len() < MOST
                && sum.given < question.enough
                && let Some(door) = doors.next()
            {
                last.insert(door.clone(), Last::Silent);
                let until = waiting.lasted() + question.each;
                asked.extend(Asked::at(door, question.words, until));
            }
            let first = asked.iter().map(|asked| asked.until).min();
            let now = waiting.lasted();
            let Some(first) = first.filter(|_| now < question.all) else {
                break;
            };
            let left = first.min(question.all).saturating_sub(now);
            wait(&asked, left, &mut waiting);
            let now = waiting.lasted();
            // Whatever came already is heard, also of one that is late.
            asked.retain_mut(|asked| match asked.hear() {
                Ok(Some(answer)) => {
                    sum.given = sum.given.saturating_add(answer.given);
                    sum.soon = sum.soon.saturating_add(answer.soon);
                    let had = match answer == Answer::default() {
                        true => Last::Nothing,
                        false => Last::Had,
                    };
                    last.insert(std::mem::take(&mut asked.door), had);
                    false
                }
                Ok(None) => now < asked.until,
                Err(_) => false,
            });
        }
        *lock(&self.0) = last;
        sum
    }

    fn sort(&self, doors: &mut [String]) {
        let known = lock(&self.0);
        doors.sort_by_key(|door| known.get(door).copied().unwrap_or(Last::Unasked));
    }
}

/// One who was asked, until when, and what was heard of the answer.
struct Asked {
    door: String,
    stream: UnixStream,
    until: Duration,
    words: [u8; 16],
    heard: usize,
}

impl Asked {
    fn at(door: String, words: &[u8], until: Duration) -> Option<Self> {
        let mut stream = connect(&door).filter(is_ours)?;
        stream.write_all(words).ok()?;
        Some(Self {
            door,
            stream,
            until,
            words: [0; 16],
            heard: 0,
        })
    }

    /// The answer, once it has come; fails where none will.
    fn hear(&mut self) -> std::io::Result<Option<Answer>> {
        match self.stream.read(&mut self.words[self.heard..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => self.heard += more,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
        let whole = self.heard == self.words.len();
        let word = |at: usize| {
            let bytes = self.words[at..at + 8].try_into();
            u64::from_ne_bytes(bytes.expect("eight bytes"))
        };
        Ok(whole.then(|| Answer {
            given: word(0),
            soon: word(8),
        }))
    }
}

/// Waits until somebody has answered, or so long; a signal of the program's ends it early.
fn wait(asked: &[Asked], longest: Duration, waiting: &mut Waiting) {
    let told = |asked: &Asked| libc::pollfd {
        fd: asked.stream.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut told: Vec<_> = asked.iter().map(told).collect();
    let milliseconds = longest.as_micros().div_ceil(1000) as i32;
    // SAFETY: the array is as long as said.
    match unsafe { libc::poll(told.as_mut_ptr(), told.len() as libc::nfds_t, milliseconds) } {
        0 => waiting.passed(longest),
        1.. => {}
        _ if std::io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
        // A filter refuses it.
        _ => {
            nap(longest);
            waiting.passed(longest);
        }
    }
}

/// Connects without waiting; a full queue is the neighbour's answer.
pub(super) fn connect(name: &str) -> Option<UnixStream> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0: the abstract namespace.
    let path = address.sun_path.get_mut(1..=name.len())?;
    for (to, from) in path.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a descriptor of our own; the address is as long as said.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let address = (&raw const address).cast();
        let connected = libc::connect(socket.as_raw_fd(), address, length as libc::socklen_t);
        (connected == 0).then_some(socket)?
    };
    Some(UnixStream::from(socket))
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
