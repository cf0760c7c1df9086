//! `memcuda rm`: hides names at once; their memory goes with the last holder.

use std::process::ExitCode;

use anyhow::Result;
use memcuda::names::Name;
use memcuda::share::protocol::{Entry, Reply, Request};
use memcuda::units::show_bytes;

use crate::names::chosen;
use crate::names::reach::{self, Keeper};

/// Delete names: hidden at once, their memory is freed with the last holder.
#[derive(clap::Args)]
pub struct Arguments {
    /// The names; * stands for any text, ? for one character (`ls` shows which these are)
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    chosen::each(&arguments.names, delete)
}

/// Deletes a name, and says what becomes of its memory.
fn delete(keeper: &mut Keeper, name: &Name) -> Result<String> {
    // The one that was seen, not one that was made meanwhile.
    let seen = chosen::seen(keeper, name)?;
    let delete = Request::Delete {
        name: name.clone(),
        generation: seen.as_ref().map(|entry| entry.generation),
    };
    match keeper.ask(delete)? {
        Reply::Done => Ok(seen.map_or("deleted".to_owned(), |entry| becomes(&entry))),
        other => Err(reach::unexpected(&other)),
    }
}

fn becomes(entry: &Entry) -> String {
    let size = show_bytes(entry.mapped);
    match entry.references {
        0 => format!("deleted, {size} freed"),
        _ => format!(
            "deleted; its {size} go with the last holder ({})",
            crate::names::entry::held_by(entry)
        ),
    }
}
