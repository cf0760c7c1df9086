//! Reads a trace as a stream of events, whichever form it has: text, a
//! recording, and either with zstd around it. Never holds the whole of it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};

use super::recording::Recording;
use super::text::Text;
use super::{Event, Op};
use crate::error::{Error, Result};
use crate::frames;

const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// An iterator over the events of a trace. It ends after the first error.
pub struct Reader<'a> {
    form: Form<'a>,
    words: Words,
    shortfall: Shortfall,
    failed: bool,
}

enum Form<'a> {
    Text(Text<'a>),
    Recording(Recording<'a>),
}

/// What a trace lacks; known when all of it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shortfall {
    /// Events that are missing: there was no room for them, the process ended
    /// while it wrote them, or the file was cut.
    pub lost: u64,
    /// Where the file of a recording ends before its last frame: frames that
    /// are there, and those that were written.
    pub cut: Option<(u64, u64)>,
    /// Events that could only follow missing ones: a free of what was not
    /// allocated, memory that was allocated again and not freed before.
    pub mended: u64,
}

impl<'a> Reader<'a> {
    /// Reads the header of a trace. Messages begin with `line N: `.
    pub fn new(input: impl BufRead + 'a) -> Result<Self> {
        let (start, input) = peek(Box::new(input))?;
        let (start, input) = match start.starts_with(&ZSTD_MAGIC) {
            true => {
                let decoder = zstd::Decoder::with_buffer(input).map_err(|e| of_start(&e))?;
                peek(Box::new(BufReader::with_capacity(1 << 20, decoder)))?
            }
            false => (start, input),
        };
        let form = match start == frames::MAGIC.to_le_bytes() {
            true => Form::Recording(Recording::new(input)?),
            false => Form::Text(Text::new(input)?),
        };
        Ok(Self {
            form,
            words: Words::default(),
            shortfall: Shortfall::default(),
            failed: false,
        })
    }

    /// A word that an event names by its number; empty for 0 and for what is
    /// not known.
    pub fn word(&self, number: u32) -> &str {
        self.words.get(number)
    }

    /// What was recorded, where the trace says so: process id and command line.
    pub fn process(&self) -> Option<(u64, &str)> {
        match &self.form {
            Form::Text(text) => {
                let process = text.process()?;
                Some((process.pid, &process.command))
            }
            Form::Recording(recording) => {
                let (pid, command) = recording.process();
                Some((pid, self.words.get(command)))
            }
        }
    }

    /// When the trace began, where it says so, in microseconds of the Unix
    /// epoch.
    pub fn began_us(&self) -> Option<u64> {
        match &self.form {
            Form::Text(text) => Some(text.process()?.began_us),
            Form::Recording(recording) => Some(recording.began_us()),
        }
    }

    /// The driver's value (`CUstream`) of a stream that events know by its
    /// number; the number itself where the trace does not say. 0 is the default
    /// one.
    pub fn driver_stream(&self, number: u64) -> u64 {
        match &self.form {
            Form::Text(_) => number,
            Form::Recording(recording) => recording.driver_stream(number),
        }
    }

    /// What the trace lacks, as far as it was read.
    pub fn shortfall(&self) -> Shortfall {
        match &self.form {
            Form::Text(_) => self.shortfall,
            Form::Recording(recording) => recording.shortfall(),
        }
    }
}

/// The first eight bytes, or as many as there are, and the input before them.
fn peek<'a>(mut input: Box<dyn BufRead + 'a>) -> Result<(Vec<u8>, Box<dyn BufRead + 'a>)> {
    // `fill_buf` may give fewer of a pipe, so read and chain.
    let mut start = Vec::new();
    let read = input.by_ref().take(8).read_to_end(&mut start);
    read.map_err(|e| of_start(&e))?;
    Ok((start.clone(), Box::new(Cursor::new(start).chain(input))))
}

fn of_start(error: &std::io::Error) -> Error {
    Error::new(match error.kind() {
        ErrorKind::IsADirectory => "a folder, and no trace".to_owned(),
        _ => format!("line 1: {error}; the file is damaged or truncated"),
    })
}

impl Iterator for Reader<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let event = match &mut self.form {
            Form::Text(text) => text.event(&mut self.words),
            Form::Recording(recording) => recording.event(&mut self.words),
        };
        if let Ok(Some(Event {
            op: Op::Lost,
            bytes,
            ..
        })) = event
        {
            self.shortfall.lost = self.shortfall.lost.saturating_add(bytes);
        }
        self.failed = event.is_err();
        event.transpose()
    }
}

/// The words of a trace by number; 0 is the empty one.
#[derive(Default)]
pub struct Words {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Words {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.open();
        self.set(number, text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// A number whose text comes later.
    pub fn open(&mut self) -> u32 {
        self.texts.push(String::new());
        self.texts.len() as u32
    }

    /// The text of a number.
    pub fn set(&mut self, number: u32, text: String) {
        self.texts[number as usize - 1] = text;
    }

    fn get(&self, number: u32) -> &str {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.texts.get(at))
            .map_or("", String::as_str)
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
