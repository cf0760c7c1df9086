//! Reads a trace as a stream of events. Checks every line on its own and says
//! which one is wrong; never holds the whole trace, never repairs it.

use std::io::{BufRead, BufReader, Read};

use super::{Event, Op};
use crate::error::{Error, Result};

const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const FIRST_LINE: &str = "# memcuda-trace ";
const VERSION: &str = "1";
/// Most columns of a trace, unknown ones included.
const MAX_COLUMNS: usize = 16;
/// No line of a trace is near this long; a longer one is not a trace.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// An iterator over the events of a trace. It ends after the first error.
pub struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    columns: Columns,
    text: String,
    line: u64,
    failed: bool,
}

/// Where each column stands in a line.
#[derive(Default)]
struct Columns {
    t_us: usize,
    op: usize,
    id: usize,
    bytes: usize,
    stream: usize,
    device: Option<usize>,
    count: usize,
}

impl<'a> Reader<'a> {
    /// Reads the header of a trace. Messages begin with `line N: `.
    pub fn new(mut input: impl BufRead + 'a) -> Result<Self> {
        // `fill_buf` may give fewer than four bytes of a pipe, so read and chain.
        let mut start = Vec::new();
        let of_start = |e| Error::new(format!("line 1: {e}"));
        input
            .by_ref()
            .take(4)
            .read_to_end(&mut start)
            .map_err(of_start)?;
        let zstd = start == ZSTD_MAGIC;
        let input = std::io::Cursor::new(start).chain(input);
        let input: Box<dyn BufRead + 'a> = if zstd {
            let decoder = zstd::Decoder::with_buffer(input).map_err(of_start)?;
            Box::new(BufReader::with_capacity(1 << 20, decoder))
        } else {
            Box::new(input)
        };
        let columns = Columns::default();
        let (text, line, failed) = (String::new(), 0, false);
        let mut reader = Self {
            input,
            columns,
            text,
            line,
            failed,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// The line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    fn read_header(&mut self) -> Result<()> {
        if !self.read_line()? {
            self.line = 1;
            return Err(self.error("the trace is empty"));
        }
        if let Some(version) = self.text.strip_prefix(FIRST_LINE) {
            if version.trim() != VERSION {
                let version = version.trim().to_owned();
                return Err(self.error(&format!(
                    "trace version {version:?}; this memcuda reads version {VERSION}"
                )));
            }
            if !self.read_line()? {
                self.line += 1;
                return Err(
                    self.error("the trace ends before the line with the names of the columns")
                );
            }
        }
        self.columns = Columns::parse(&self.text).map_err(|m| self.error(&m))?;
        Ok(())
    }

    /// Reads the next line into `text`, without its end; false at the end.
    fn read_line(&mut self) -> Result<bool> {
        self.line += 1;
        self.text.clear();
        let read = self
            .input
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_line(&mut self.text);
        let count =
            read.map_err(|e| self.error(&format!("{e}; the file is damaged or truncated")))?;
        if count == 0 {
            self.line -= 1;
            return Ok(false);
        }
        if self.text.pop() != Some('\n') {
            return Err(self.error(if count as u64 == MAX_LINE_BYTES {
                "the line is too long for a trace"
            } else {
                "the line is cut off; the trace is truncated"
            }));
        }
        if self.text.ends_with('\r') {
            self.text.pop();
        }
        Ok(true)
    }

    fn read_event(&mut self) -> Result<Option<Event>> {
        if !self.read_line()? {
            return Ok(None);
        }
        let event = self.columns.event(&self.text, self.line);
        event.map(Some).map_err(|m| self.error(&m))
    }

    fn error(&self, message: &str) -> Error {
        Error::new(format!("line {}: {message}", self.line))
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let event = self.read_event();
        self.failed = event.is_err();
        event.transpose()
    }
}

impl Columns {
    fn parse(header: &str) -> std::result::Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        if names.len() > MAX_COLUMNS {
            return Err(format!(
                "{} columns; accepted: at most {MAX_COLUMNS}",
                names.len()
            ));
        }
        let find = |name| names.iter().position(|n| *n == name);
        let need = |name| {
            find(name).ok_or_else(|| {
                format!(
                    "no column {name:?} in {}; needed: t_us,op,id,bytes,stream",
                    show(header)
                )
            })
        };
        Ok(Self {
            t_us: need("t_us")?,
            op: need("op")?,
            id: need("id")?,
            bytes: need("bytes")?,
            stream: need("stream")?,
            device: find("device"),
            count: names.len(),
        })
    }

    fn event(&self, text: &str, line: u64) -> std::result::Result<Event, String> {
        let mut fields = [""; MAX_COLUMNS];
        let mut count = 0;
        for (slot, field) in fields.iter_mut().zip(text.split(',')) {
            *slot = field.trim();
            count += 1;
        }
        if count != self.count || text.split(',').nth(count).is_some() {
            let found = text.split(',').count();
            return Err(format!(
                "{found} columns in {}, {} expected",
                show(text),
                self.count
            ));
        }
        let number = |name: &str, column| {
            let text: &str = fields[column];
            let number = text.parse::<u64>();
            number.map_err(|_| format!("{name} is {}; accepted: a whole number", show(text)))
        };
        let id = fields[self.id];
        let digits = id.strip_prefix("0x").unwrap_or(id);
        let op = fields[self.op];
        let known = Op::NAMES.iter().find(|(name, _)| *name == op);
        Ok(Event {
            line,
            t_us: number("t_us", self.t_us)?,
            op: known.map(|(_, op)| *op).ok_or_else(|| {
                let names = Op::NAMES.map(|(name, _)| name).join(", ");
                format!("op is {}; accepted: {names}", show(op))
            })?,
            id: u64::from_str_radix(digits, 16).map_err(|_| {
                format!("id is {}; accepted: up to 16 hexadecimal digits", show(id))
            })?,
            bytes: number("bytes", self.bytes)?,
            stream: number("stream", self.stream)?,
            device: match self.device {
                Some(column) => u32::try_from(number("device", column)?).map_err(|_| {
                    format!("device is {}; accepted: an ordinal", show(fields[column]))
                })?,
                None => 0,
            },
        })
    }
}

/// A piece of the input, quoted, escaped and short enough for a message.
fn show(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "t_us,op,id,bytes,stream\n";

    fn read(bytes: &[u8]) -> Result<Vec<Event>> {
        Reader::new(bytes)?.collect()
    }

    fn message(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn columns_are_taken_by_name_with_or_without_a_first_line() {
        let expected = Event {
            line: 2,
            t_us: 7,
            op: Op::SegmentAlloc,
            id: 0x7f5a_3be0_0000,
            bytes: 2_097_152,
            stream: 3,
            device: 0,
        };
        let plain = format!("{HEADER}7,segment_alloc,7f5a3be00000,2097152,3\n");
        assert_eq!(read(plain.as_bytes()), Ok(vec![expected]));
        let other = "# memcuda-trace 1\nname,device,stream,bytes,id,op,t_us\r\nw,2,3,2097152,0x7f5a3be00000,segment_alloc,7\r\n";
        let expected = Event {
            line: 3,
            device: 2,
            ..expected
        };
        assert_eq!(read(other.as_bytes()), Ok(vec![expected]));
    }

    #[test]
    fn zstd_is_recognised_and_a_cut_frame_is_an_error_with_its_line() {
        let mut text = HEADER.to_owned();
        for n in 0..20_000 {
            text += &format!("{n},alloc,{n:x},{},0\n", n * 512 % 7919 + 1);
        }
        let whole = zstd::encode_all(text.as_bytes(), 3).unwrap();
        assert_eq!(read(&whole).unwrap().len(), 20_000);
        assert_eq!(read(&whole), read(text.as_bytes()));
        for part in [5, whole.len() / 2, whole.len() - 1] {
            let message = message(&whole[..part]);
            assert!(
                message.contains("line ") && message.contains("truncated"),
                "{message}"
            );
        }
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        let mut damaged = encoder.finish().unwrap();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        assert!(message(&damaged).contains("line "));
    }

    #[test]
    fn each_wrong_line_is_named() {
        let cases = [
            ("", "line 1: the trace is empty"),
            ("# memcuda-trace 1\n", "line 2: the trace ends before"),
            ("# memcuda-trace 2\nx\n", "line 1: trace version \"2\""),
            ("t_us,op,id,stream\n", "line 1: no column \"bytes\""),
            ("t_us,op,id,bytes,stream", "line 1: the line is cut off"),
        ];
        for (text, expected) in cases {
            let message = message(text.as_bytes());
            assert!(message.contains(expected), "{text:?}: {message}");
        }
        let cases = [
            ("0,alloc,0,512\n", "4 columns"),
            ("0,alloc,0,512,0,0\n", "6 columns"),
            ("soon,alloc,0,512,0\n", "t_us is \"soon\""),
            (
                "0,malloc,0,512,0\n",
                "op is \"malloc\"; accepted: alloc, free, free_done",
            ),
            ("0,alloc,one,512,0\n", "id is \"one\""),
            ("0,alloc,0,-1,0\n", "bytes is \"-1\""),
            ("0,alloc,0,512,\n", "stream is \"\""),
            ("0,alloc,0,512,0", "the line is cut off"),
            ("\n", "1 columns"),
        ];
        for (text, expected) in cases {
            let text = format!("{HEADER}0,alloc,0,512,0\n{text}");
            let message = message(text.as_bytes());
            assert!(
                message.contains("line 3: ") && message.contains(expected),
                "{text:?}: {message}"
            );
        }
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        assert!(message(b"\x7fELF\x02\x01\x01\0\0\n\xff\xfe\n").contains("line 1"));
        let long = vec![b'a'; 1 << 20];
        assert!(message(&long).contains("too long"));
    }

    #[test]
    fn reading_ends_at_the_first_error() {
        let text = format!("{HEADER}bad\n0,alloc,0,512,0\n");
        let mut reader = Reader::new(text.as_bytes()).unwrap();
        assert!(reader.next().unwrap().is_err());
        assert!(reader.next().is_none());
    }
}
