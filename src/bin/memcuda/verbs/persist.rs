//! `memcuda persist`: whether names outlive their holders, and for how long.

use std::process::ExitCode;

use anyhow::Result;
use memcuda::epoch::now_us;
use memcuda::names::Name;
use memcuda::share::protocol::{Persist, Reply, Request};
use memcuda::units::show_bytes;

use crate::accepted;
use crate::names::reach::{self, Keeper};
use crate::names::{chosen, entry};

/// Let names outlive their holders: until they are deleted, or for a time.
#[derive(clap::Args)]
pub struct Arguments {
    /// The names; * stands for any text, ? for one character (`ls` shows which these are)
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// So long from now
    #[arg(long = "for", value_name = "SECONDS", value_parser = accepted::between(1_u64..=u64::from(u32::MAX)))]
    seconds: Option<u64>,
    /// Not any more: each goes with its last holder
    #[arg(long, conflicts_with = "seconds")]
    not: bool,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let now_us = now_us();
    let persist = match (arguments.seconds, arguments.not) {
        (Some(seconds), _) => Persist::for_seconds(seconds, now_us),
        (None, false) => Persist::Yes,
        (None, true) => Persist::No,
    };
    chosen::each(&arguments.names, |keeper, name| {
        set(keeper, name, persist, now_us)
    })
}

/// Says how long a name lives, and how that is to people.
fn set(keeper: &mut Keeper, name: &Name, persist: Persist, now_us: u64) -> Result<String> {
    let seen = chosen::seen(keeper, name)?;
    let name = name.clone();
    match keeper.ask(Request::Persist { name, persist })? {
        Reply::Done => Ok(match seen {
            Some(entry) if persist == Persist::No && entry.references == 0 => {
                format!("nobody holds it; {} freed", show_bytes(entry.mapped))
            }
            _ => format!("lives {}", entry::lives(persist, now_us)),
        }),
        other => Err(reach::unexpected(&other)),
    }
}
