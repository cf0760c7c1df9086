//! What is read of a recording: whole, cut, torn, with events missing.

use super::super::{Reader, write};
use super::*;
use crate::frames::{MAGIC, MOST_TEXT, PIECE_BYTES};

/// A recording that a process may have left.
#[derive(Default)]
struct File {
    frames: Vec<[u64; WORDS]>,
    lost: u64,
}

impl File {
    fn event(&mut self, record: Record) {
        self.frames.push(record.encode(self.frames.len() as u64));
    }

    fn word(&mut self, word: Word, number: u32, text: &str) {
        for (at, piece) in text.as_bytes().chunks(PIECE_BYTES).enumerate() {
            let place = self.frames.len() as u64;
            self.frames
                .push(Piece::encode((word, number), at == 0, piece, place));
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut words = vec![0_u64; HEADER_BYTES / 8];
        words[header::MAGIC] = MAGIC;
        words[header::VERSION] = VERSION;
        words[header::FRAME] = FRAME_BYTES as u64;
        words[header::BEGUN] = self.frames.len() as u64;
        words[header::LOST] = self.lost;
        words[header::PID] = 4711;
        words[header::STARTED_US] = 1_700_000_000_000_001;
        words.extend(self.frames.as_flattened());
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn record(kind: Kind, address: u64, bytes: u64) -> Record {
    Record {
        time_ns: 5000,
        kind,
        address,
        bytes,
        stream: 0x10,
        context: 1,
        thread: 1,
        stack: 0,
        caller: 2,
        name: 0,
        device: 0,
        uses: Use::Stream,
        of_context: false,
        plain: false,
        page: false,
    }
}

fn alloc(address: u64, bytes: u64) -> Record {
    record(Kind::Alloc, address, bytes)
}

fn free(address: u64) -> Record {
    record(Kind::Free, address, 0)
}

/// What happened, and what is missing.
fn read(bytes: &[u8]) -> (Vec<(Op, u64, u64)>, Shortfall) {
    let mut reader = Reader::new(bytes).unwrap();
    let events: Vec<Event> = reader.by_ref().map(Result::unwrap).collect();
    let short = events.iter().map(|e| (e.op, e.id, e.bytes)).collect();
    (short, reader.shortfall())
}

#[test]
fn events_have_their_words_and_a_free_is_done_at_once() {
    let mut file = File::default();
    let command = "python train.py --with-a-name-that-takes-more-than-one-frame yes";
    file.word(Word::Process, 0, command);
    file.word(Word::Thread, 1, "python (77)");
    file.word(Word::Caller, 2, "libtorch.so");
    file.event(alloc(0x7000, 512));
    file.event(free(0x7000));
    let bytes = file.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let events: Vec<Event> = reader.by_ref().map(Result::unwrap).collect();
    let ops: Vec<Op> = events.iter().map(|e| e.op).collect();
    assert_eq!(ops, [Op::Alloc, Op::Free, Op::FreeDone]);
    assert!(events.iter().all(|e| e.id == 0x7000 && e.bytes == 512));
    assert_eq!(reader.word(events[0].thread), "python (77)");
    assert_eq!(reader.word(events[2].caller), "libtorch.so");
    assert_eq!(reader.process(), Some((4711, command)));
    assert_eq!(reader.shortfall(), Shortfall::default());
}

#[test]
fn pages_are_nobodys_but_torchs_and_outlive_contexts() {
    let mut file = File::default();
    let page = |kind, of_context| Record {
        page: true,
        of_context,
        uses: Use::Any,
        ..record(kind, 0x7000, 12 << 20)
    };
    file.event(page(Kind::Alloc, true));
    file.event(record(Kind::ContextEnd, 0, 0));
    file.event(page(Kind::Free, false));
    let bytes = file.bytes();
    let reader = Reader::new(&bytes[..]).unwrap();
    let events: Vec<Event> = reader.map(Result::unwrap).collect();
    let ops: Vec<Op> = events.iter().map(|e| e.op).collect();
    assert_eq!(ops, [Op::Alloc, Op::Free, Op::FreeDone]);
    assert!(events.iter().all(|e| e.owner == Some(Owner::Page)));
}

#[test]
fn wherever_it_is_cut_the_rest_is_read_and_the_cut_told() {
    let mut file = File::default();
    for n in 0..20 {
        file.event(alloc(n << 20, 512));
    }
    let whole = file.bytes();
    for length in HEADER_BYTES..whole.len() {
        let (events, short) = read(&whole[..length]);
        let there = ((length - HEADER_BYTES) / FRAME_BYTES) as u64;
        assert_eq!(short.cut, Some((there, 20)));
        assert_eq!(short.lost, 20 - there);
        assert_eq!(events.len() as u64, there + 1);
        assert_eq!(events.last(), Some(&(Op::Lost, 0, 20 - there)));
    }
    for length in 8..HEADER_BYTES {
        let error = Reader::new(&whole[..length]).err().unwrap();
        assert!(error.to_string().contains("cut off in its header"));
    }
}

#[test]
fn what_was_not_written_whole_is_passed_over_and_counted() {
    let mut file = File::default();
    for n in 0..3 {
        file.event(alloc(n << 20, 512));
    }
    file.frames[1][2] ^= 1;
    file.frames.push([0; WORDS]);
    file.lost = 40;
    let (events, short) = read(&file.bytes());
    let expected = [
        (Op::Alloc, 0, 512),
        (Op::Alloc, 2 << 20, 512),
        (Op::Lost, 0, 42),
    ];
    assert_eq!(events, expected);
    assert_eq!((short.lost, short.cut), (42, None));
}

#[test]
fn missing_events_are_mended() {
    let mut file = File::default();
    file.event(free(0x9000));
    file.event(alloc(0x7000, 512));
    file.event(alloc(0x7000, 1024));
    file.event(free(0x7000));
    file.event(free(0x7000));
    let foreign = Record {
        plain: true,
        ..free(0xf000)
    };
    file.event(foreign);
    let (events, short) = read(&file.bytes());
    let expected = [
        (Op::Free, 0x7000, 512),
        (Op::FreeDone, 0x7000, 512),
        (Op::Alloc, 0x7000, 1024),
    ];
    assert_eq!(events[0], (Op::Alloc, 0x7000, 512));
    assert_eq!(events[1..4], expected);
    assert_eq!(events.len(), 6);
    assert_eq!(short.mended, 3);
}

#[test]
fn a_context_takes_with_it_what_it_owned() {
    let of = |context, of_context, address| Record {
        context,
        of_context,
        ..alloc(address, 512)
    };
    let mut file = File::default();
    file.event(of(1, true, 0x1000));
    file.event(of(1, false, 0x2000));
    file.event(of(2, true, 0x3000));
    file.event(record(Kind::ContextEnd, 0, 0));
    let (events, _) = read(&file.bytes());
    let ended = [(Op::Free, 0x1000, 512), (Op::FreeDone, 0x1000, 512)];
    assert_eq!(events[3..], ended);
}

#[test]
fn streams_are_numbered_and_the_legacy_one_is_0() {
    let on = |context, stream, thread| Record {
        context,
        stream,
        thread,
        ..alloc(0, 512)
    };
    let records = [
        on(1, 0x10, 1),
        on(1, 1, 1),
        on(1, 0x10, 2),
        on(2, 0x10, 1),
        on(1, 2, 1),
        on(1, 2, 2),
    ];
    let mut file = File::default();
    for (n, record) in records.into_iter().enumerate() {
        let address = (n as u64) << 20;
        file.event(Record { address, ..record });
    }
    let bytes = file.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let events = reader.by_ref().map(Result::unwrap);
    let streams: Vec<u64> = events.map(|e| e.stream).collect();
    let handles: Vec<u64> = streams.iter().map(|s| reader.driver_stream(*s)).collect();
    assert_eq!(handles, [0x10, 0, 0x10, 0x10, 2, 2]);
    assert_eq!(streams[1], 0);
    assert_eq!(streams[0], streams[2]);
    let mut different = streams.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 5, "{streams:?}");
}

#[test]
fn the_legacy_stream_is_0_on_every_device_and_of_one_context_at_a_time() {
    let on = |context, device, stream| Record {
        context,
        device,
        stream,
        ..alloc(0, 512)
    };
    let (legacy, end) = (Stream::LEGACY.0, Kind::ContextEnd);
    let records = [
        on(1, 0, 0x10),
        on(1, 0, legacy),
        on(2, 1, legacy),
        on(3, 1, legacy),
        on(2, 1, legacy),
        Record {
            context: 2,
            ..record(end, 0, 0)
        },
        on(3, 1, legacy),
        on(4, 1, legacy),
        on(1, 0, legacy),
    ];
    let mut file = File::default();
    for (n, record) in records.into_iter().enumerate() {
        let address = (n as u64) << 20;
        file.event(Record { address, ..record });
    }
    let bytes = file.bytes();
    let reader = Reader::new(&bytes[..]).unwrap();
    let streams: Vec<u64> = reader.map(|event| event.unwrap().stream).collect();
    assert_eq!(streams, [1, 0, 0, 2, 0, 2, 0, 0]);
}

#[test]
fn a_word_ends_where_no_writer_makes_it_longer() {
    let mut file = File::default();
    let whole = "x".repeat(MOST_TEXT);
    file.word(Word::Name, 3, &whole);
    let key = (Word::Name, 3);
    for place in file.frames.len() as u64..20_000 {
        file.frames.push(Piece::encode(key, false, b"more", place));
    }
    file.event(Record {
        name: 3,
        ..alloc(0x1000, 512)
    });
    let bytes = file.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let event = reader.next().unwrap().unwrap();
    assert!(reader.word(event.name) == whole);
}

#[test]
fn as_text_it_says_the_same() {
    let mut file = File::default();
    file.word(Word::Process, 0, "python, -c\nx");
    file.word(Word::Caller, 2, "lib,with\nodd.so");
    file.word(Word::Name, 3, "weights/0");
    file.word(Word::Stack, 4, "we,ird.py:2!f;main.py:9!<module>");
    file.event(Record {
        uses: Use::Any,
        of_context: true,
        name: 3,
        stack: 4,
        ..alloc(0x7f00_0000_0000, 3 << 20)
    });
    file.event(Record {
        uses: Use::Complete,
        ..free(0x7f00_0000_0000)
    });
    file.event(record(Kind::Refused, 0, 1 << 40));
    file.lost = 7;
    let bytes = file.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut text = String::new();
    let mut events = Vec::new();
    while let Some(event) = reader.next() {
        let event = event.unwrap();
        if events.is_empty() {
            text = write::head(&reader);
        }
        write::line(&event, &reader, &mut text);
        events.push(event);
    }
    let mut again = Reader::new(text.as_bytes()).unwrap();
    let read: Vec<Event> = again.by_ref().map(Result::unwrap).collect();
    assert_eq!(read.len(), events.len());
    for (read, was) in read.iter().zip(&events) {
        let same = Event {
            line: was.line,
            thread: was.thread,
            caller: was.caller,
            name: was.name,
            stack: was.stack,
            ..*read
        };
        assert_eq!(same, *was);
        assert_eq!(again.word(read.name), reader.word(was.name));
    }
    assert_eq!(again.word(read[0].caller), "lib;with odd.so");
    let stack = "we?ird.py:2!f;main.py:9!<module>";
    assert_eq!(again.word(read[0].stack), stack);
    assert_eq!(again.began_us(), Some(1_700_000_000_000_001));
    assert_eq!(again.process(), Some((4711, "python; -c x")));
    assert_eq!(again.shortfall().lost, 7);
    let zstd = zstd::encode_all(&bytes[..], 3).unwrap();
    let of_zstd: Vec<Event> = Reader::new(&zstd[..])
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(of_zstd, events);
}
