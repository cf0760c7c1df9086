//! `memcuda trace`: what a process recorded of itself becomes a text trace in
//! zstd, a small part of its size. Also what verbs say of a trace that lacks
//! something.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use memcuda::error::Error;
use memcuda::trace::{Reader, Shortfall, write};

use crate::output::{self, times};
use crate::whole;

/// Bytes of text that are written at once.
const PART: usize = 1 << 16;
/// Of zstd: the one that costs about as much as the rest.
const LEVEL: i32 = 3;

/// Turn a recording (MEMCUDA_TRACE) into a text trace, compressed.
///
/// Every verb that takes a trace takes a recording, too; as text it is about a
/// tenth of the size, and other programs can read it. What is missing is said.
#[derive(clap::Args)]
pub struct Arguments {
    /// A recording; a text trace is written anew
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Where to write; `-`: standard output, not compressed [default: FILE.zst]
    #[arg(short, long, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let file = &arguments.file;
    let out = match &arguments.output {
        Some(out) => out.clone(),
        None => beside(file)?,
    };
    if out.as_os_str() == "-" {
        let mut reader = open(file).map_err(|error| Error::of_file(file, error))?;
        copy(file, &mut reader, &mut output::out())?;
        say(file, reader.shortfall());
    } else {
        // A process may go on recording to it.
        whole::apart(&out, [file.as_path()])?;
        let (events, shortfall) = convert(file, &out)?;
        say(file, shortfall);
        let events = times(events, "event", "events");
        output::say(format_args!("{events} in {}", out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a trace goes by itself: FILE.zst.
fn beside(file: &Path) -> Result<PathBuf> {
    if file.exists() && file.extension().is_some_and(|it| it == "zst") {
        let why = "its name ends in .zst already; name another file with --output";
        return Err(Error::of_file(file, why).into());
    }
    let mut name = file.as_os_str().to_owned();
    name.push(".zst");
    Ok(PathBuf::from(name))
}

/// Opens a trace of any form. Errors do not name the file: nor do those of its events.
pub fn open(path: &Path) -> memcuda::error::Result<Reader<'static>> {
    begin(File::open(path).map_err(|error| Error::new(error.to_string()))?)
}

/// Begins to read a file that is open.
pub fn begin(file: File) -> memcuda::error::Result<Reader<'static>> {
    Reader::new(BufReader::with_capacity(1 << 16, file))
}

/// Writes a trace as compressed text; the file is there whole or not at all.
/// How many events there were, and what is missing.
pub fn convert(from: &Path, to: &Path) -> Result<(u64, Shortfall)> {
    let mut reader = open(from).map_err(|error| Error::of_file(from, error))?;
    let mut events = 0;
    whole::write(to, |file| {
        let mut encoder = zstd::Encoder::new(file, LEVEL)?;
        encoder.include_checksum(true)?;
        let mut out = BufWriter::with_capacity(PART, encoder);
        events = copy(from, &mut reader, &mut out)?;
        let encoder = out.into_inner().map_err(|error| error.into_error())?;
        encoder.finish()?;
        Ok(())
    })?;
    Ok((events, reader.shortfall()))
}

/// Writes all events of a trace as text.
fn copy(from: &Path, reader: &mut Reader<'_>, out: &mut impl Write) -> Result<u64> {
    let mut next = reader.next();
    let mut text = write::head(reader);
    let mut events = 0;
    while let Some(event) = next {
        let event = event.map_err(|error| Error::of_file(from, error))?;
        write::line(&event, reader, &mut text);
        events += 1;
        if text.len() >= PART {
            out.write_all(text.as_bytes())?;
            text.clear();
        }
        next = reader.next();
    }
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(events)
}

/// Says what a trace lacks.
pub fn say(path: &Path, shortfall: Shortfall) {
    for line in lacks(shortfall) {
        output::say(format_args!("{}: {line}", path.display()));
    }
}

/// The same, as lines.
pub fn lacks(shortfall: Shortfall) -> Vec<String> {
    let Shortfall { lost, cut, mended } = shortfall;
    let mut lines = Vec::new();
    if let Some((there, written)) = cut {
        lines.push(format!(
            "the file is cut off behind frame {there} of {written}; what is before it was used"
        ));
    }
    if lost > 0 {
        lines.push(format!(
            "{lost} {} missing: what follows from them is not in the figures",
            if lost == 1 { "event is" } else { "events are" }
        ));
    }
    if mended > 0 {
        lines.push(format!(
            "{mended} {} not follow from what was recorded before, and {} taken to be of missing events",
            if mended == 1 { "event does" } else { "events do" },
            if mended == 1 { "is" } else { "are" }
        ));
    }
    lines
}
