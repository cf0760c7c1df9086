//! `memcuda snapshot`: the picture of a process as a file, for PyTorch's viewer,
//! for people, or for programs.

mod events;
mod frame;
mod page;
mod pickle;
mod viewer;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::pictures::history::History;
use crate::pictures::picture::{find, process_of};
use crate::pictures::reading::Reading;
use crate::{accepted, output, process, whole};

/// Write down what a process holds at this moment.
///
/// The file is what PyTorch's torch.cuda.memory._dump_snapshot writes, for
/// pytorch.org/memory_viz and torch/cuda/_memory_viz.py: a segment is a range of
/// addresses, and every physical byte stands in one. What was allocated and freed
/// before is in it where the process records it (MEMCUDA_TRACE). The process goes
/// on; only its allocations wait while its tables are copied.
#[derive(clap::Args)]
pub struct Arguments {
    /// The process, or a report of out of memory (MEMCUDA_OOM_REPORT)
    #[arg(value_name = "PID|REPORT")]
    source: PathBuf,
    /// Where the file goes; `-`: standard output
    #[arg(short, long, value_name = "FILE", required_unless_present = "json")]
    output: Option<PathBuf>,
    /// A page that shows it by itself, in any browser
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Everything, as one JSON object; without -o on standard output
    #[arg(long)]
    json: bool,
    /// What happened before is in this trace [default: what the process recorded]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["html", "json"])]
    trace: Option<PathBuf>,
    /// Take so many events of it, the latest ones
    #[arg(long, value_name = "COUNT", default_value = "200000", value_parser = accepted::number::<usize>)]
    #[arg(conflicts_with_all = ["html", "json"])]
    events: usize,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let recording = recording(arguments);
    let file = arguments.output.as_ref().filter(|it| it.as_os_str() != "-");
    if let Some(to) = file {
        let own = recording.as_ref().map(|(path, _)| path);
        let read = iter::once(&arguments.source).chain(&arguments.trace);
        whole::apart(to, read.chain(own).map(PathBuf::as_path))?;
    }
    let picture = find(&arguments.source)?;
    let most = arguments.events;
    let history = match (recording, arguments.trace.as_deref()) {
        _ if arguments.html || arguments.json => None,
        (Some((path, file)), None) => History::told(&path, file, &picture, most)
            .inspect_err(|error| {
                output::say(format_args!("{error:#}; what happened before is left out"));
            })
            .ok(),
        (_, named) => History::of_report(&picture, named, most)?,
    };
    if let Some(before) = history.as_ref().map(History::left_out).filter(|n| *n > 0) {
        output::say(format_args!(
            "the latest {most} events; {before} before them are left out (--events)"
        ));
    }
    let write = |into: &mut dyn Write| match arguments {
        Arguments { html: true, .. } => page::write(&Reading::of(&picture), into),
        Arguments { json: true, .. } => output::write_json(into, "snapshot", &picture),
        _ => viewer::write(&Reading::of(&picture), history.as_ref(), into),
    };
    match file {
        Some(path) => whole::write(path, write)?,
        None => {
            let mut out = BufWriter::new(output::out());
            write(&mut out)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The recording of a process that runs; opened before its picture is taken, as
/// the process may end meanwhile.
fn recording(arguments: &Arguments) -> Option<(PathBuf, File)> {
    let pid = process_of(&arguments.source)?;
    let path = process::recording(pid)?.path;
    let file = File::open(&path).ok()?;
    Some((path, file))
}
