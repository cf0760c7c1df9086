//! `memcuda rm`: hides names at once; their memory goes with the last holder.

use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use memcuda::names::{Name, Pattern};
use memcuda::share::client::Error;
use memcuda::share::protocol::{Code, Entry, Reply, Request};
use memcuda::units::show_bytes;

use crate::reach::{self, Keeper};

/// Delete names: hidden at once, their memory is freed with the last holder.
#[derive(clap::Args)]
pub struct Arguments {
    /// The names; * stands for any text, ? for one character (`ls` shows which these are)
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    // All are looked at before any is deleted.
    let said = arguments.names.iter().map(|text| Said::new(text));
    let said: Vec<Said> = said.collect::<Result<_>>()?;
    let mut keeper = reach::find()?.keeper()?;
    let is_pattern = |said: &Said| matches!(said, Said::Pattern(_));
    let listed = match said.iter().any(is_pattern) {
        true => keeper.list(false)?,
        false => Vec::new(),
    };
    let mut names = Vec::new();
    let mut status = ExitCode::SUCCESS;
    for said in said {
        match said {
            Said::Name(name) => names.push(name),
            Said::Pattern(pattern) => {
                let before = names.len();
                let all = listed.iter().filter_map(|it| it.name.as_ref());
                names.extend(all.filter(|name| pattern.holds(name.as_str())).cloned());
                if names.len() == before {
                    eprintln!("memcuda: {pattern}: there is no such name");
                    status = ExitCode::FAILURE;
                }
            }
        }
    }
    let mut done = HashSet::new();
    names.retain(|name| done.insert(name.clone()));
    for name in names {
        match delete(&mut keeper, &name) {
            Ok(line) => writeln!(std::io::stdout().lock(), "{line}")?,
            // The next name may be there.
            Err(error) if error.is::<Error>() => {
                eprintln!("memcuda: {name}: {error:#}");
                status = ExitCode::FAILURE;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(status)
}

/// A name, or what stands for some.
enum Said {
    Name(Name),
    Pattern(Pattern),
}

impl Said {
    fn new(text: &str) -> Result<Self> {
        let pattern = Pattern::new(text).filter(|_| Pattern::is_meant(text));
        match pattern {
            Some(pattern) => Ok(Self::Pattern(pattern)),
            None => Ok(Self::Name(Name::new(text)?)),
        }
    }
}

/// Deletes a name, and says what becomes of its memory.
fn delete(keeper: &mut Keeper, name: &Name) -> Result<String> {
    let seen = match keeper.show(name) {
        Ok(entry) => Some(entry),
        // Who may delete need not be allowed to look: the keeper decides.
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::Refused(Code::NotFound | Code::Denied, _)) => None,
            _ => return Err(error),
        },
    };
    // The one that was seen, not one that was made meanwhile.
    let generation = seen.as_ref().map(|entry| entry.generation);
    let name = name.clone();
    match keeper.ask(Request::Delete {
        name: name.clone(),
        generation,
    })? {
        Reply::Done => Ok(match seen {
            Some(entry) => format!("{name}: {}", becomes(&entry)),
            None => format!("{name}: deleted"),
        }),
        other => Err(reach::unexpected(&other)),
    }
}

fn becomes(entry: &Entry) -> String {
    let size = show_bytes(entry.mapped);
    match entry.references {
        0 => format!("deleted, {size} freed"),
        _ => format!(
            "deleted; its {size} go with the last holder ({})",
            crate::entry::held_by(entry)
        ),
    }
}
