//! What the verbs print: JSON lines for programs, tables for people. Writes to
//! standard output only.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a, T> {
    schema: String,
    #[serde(flatten)]
    value: &'a T,
}

/// Prints one JSON object, whose first field is `memcuda.<verb>/1`.
pub fn json<T: Serialize>(verb: &str, value: &T) -> Result<()> {
    let schema = format!("memcuda.{verb}/1");
    let line = serde_json::to_string(&Line { schema, value })?;
    writeln!(std::io::stdout().lock(), "{line}")?;
    Ok(())
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

    /// Prints it.
    pub fn print(&self) -> Result<()> {
        let width = |at: usize| self.rows.iter().map(|row| row[at].chars().count()).max();
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|at| width(at).unwrap_or(0))
            .collect();
        let mut out = std::io::stdout().lock();
        for row in &self.rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                line += &match self.figures {
                    true => format!("  {cell:>width$}"),
                    false => format!("  {cell:<width$}"),
                };
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Bytes for people, or `unknown`.
pub fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), memcuda::units::show_bytes)
}
