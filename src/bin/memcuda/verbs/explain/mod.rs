//! `memcuda explain`: in words where a device's memory went. Of a process that
//! runs and of the report of an allocation that failed it says who holds what
//! (`picture`), of a trace what was live when, and what would have been under
//! other settings (`trace`).

mod before;
mod estimates;
mod json;
mod picture;
mod svg;
mod trace;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use memcuda::error::Error;
use memcuda::picture::bytes;
use memcuda::trace::replay::Profile;

use crate::output::{self, plain};
use crate::pictures::history::History;
use crate::pictures::picture::{find, process_of};
use crate::process;
use crate::survey;
use crate::verbs::replay::{chunk, limit, size};
use crate::whole;

/// Most events of a recording that are looked at for a report.
const EVENTS: usize = 1 << 20;

/// Say in words where a device's memory went, and why there was none left.
///
/// What is said of other settings comes from a replay of the trace, and is
/// called an estimate.
#[derive(clap::Args)]
pub struct Arguments {
    /// A process, a report of out of memory, a folder of such (the latest is taken), or a trace
    #[arg(value_name = "PID|REPORT|TRACE")]
    source: PathBuf,
    /// Would the trace's requests be served with so much physical memory?
    #[arg(long, value_name = "SIZE", value_parser = size)]
    would_fit: Option<u64>,
    /// What would the pool hold with physical handles of this size?
    #[arg(long, value_name = "SIZE", value_parser = chunk)]
    chunk: Option<u64>,
    /// What would it hold under this limit?
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    limit: Option<u64>,
    /// How the trace's requests reach the pool [default: async]
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// Draw what was live over time; of a report, what was before it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// Of a trace: one JSON object (of a process or a report: memcuda snapshot --json)
    #[arg(long)]
    json: bool,
    /// What happened before a report is in this trace [default: what its process recorded]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
}

impl Arguments {
    fn of_traces(&self) -> bool {
        let sizes = [self.would_fit, self.chunk, self.limit];
        sizes.iter().any(Option::is_some) || self.profile.is_some() || self.json
    }

    /// How the trace's requests reach the pool.
    fn profile(&self) -> Profile {
        self.profile.unwrap_or(Profile::Async)
    }
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    if arguments
        .svg
        .as_ref()
        .is_some_and(|to| to.as_os_str() == "-")
    {
        let why = "standard output has the words; accepted: a file, such as ./-";
        return Err(Error::new(format!("--svg -: {why}")).into());
    }
    let text = match trace_of(arguments)? {
        Some(path) if arguments.trace.is_some() => {
            let text = "is no report; --trace says what happened before one";
            return Err(Error::new(format!("{} {text}", path.display())).into());
        }
        Some(path) => trace::explain(&path, arguments)?,
        None => of_picture(arguments)?,
    };
    output::out().write_all(plain_lines(&text).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn of_picture(arguments: &Arguments) -> Result<String> {
    let read = iter::once(&arguments.source).chain(&arguments.trace);
    if let Some(to) = &arguments.svg {
        whole::apart(to, read.map(PathBuf::as_path))?;
    }
    let picture = find(&arguments.source)?;
    // It is read from its beginning, which may be long ago: not unasked for a
    // process that runs.
    let history = match picture.refused.is_some() || arguments.trace.is_some() {
        true => History::of_report(&picture, arguments.trace.as_deref(), EVENTS)?,
        false => None,
    };
    if let Some(to) = &arguments.svg {
        let charts: Vec<_> = picture.devices.iter().filter_map(before::chart).collect();
        if charts.is_empty() {
            let why = "the process kept nothing of what was before (MEMCUDA_OOM_REPORT)";
            return Err(Error::of_file(&arguments.source, why).into());
        }
        let drawn = svg::page(&picture.process.command, &charts);
        whole::write(to, |out| Ok(out.write_all(drawn.as_bytes())?))?;
    }
    picture::explain(&picture, history.as_ref())
}

/// The trace that is asked about; `None` where a picture is.
fn trace_of(arguments: &Arguments) -> Result<Option<PathBuf>> {
    let source = &arguments.source;
    let shown = source.display();
    let no_trace = |what: String| {
        let text = "--would-fit, --chunk, --limit, --profile and --json are about a trace";
        Error::new(format!("{what}; {text}"))
    };
    let path = match process_of(source) {
        Some(_) if !arguments.of_traces() && arguments.svg.is_none() => return Ok(None),
        Some(pid) => {
            survey::check(pid)?;
            let without = || no_trace(format!("process {pid} records no trace (MEMCUDA_TRACE)"));
            match process::recording(pid) {
                Some(recording) => recording.path,
                None if !arguments.of_traces() => return Ok(None),
                None => return Err(without().into()),
            }
        }
        None => source.clone(),
    };
    if !path.is_dir() && !starts_with(&path, &bytes::MAGIC) {
        if path.exists() && !path.is_file() {
            let why = "no file; a trace is read more than once, so it cannot be a pipe";
            return Err(Error::of_file(source, why).into());
        }
        return Ok(Some(path));
    }
    match arguments.of_traces() {
        true => Err(no_trace(format!("{shown} is a report")).into()),
        false => Ok(None),
    }
}

fn starts_with(path: &Path, magic: &[u8]) -> bool {
    let mut start = vec![0; magic.len()];
    // To open a pipe would be to wait for it.
    let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
    let mut read = || File::open(path).and_then(|mut file| file.read_exact(&mut start));
    is_file && read().is_ok() && start == magic
}

/// Names and command lines are other people's: nothing in them is a command to
/// the terminal.
fn plain_lines(text: &str) -> String {
    let lines = text.lines().map(plain);
    lines.fold(String::new(), |all, line| all + &line + "\n")
}
