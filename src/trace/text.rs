//! Reads a trace that is text. Checks every line on its own and says which one
//! is wrong; never holds the whole trace, never repairs it.

use std::io::{BufRead, Read};

use super::reader::Words;
use super::{Event, Op, Owner, Use};
use crate::error::{Error, Result};

/// How the first line begins.
pub const FIRST_LINE: &str = "# memcuda-trace ";
/// The version that is read and written.
pub const VERSION: &str = "1";
/// How the line begins that says what was recorded, where there is one.
pub const PROCESS_LINE: &str = "# process ";
/// Most columns of a trace, unknown ones included.
const MAX_COLUMNS: usize = 16;
/// No line of a trace is near this long; a longer one is not a trace.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// How a trace spells [`Use`].
pub const USES: [(&str, Use); 3] = [
    ("stream", Use::Stream),
    ("any", Use::Any),
    ("complete", Use::Complete),
];
/// How it spells [`Owner`].
pub const OWNERS: [(&str, Owner); 3] = [
    ("context", Owner::Context),
    ("pool", Owner::MemoryPool),
    ("page", Owner::Page),
];

/// A trace, a line after the other.
pub struct Text<'a> {
    input: Box<dyn BufRead + 'a>,
    columns: Columns,
    process: Option<Process>,
    text: String,
    line: u64,
}

/// What was recorded.
pub struct Process {
    pub pid: u64,
    /// When the recording began, in microseconds of the Unix epoch.
    pub began_us: u64,
    pub command: String,
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
    uses: Option<usize>,
    owner: Option<usize>,
    /// Thread, caller, name and stack.
    words: [Option<usize>; 4],
    count: usize,
}

impl<'a> Text<'a> {
    /// Reads the header of a trace. Messages begin with `line N: `.
    pub fn new(input: Box<dyn BufRead + 'a>) -> Result<Self> {
        let columns = Columns::default();
        let (text, line) = (String::new(), 0);
        let mut reader = Self {
            input,
            columns,
            process: None,
            text,
            line,
        };
        reader.read_header()?;
        Ok(reader)
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
            self.read_first_line()?;
            if let Some(process) = self.text.strip_prefix(PROCESS_LINE) {
                let process = Process::parse(process).map_err(|m| self.error(&m))?;
                self.process = Some(process);
                self.read_first_line()?;
            }
        }
        self.columns = Columns::parse(&self.text).map_err(|m| self.error(&m))?;
        Ok(())
    }

    /// Reads one of the lines before the events.
    fn read_first_line(&mut self) -> Result<()> {
        if self.read_line()? {
            return Ok(());
        }
        self.line += 1;
        Err(self.error("the trace ends before the line with the names of the columns"))
    }

    /// What was recorded, where the trace says it.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
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

    /// The next event; `None` at the end.
    pub fn event(&mut self, words: &mut Words) -> Result<Option<Event>> {
        if !self.read_line()? {
            return Ok(None);
        }
        let event = self.columns.event(&self.text, self.line, words);
        event.map(Some).map_err(|m| self.error(&m))
    }

    fn error(&self, message: &str) -> Error {
        Error::new(format!("line {}: {message}", self.line))
    }
}

impl Process {
    fn parse(line: &str) -> std::result::Result<Self, String> {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next()?.parse().ok();
        let (pid, began_us) = (number(), number());
        let (Some(pid), Some(began_us)) = (pid, began_us) else {
            let accepted = "accepted: process id, microseconds of the Unix epoch, command line";
            return Err(format!("the process is {}; {accepted}", show(line)));
        };
        let command = words.next().unwrap_or_default().to_owned();
        Ok(Self {
            pid,
            began_us,
            command,
        })
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
        let find = |name| match names.iter().position(|n| *n == name) {
            Some(at) if names[at + 1..].contains(&name) => {
                Err(format!("column {name:?} is there twice"))
            }
            at => Ok(at),
        };
        let need = |name| {
            find(name)?.ok_or_else(|| {
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
            device: find("device")?,
            uses: find("uses")?,
            owner: find("owner")?,
            words: [
                find("thread")?,
                find("caller")?,
                find("name")?,
                find("stack")?,
            ],
            count: names.len(),
        })
    }

    fn event(
        &self,
        text: &str,
        line: u64,
        words: &mut Words,
    ) -> std::result::Result<Event, String> {
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
        let [thread, caller, name, stack] = self
            .words
            .map(|column| column.map_or(0, |column| words.number(fields[column])));
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
            uses: match self.uses {
                Some(column) => one_of("uses", fields[column], &USES)?,
                None => None,
            },
            owner: match self.owner {
                Some(column) => one_of("owner", fields[column], &OWNERS)?,
                None => None,
            },
            thread,
            caller,
            name,
            stack,
        })
    }
}

/// One of these words, or nothing, which says that it is unknown.
fn one_of<T: Copy>(
    name: &str,
    text: &str,
    known: &[(&str, T)],
) -> std::result::Result<Option<T>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = known.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        format!("{name} is {}; accepted: {}", show(text), names.join(", "))
    })
}

/// A piece of the input, quoted, escaped and short enough for a message.
fn show(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{dots}")
}
