//! What the verbs print: JSON lines for programs, tables for people, on standard output;
//! and what they say beside it, on standard error. Never panics where that takes nothing.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a, T> {
    schema: String,
    #[serde(flatten)]
    value: &'a T,
}

/// Standard output. Where it takes nothing the error says that it was this: what alone says
/// "no space left on device" could speak of a GPU.
pub struct Out(StdoutLock<'static>);

/// Takes it, until that is dropped.
pub fn out() -> Out {
    Out(std::io::stdout().lock())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_output)
    }
}

fn of_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the output: {error}"))
}

/// Prints one JSON object, whose first field is `memcuda.<verb>/1`.
pub fn json<T: Serialize>(verb: &str, value: &T) -> Result<()> {
    json_lines(verb, std::slice::from_ref(value))
}

/// Prints such objects, a line each, in few writes however many there are.
pub fn json_lines<T: Serialize>(verb: &str, values: &[T]) -> Result<()> {
    let mut out = BufWriter::new(out());
    for value in values {
        write_json(&mut out, verb, value)?;
    }
    Ok(out.flush()?)
}

/// Writes such an object elsewhere.
pub fn write_json<T: Serialize>(out: &mut dyn Write, verb: &str, value: &T) -> Result<()> {
    let schema = format!("memcuda.{verb}/1");
    serde_json::to_writer(&mut *out, &Line { schema, value }).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// Prints a line. Unlike `println!` it fails, and does not panic, where nobody reads
/// it any more.
pub fn line(text: impl std::fmt::Display) -> Result<()> {
    Ok(writeln!(out(), "{text}")?)
}

/// Has whoever read the output seen enough (`| head`)?
pub fn is_unread(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// How a verb ends whose work was done before all of this was printed: as the work went, also
/// where nobody reads of it.
pub fn after(work: ExitCode, printed: Result<()>) -> Result<ExitCode> {
    match printed {
        Err(error) if !is_unread(&error) => Err(error),
        _ => Ok(work),
    }
}

/// Says something beside the output, in one line. Where nobody takes it, it is not said: no
/// work is given up for that, nor is its status another one.
pub fn say(text: impl std::fmt::Display) {
    let line = format!("memcuda: {text}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Prints what the parser of the arguments was asked for: help, or the version.
pub fn parsed(asked: &clap::Error) -> Result<ExitCode> {
    asked.print().map_err(of_output)?;
    Ok(ExitCode::SUCCESS)
}

/// Columns and rows of the terminal. Where the output is none nothing is left out: a
/// program reads it.
pub fn terminal() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        Ok(_) => (80, 24),
        Err(_) => (usize::MAX, usize::MAX),
    }
}

/// A table of text.
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Do figures stand right, under each other? The first column is a name.
    figures: bool,
}

impl Table {
    /// A table whose columns after the first are figures.
    pub fn new(headings: &[&str]) -> Self {
        let rows = vec![headings.iter().map(|h| (*h).to_owned()).collect()];
        Self {
            rows,
            figures: true,
        }
    }

    /// A table of words: every column stands left.
    pub fn left(headings: &[&str]) -> Self {
        Self {
            figures: false,
            ..Self::new(headings)
        }
    }

    /// Adds a row, as wide as the headings.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }

    /// Makes it no wider than this, where that can be had by leaving out the
    /// middle of cells in these columns, each with the least that it keeps. The
    /// widest one gives first.
    pub fn shrink(&mut self, width: usize, columns: &[(usize, usize)]) {
        let mut widths = self.widths();
        let gaps = 2 * (widths.len() - 1);
        while widths.iter().sum::<usize>() + gaps > width {
            let can = columns.iter().filter(|&&(at, least)| widths[at] > least);
            match can.max_by_key(|&&(at, _)| widths[at]) {
                Some(&(at, _)) => widths[at] -= 1,
                None => break,
            }
        }
        for row in &mut self.rows {
            for &(at, _) in columns {
                row[at] = without_middle(&row[at], widths[at]);
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |at: usize| self.rows.iter().map(|row| row[at].chars().count()).max();
        let columns = 0..self.rows[0].len();
        columns.map(|at| width(at).unwrap_or(0)).collect()
    }

    /// Prints it.
    pub fn print(&self) -> Result<()> {
        let mut out = out();
        out.write_all(self.text("").as_bytes())?;
        Ok(out.flush()?)
    }

    /// Its lines, each behind this margin.
    pub fn text(&self, margin: &str) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = format!("{margin}{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                line += &match self.figures {
                    true => format!("  {cell:>width$}"),
                    false => format!("  {cell:<width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// A text of at most so many characters: its beginning and its end.
fn without_middle(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let end = most.saturating_sub(2) / 2;
    let begin = most.saturating_sub(2) - end;
    let first = text.chars().take(begin);
    let last = text.chars().skip(count - end);
    first.chain("..".chars()).chain(last).collect()
}

/// Bytes for people, or `unknown`.
pub fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), memcuda::units::show_bytes)
}

/// A number of things: `1 failure`, `2 failures`.
pub fn times(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Text of another process, fit for a terminal: nothing in it is a command.
pub fn plain(text: &str) -> String {
    let fit = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        assert_eq!(without_middle("weights/0/q", 11), "weights/0/q");
        assert_eq!(without_middle("weights/0/q", 10), "weig../0/q");
        assert_eq!(without_middle("äöüäöüäöüß", 5), "äö..ß");
    }

    #[test]
    fn a_table_shrinks_in_its_widest_column_first() {
        let mut table = Table::left(&["name", "size", "who"]);
        table.row(vec!["n".repeat(200), "1 MiB".to_owned(), "w".repeat(30)]);
        table.shrink(60, &[(0, 10), (2, 10)]);
        assert_eq!(table.widths(), [26, 5, 25]);
        assert_eq!(table.rows[1][1], "1 MiB");
        table.shrink(5, &[(0, 10), (2, 20)]);
        assert_eq!(table.widths(), [10, 5, 20]);
    }
}
