//! `memcuda show`: everything that is known of one name.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use memcuda::epoch::now_us;
use memcuda::names::Name;
use memcuda::share::client::Error;
use memcuda::share::protocol::{Entry, Process, State};
use memcuda::units::show_bytes;

use crate::names::entry::{self, Object};
use crate::names::reach::{self, Found};
use crate::{accepted, output};

/// How long `--wait` waits between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Show what is known of a name, and all who hold its memory.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name
    name: String,
    /// Wait so long until it can be opened, also where no keeper runs yet
    #[arg(long, value_name = "SECONDS", value_parser = accepted::number::<u64>)]
    wait: Option<u64>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let name = Name::new(&arguments.name)?;
    let entry = match arguments.wait {
        None => reach::find()?.keeper()?.show(&name),
        Some(seconds) => await_name(&name, Duration::from_secs(seconds)),
    };
    let entry = entry.map_err(|error| match error.is::<Error>() {
        true => error.context(name.to_string()),
        false => error,
    })?;
    if arguments.json {
        output::json("show", &Object::new(&entry, now_us()))?;
    } else {
        print(&entry)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The entry of a name, once others can open it.
fn await_name(name: &Name, longest: Duration) -> Result<Entry> {
    let began = Instant::now();
    loop {
        let found = match reach::find() {
            Ok(Found::Off(why)) => bail!(why),
            found => found.and_then(Found::keeper),
        };
        let why = match found.and_then(|mut it| it.show(name)) {
            Ok(entry) if entry.state != State::Creating => return Ok(entry),
            Ok(_) => anyhow!("{name} is still being made"),
            // What somebody wrote stays wrong.
            Err(error) if error.is::<memcuda::error::Error>() => return Err(error),
            Err(error) => error,
        };
        if began.elapsed() >= longest {
            return Err(why);
        }
        std::thread::sleep(PAUSE);
    }
}

fn print(entry: &Entry) -> Result<()> {
    let now_us = now_us();
    let ago = |then_us| {
        let seconds = entry::seconds_since(then_us, now_us);
        format!("{} ago", entry::show_seconds(seconds))
    };
    let spec = &entry.spec;
    let mut out = output::out();
    let mut line = |what: &str, text: String| writeln!(out, "{what:<12}{text}");
    line("name", entry::title(entry))?;
    line("state", state(entry))?;
    line("elements", entry::elements_of(entry))?;
    let (size, mapped) = (entry::size(entry), show_bytes(entry.mapped));
    line(
        "size",
        format!("{size} ({} bytes), {mapped} of the device", spec.bytes),
    )?;
    line("device", format!("{} ({})", spec.ordinal, spec.device))?;
    line("backend", spec.backend.word().to_owned())?;
    line("lives", entry::lives(entry.persist, now_us))?;
    line(
        "made",
        format!("by {}, {}", of(&entry.maker), ago(entry.created_us)),
    )?;
    line("changed", ago(entry.changed_us))?;
    line("generation", entry.generation.to_string())?;
    if entry.references == 0 {
        line("held by", "nobody".to_owned())?;
    }
    for (at, holder) in entry.holders.iter().enumerate() {
        let what = if at == 0 { "held by" } else { "" };
        let times = match holder.count {
            1 => String::new(),
            count => format!(", {count} times"),
        };
        line(what, format!("{}{times}", of(&holder.process)))?;
    }
    let shown: u64 = entry.holders.iter().map(|it| u64::from(it.count)).sum();
    if let left @ 1.. = entry.references.saturating_sub(shown) {
        line("", format!("others, {left} times"))?;
    }
    Ok(())
}

fn state(entry: &Entry) -> String {
    let state = match entry.state {
        State::Creating => "creating: nobody else can open it yet",
        State::Ready => "ready",
        State::Sealed => "sealed: opened for reading only",
        State::Dying => "deleted: gone with its last holder",
    };
    match entry.version {
        0 => state.to_owned(),
        version => format!("{state}, version {version}"),
    }
}

fn of(process: &Process) -> String {
    format!("{} (user {})", entry::who(process), process.uid)
}
