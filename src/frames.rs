//! The form in which a process records itself (`MEMCUDA_TRACE`): a header, then
//! frames of one size, each written whole or recognised as not written. Lays
//! them out and checks them; never maps memory and never reads a file.
//!
//! All words are 64 bits, little-endian. The header, of [`HEADER_BYTES`]:
//!
//! | word | content |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | version of this layout |
//! | 2 | bytes of a frame |
//! | 3 | frames that were begun: no later one is looked at |
//! | 4 | events that were lost, as there was no room for them |
//! | 5 | when recording began, in microseconds of the Unix epoch |
//! | 6 | process id |
//!
//! A frame is an event or a piece of a word that events name by its number.
//! Its last word is a sum over the others and its place, so that what was torn
//! by a crash is no frame. It never lies across two pages.

use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// First word of the header.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\x89memtrc\n");
/// Version of the layout.
pub const VERSION: u64 = 1;
/// Words of a frame.
pub const WORDS: usize = 8;
/// Bytes of a frame.
pub const FRAME_BYTES: usize = WORDS * 8;
/// Bytes of the header: a whole page, of any size that pages have.
pub const HEADER_BYTES: usize = 64 << 10;
/// Bytes of text in one frame.
pub const PIECE_BYTES: usize = 6 * 8;
/// Longest word in bytes; what is longer is cut.
pub const MOST_TEXT: usize = 64 * PIECE_BYTES;

/// Words of the header, by what they are.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// [`super::FRAME_BYTES`].
    pub const FRAME: usize = 2;
    /// Frames that were begun.
    pub const BEGUN: usize = 3;
    /// Events that were lost.
    pub const LOST: usize = 4;
    /// Start, in microseconds of the Unix epoch.
    pub const STARTED_US: usize = 5;
    /// Process id.
    pub const PID: usize = 6;
}

/// The file of a process: each `%p` in the path that was asked for is its number, or what it is
/// called where several have that.
pub fn path_of(asked: &Path, process: impl Display) -> PathBuf {
    let process = process.to_string();
    let mut path = Vec::new();
    let mut rest = asked.as_os_str().as_bytes();
    while let Some(at) = rest.windows(2).position(|two| two == b"%p") {
        path.extend_from_slice(&rest[..at]);
        path.extend_from_slice(process.as_bytes());
        rest = &rest[at + 2..];
    }
    path.extend_from_slice(rest);
    OsString::from_vec(path).into()
}

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Something happened.
    Event(Record),
    /// A word, or the next piece of it.
    Text(Piece),
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The process got memory.
    Alloc,
    /// It gave memory back.
    Free,
    /// A context ended, and with it what it owned.
    ContextEnd,
    /// The process was refused memory.
    Refused,
    /// A free that was no free after all.
    Nothing,
}

/// What is known of the order of uses: the first for memory that is given out,
/// the last for memory that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Use {
    /// On the stream, in its order.
    #[default]
    Stream,
    /// On any stream.
    Any,
    /// Complete: the caller waited.
    Complete,
}

/// An event as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since recording began.
    pub time_ns: u64,
    /// What happened.
    pub kind: Kind,
    /// First address of the memory.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// The stream (`CUstream`), where [`Use::Stream`].
    pub stream: u64,
    /// The context (`CUcontext`) that is current; for [`Kind::ContextEnd`] the one that ended.
    pub context: u64,
    /// The thread: a number of the process's own, and a word.
    pub thread: u32,
    /// The stack: a word, or 0.
    pub stack: u32,
    /// Whose library asked: a word, or 0.
    pub caller: u16,
    /// The name of the memory: a word, or 0.
    pub name: u16,
    /// Device ordinal.
    pub device: u8,
    /// See [`Use`].
    pub uses: Use,
    /// Does the memory end with its context?
    pub of_context: bool,
    /// Did the plain driver serve it?
    pub plain: bool,
    /// Is it a page of torch's expandable segments?
    pub page: bool,
}

/// What words are about; each has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// The process's command line.
    Process,
    /// A thread's name.
    Thread,
    /// A library that asks.
    Caller,
    /// A stack: what was called, innermost first, apart by `;`.
    Stack,
    /// The name of memory.
    Name,
}

/// A piece of a word. Pieces follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it is about.
    pub word: Word,
    /// Which one.
    pub number: u32,
    /// Is this its first piece?
    pub first: bool,
    /// Its bytes, at most [`PIECE_BYTES`].
    pub text: Vec<u8>,
}

const KINDS: [Kind; 5] = [
    Kind::Alloc,
    Kind::Free,
    Kind::ContextEnd,
    Kind::Refused,
    Kind::Nothing,
];
const USES: [Use; 3] = [Use::Stream, Use::Any, Use::Complete];
const ABOUT: [Word; 5] = [
    Word::Process,
    Word::Thread,
    Word::Caller,
    Word::Stack,
    Word::Name,
];
/// Operations from here on are pieces of words.
const TEXT: u64 = 0x80;

impl Record {
    /// As the frame with this place in the file, from 0.
    pub fn encode(&self, place: u64) -> [u64; WORDS] {
        let small = (self.kind as u64 + 1)
            | (self.uses as u64) << 8
            | u64::from(self.device) << 16
            | u64::from(self.of_context) << 24
            | u64::from(self.plain) << 25
            | u64::from(self.page) << 26
            | u64::from(self.caller) << 32
            | u64::from(self.name) << 48;
        let who = u64::from(self.thread) | u64::from(self.stack) << 32;
        let (at, of) = (self.address, self.context);
        sealed(
            [self.time_ns, at, self.bytes, self.stream, of, who, small],
            place,
        )
    }

    fn decode(words: &[u64; WORDS]) -> Option<Self> {
        let [time_ns, address, bytes, stream, context, who, small, _] = *words;
        let kind = (small & 0xff).checked_sub(1)?;
        Some(Self {
            time_ns,
            kind: *KINDS.get(kind as usize)?,
            address,
            bytes,
            stream,
            context,
            thread: who as u32,
            stack: (who >> 32) as u32,
            caller: (small >> 32) as u16,
            name: (small >> 48) as u16,
            device: (small >> 16) as u8,
            uses: *USES.get((small >> 8 & 0xff) as usize)?,
            of_context: small >> 24 & 1 == 1,
            plain: small >> 25 & 1 == 1,
            page: small >> 26 & 1 == 1,
        })
    }
}

impl Piece {
    /// As the frame with this place in the file.
    pub fn encode(
        (word, number): (Word, u32),
        first: bool,
        text: &[u8],
        place: u64,
    ) -> [u64; WORDS] {
        let text = &text[..text.len().min(PIECE_BYTES)];
        let mut words = [0; WORDS - 1];
        for (into, bytes) in words.iter_mut().zip(text.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *into = u64::from_le_bytes(whole);
        }
        words[6] = (TEXT + word as u64)
            | (text.len() as u64) << 8
            | u64::from(first) << 16
            | u64::from(number) << 32;
        sealed(words, place)
    }

    fn decode(words: &[u64; WORDS]) -> Option<Self> {
        let small = words[6];
        let about = (small & 0xff).checked_sub(TEXT)?;
        let length = (small >> 8 & 0xff) as usize;
        let text = words[..6].iter().flat_map(|word| word.to_le_bytes());
        Some(Self {
            word: *ABOUT.get(about as usize)?,
            number: (small >> 32) as u32,
            first: small >> 16 & 1 == 1,
            text: (length <= PIECE_BYTES).then(|| text.take(length).collect())?,
        })
    }
}

/// The frame with this place in the file; `None` where it was not written
/// whole, or says what this version does not know.
pub fn decode(words: &[u64; WORDS], place: u64) -> Option<Frame> {
    let body: [u64; WORDS - 1] = words[..WORDS - 1].try_into().ok()?;
    if words[WORDS - 1] != seal(&body, place) {
        return None;
    }
    let event = || Record::decode(words).map(Frame::Event);
    Piece::decode(words).map(Frame::Text).or_else(event)
}

fn sealed(body: [u64; WORDS - 1], place: u64) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[..WORDS - 1].copy_from_slice(&body);
    words[WORDS - 1] = seal(&body, place);
    words
}

/// A sum that is never 0, which is what a file has where nothing was written.
fn seal(body: &[u64; WORDS - 1], place: u64) -> u64 {
    let mixed = body
        .iter()
        .fold(place + 1, |sum, word| sum.rotate_left(9) ^ word);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            time_ns: 7_000_000_123,
            kind: Kind::Free,
            address: 0x7f5a_3be0_0000,
            bytes: 3 << 40,
            stream: 0x55aa_1234_5678,
            context: 0x55aa_8765_4321,
            thread: 4_000_000_000,
            stack: 77,
            caller: 65_535,
            name: 9,
            device: 7,
            uses: Use::Complete,
            of_context: true,
            plain: false,
            page: false,
        }
    }

    #[test]
    fn what_is_written_is_read_at_its_place_only() {
        for kind in KINDS {
            for (uses, plain) in USES.iter().zip([true, false, true]) {
                let uses = *uses;
                let of_context = !plain;
                let record = Record {
                    kind,
                    uses,
                    plain,
                    of_context,
                    page: plain,
                    ..record()
                };
                let words = record.encode(41);
                assert_eq!(decode(&words, 41), Some(Frame::Event(record)));
                assert_eq!(decode(&words, 42), None);
            }
        }
        assert_eq!(decode(&[0; WORDS], 0), None);
    }

    #[test]
    fn words_have_pieces() {
        for (number, word) in ABOUT.into_iter().enumerate() {
            let number = number as u32 * 1_000_000_000;
            for length in [0, 1, 7, 8, PIECE_BYTES] {
                let text: Vec<u8> = (0..length as u8).map(|n| n ^ 0xf3).collect();
                let words = Piece::encode((word, number), length == 8, &text, 5);
                let first = length == 8;
                let piece = Piece {
                    word,
                    number,
                    first,
                    text,
                };
                assert_eq!(decode(&words, 5), Some(Frame::Text(piece)));
            }
        }
    }

    #[test]
    fn a_path_has_the_number_of_its_process() {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let of = |asked| path_of(&path(asked), 41);
        assert_eq!(of(b"/t/caf\xe9-%p.%p"), path(b"/t/caf\xe9-41.41"));
        assert_eq!(of(b"/t/50%"), path(b"/t/50%"));
    }

    #[test]
    fn a_torn_frame_is_none() {
        let whole = record().encode(3);
        for torn in 0..WORDS {
            let mut words = whole;
            words[torn] = 0;
            assert_eq!(decode(&words, 3), None, "{torn}");
        }
        for bit in 0..64 * WORDS {
            let mut words = whole;
            words[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(decode(&words, 3), None, "{bit}");
        }
    }
}
