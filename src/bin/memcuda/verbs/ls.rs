//! `memcuda ls`: the named memory of this host, once or again and again.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use memcuda::epoch::now_us;
use memcuda::names::{Name, Pattern};
use memcuda::share::protocol::{Entry, Generation, State};
use memcuda::units::show_bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::names::entry::{self, Object};
use crate::names::nodes;
use crate::names::reach::{self, Found};
use crate::output::{self, Table};

/// How long `--watch` waits between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// List named memory: what, who holds it, since when.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these; * stands for any text, ? for one character
    #[arg(value_name = "NAME", value_parser = entry::pattern)]
    names: Vec<Pattern>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Look again every second; with --json, print what is new, changed or gone
    #[arg(long)]
    watch: bool,
    /// Unnamed exports (CUDA IPC) and deleted names that somebody holds, too
    #[arg(long)]
    all: bool,
    /// What the keepers of all hosts publish in Redis (MEMCUDA_REDIS)
    #[arg(long, conflicts_with_all = ["watch", "all"])]
    all_nodes: bool,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.all_nodes {
        nodes::list(&arguments.names, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    match (arguments.watch, arguments.json) {
        (false, _) => once(arguments)?,
        (true, false) => watch(arguments)?,
        (true, true) => follow(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The entries now; without a keeper there are none, and the reason is second.
fn look(arguments: &Arguments) -> Result<(Vec<Entry>, Option<String>)> {
    match reach::find()? {
        Found::Keeper(mut keeper) => {
            let mut entries = keeper.list(arguments.all)?;
            entries.retain(|it| {
                let name = it.name.as_ref().map(Name::as_str);
                entry::is_chosen(name, &arguments.names)
            });
            Ok((entries, None))
        }
        Found::Off(why) | Found::Nobody(why) => Ok((Vec::new(), Some(why))),
    }
}

fn once(arguments: &Arguments) -> Result<()> {
    let (entries, nobody) = look(arguments)?;
    if !arguments.json {
        return print(arguments, &entries, nobody, usize::MAX);
    }
    if let Some(why) = nobody {
        output::say(why);
    }
    let now_us = now_us();
    let objects: Vec<_> = entries.iter().map(|it| Object::new(it, now_us)).collect();
    output::json_lines("ls", &objects)
}

fn watch(arguments: &Arguments) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    loop {
        let (entries, nobody) = look(arguments)?;
        if terminal {
            // Home, and nothing below.
            write!(output::out(), "\x1b[H\x1b[2J")?;
        }
        // Headings, the sum and the cursor have a line each, and so has the
        // line that says how many names there was no room for.
        let rows = output::terminal().1.saturating_sub(5).max(1);
        print(arguments, &entries, nobody, rows)?;
        output::out().flush()?;
        if !pause() {
            return Ok(());
        }
    }
}

fn follow(arguments: &Arguments) -> Result<()> {
    let mut before: HashMap<Generation, Entry> = HashMap::new();
    loop {
        let (entries, _) = look(arguments)?;
        let now_us = now_us();
        let changed = entries
            .iter()
            .filter(|it| before.get(&it.generation) != Some(it));
        let mut objects: Vec<_> = changed.map(|it| Object::new(it, now_us)).collect();
        let mut gone = std::mem::take(&mut before);
        for entry in &entries {
            gone.remove(&entry.generation);
        }
        let mut gone: Vec<_> = gone.into_values().collect();
        gone.sort_by(|a, b| (&a.name, a.generation).cmp(&(&b.name, b.generation)));
        objects.extend(gone.iter().map(|it| Object::gone(it, now_us)));
        output::json_lines("ls", &objects)?;
        output::out().flush()?;
        before = entries.into_iter().map(|it| (it.generation, it)).collect();
        if !pause() {
            return Ok(());
        }
    }
}

/// Waits for the next look; false once nobody reads the output any more, which a write would
/// tell, too, where there is something to be written.
fn pause() -> bool {
    let output = std::io::stdout();
    let mut gone = [PollFd::new(&output, PollFlags::empty())];
    !matches!(
        poll(&mut gone, Timespec::try_from(PAUSE).ok().as_ref()),
        Ok(1..)
    )
}

/// The table, of at most so many rows, and a line of sums.
fn print(
    arguments: &Arguments,
    entries: &[Entry],
    nobody: Option<String>,
    rows: usize,
) -> Result<()> {
    if entries.is_empty() {
        let none = match arguments.names.is_empty() {
            true => "no memory has a name",
            false => "no memory has such a name",
        };
        return output::line(nobody.as_deref().unwrap_or(none));
    }
    let now_us = now_us();
    let mut headings = vec!["name", "size", "elements", "gpu", "held by", "age"];
    // A column that says the same everywhere would only take room.
    let states = entries.iter().any(|it| it.state != State::Ready);
    if states {
        headings.push("state");
    }
    let mut table = Table::left(&headings);
    for it in entries.iter().take(rows) {
        let mut row = vec![
            entry::title(it),
            entry::size(it),
            entry::elements_of(it),
            it.spec.ordinal.to_string(),
            entry::held_by(it),
            entry::show_seconds(entry::seconds_since(it.created_us, now_us)),
        ];
        if states {
            row.push(entry::state(it).to_owned());
        }
        table.row(row);
    }
    // With the other cells at their longest, the least of these makes 80.
    table.shrink(output::terminal().0, &[(0, 15), (2, 11), (4, 17)]);
    table.print()?;
    if let left @ 1.. = entries.len().saturating_sub(rows) {
        output::line(format_args!("... and {left} more"))?;
    }
    output::line(format_args!("\n{}", sums(entries)))
}

/// How many, how much, and how much of it nobody holds.
fn sums(entries: &[Entry]) -> String {
    let unheld = |it: &&Entry| it.references == 0 && it.state != State::Creating;
    let all: u64 = entries.iter().map(|it| it.mapped).sum();
    let (count, kept) = entries
        .iter()
        .filter(unheld)
        .fold((0, 0), |(n, sum), it| (n + 1, sum + it.mapped));
    let many = output::times(entries.len() as u64, "allocation", "allocations");
    let mut line = format!("{many}, {}", show_bytes(all));
    if count > 0 {
        line += &format!("; nobody holds {count} of them, {}", show_bytes(kept));
    }
    line
}
