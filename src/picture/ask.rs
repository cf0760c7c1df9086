//! How a process is asked for its picture: at the sockets on which it hears
//! other processes that need memory (`shim/src/neighbours`). The question is
//! a request for no bytes, which nobody makes, and then the word "show"; a
//! library that does not know it takes it for that request, gives nothing, and
//! answers so. The picture comes as a descriptor of a sealed file in memory.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use super::{Picture, bytes};
use crate::error::Error;
use crate::share::wire::{self, Broken};

/// What the name of every such socket begins with; behind it the user, the
/// device, and a number of the process, each ended by a slash or the end.
pub const DOORS: &str = "memcuda/1/";

/// The second word of the question.
pub const SHOW: [u8; 8] = *b"memcshow";

/// The first word of an answer that has a picture, or says why not.
const SHOWN: [u8; 8] = *b"memcseen";

/// Bytes of an answer: two words.
const ANSWER: usize = 16;

/// How long a process waits for the words of whoever has connected.
pub const QUESTION: Duration = Duration::from_millis(100);

/// How long an answer is waited for. A picture of a million blocks takes half a
/// second; a stopped process never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// The process does not know the question.
    Old,
    /// It does not answer in time: stopped, or very busy.
    Silent,
    /// It ended, or hung up.
    Gone,
    /// It could not make its picture; the system's error.
    Failed(i32),
    /// What it sent is no picture.
    Damaged(Error),
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Old => f.write_str("it has an older libmemcuda, which shows no picture"),
            Self::Silent => write!(
                f,
                "no answer within {} s: it may be stopped",
                PATIENCE.as_secs()
            ),
            Self::Gone => {
                f.write_str("it hung up: it ended, or lets only its own user and root ask")
            }
            Self::Failed(error) => write!(
                f,
                "it could not make its picture: {}",
                std::io::Error::from_raw_os_error(*error)
            ),
            Self::Damaged(error) => error.fmt(f),
        }
    }
}

/// Writes a picture into a file in memory that nobody can change any more.
pub fn seal(picture: &Picture) -> Result<OwnedFd, std::io::Error> {
    let encoded = bytes::encode(picture).ok_or(std::io::ErrorKind::OutOfMemory)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("memcuda-picture", flags)?);
    file.write_all(&encoded)?;
    fcntl_add_seals(&file, ALL)?;
    Ok(file.into())
}

const ALL: SealFlags = SealFlags::SEAL
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE);

/// Answers who has asked.
pub fn answer(asker: impl AsFd, sealed: Result<OwnedFd, std::io::Error>) {
    let error = match &sealed {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::ENOMEM) as u64,
    };
    let words = [SHOWN, error.to_ne_bytes()].concat();
    let descriptors: Vec<_> = sealed.iter().map(AsFd::as_fd).collect();
    // Who did not wait for it does without.
    let _ = wire::send_bytes(asker, &words, &descriptors);
}

/// Asks a process at one of its sockets, to which `enter` connects. It hears nobody who
/// is late, and on a busy machine that may be anybody: they connect anew.
pub fn ask(mut enter: impl FnMut() -> std::io::Result<UnixStream>) -> Result<Picture, Unanswered> {
    let began = Instant::now();
    loop {
        let entered = Instant::now();
        let answer = enter().map_err(|_| Unanswered::Gone).and_then(ask_once);
        let late = answer == Err(Unanswered::Gone) && entered.elapsed() >= QUESTION;
        if !late || began.elapsed() >= PATIENCE {
            return answer;
        }
    }
}

fn ask_once(mut socket: UnixStream) -> Result<Picture, Unanswered> {
    let limits = socket
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| socket.set_write_timeout(Some(PATIENCE)));
    let asked = limits.and_then(|()| socket.write_all(&[[0; 8], SHOW].concat()));
    asked.map_err(|_| Unanswered::Gone)?;
    let mut room = [0; ANSWER];
    let (words, mut descriptors) = match wire::receive_bytes(&socket, &mut room, false) {
        Ok(answer) => answer,
        Err(Broken::Later) => return Err(Unanswered::Silent),
        Err(_) => return Err(Unanswered::Gone),
    };
    let Some((first, second)) = words.split_first_chunk().filter(|_| words.len() == ANSWER) else {
        return Err(Unanswered::Gone);
    };
    if *first != SHOWN {
        return Err(Unanswered::Old);
    }
    let error = u64::from_ne_bytes(second.try_into().expect("what is left of two words"));
    match descriptors.pop() {
        Some(sealed) => read(sealed),
        None => Err(Unanswered::Failed(error as i32)),
    }
}

/// Reads a sealed file. Only a file in memory has seals, so that reading it
/// neither waits for anybody nor meets a change.
fn read(sealed: OwnedFd) -> Result<Picture, Unanswered> {
    let damaged = |what: &str| Unanswered::Damaged(Error::new(what));
    let seals = fcntl_get_seals(&sealed);
    let whole = SealFlags::WRITE | SealFlags::SHRINK;
    if !seals.is_ok_and(|seals| seals.contains(whole)) {
        return Err(damaged("a picture that is not sealed"));
    }
    let bytes = fstat(&sealed).map(|about| about.st_size as u64);
    let Some(length) = bytes.ok().filter(|length| *length <= bytes::MOST) else {
        return Err(damaged("a picture that is too long"));
    };
    let mut all = vec![0; length as usize];
    let file = File::from(sealed);
    file.read_exact_at(&mut all, 0)
        .map_err(|_| damaged("a picture that cannot be read"))?;
    bytes::decode(&all).map_err(Unanswered::Damaged)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn who_came_too_late_to_be_heard_asks_again() {
        let picture = Picture::default();
        let mut entered = 0;
        let answer = std::thread::scope(|scope| {
            ask(|| {
                entered += 1;
                let (ours, mut theirs) = UnixStream::pair()?;
                if entered == 1 {
                    // Whoever is behind the door has had enough.
                    std::thread::sleep(QUESTION);
                    return Ok(ours);
                }
                let picture = &picture;
                scope.spawn(move || {
                    // Who hangs up on what it has not read takes its answer along.
                    theirs.read_exact(&mut [0; ANSWER]).unwrap();
                    answer(theirs, seal(picture));
                });
                Ok(ours)
            })
        });
        assert_eq!((answer, entered), (Ok(picture), 2));
    }

    #[test]
    fn of_a_picture_that_is_too_long_nothing_is_read() {
        let of = |length| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(memfd_create("memcuda-picture", flags).unwrap());
            // Holes, which cost whoever sends them nothing.
            file.set_len(length).unwrap();
            fcntl_add_seals(&file, ALL).unwrap();
            read(file.into()).unwrap_err().to_string()
        };
        assert_eq!(of(1), "not a memcuda picture or report");
        assert_eq!(of((64 << 20) + 1), "a picture that is too long");
    }

    #[test]
    fn who_is_sent_away_at_once_does_not() {
        let mut entered = 0;
        let answer = ask(|| {
            entered += 1;
            Ok(UnixStream::pair()?.0)
        });
        assert_eq!((answer, entered), (Err(Unanswered::Gone), 1));
    }
}
