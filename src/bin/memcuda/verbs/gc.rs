//! `memcuda gc`: frees memory that nobody holds.

use std::process::ExitCode;

use anyhow::Result;
use memcuda::share::protocol::{Reply, Request};
use memcuda::units::show_bytes;

use crate::names::reach::{self, Found, Keeper};
use crate::output;

/// Free what nobody holds and nothing keeps; names that were persisted stay.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only say what would be freed
    #[arg(long)]
    dry_run: bool,
    /// Persisted names that nobody holds, too
    #[arg(long)]
    kept: bool,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let mut keeper = match reach::find()? {
        Found::Keeper(keeper) => keeper,
        Found::Off(why) | Found::Nobody(why) => {
            output::line(format_args!("{why}; nothing to free"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let (count, bytes) = collect(&mut keeper, arguments.dry_run, arguments.kept)?;
    // What was freed is gone from the sum below already.
    let (verb, (n, b)) = match arguments.dry_run {
        true => ("would free", (count, bytes)),
        false => ("freed", (0, 0)),
    };
    output::line(format_args!("{verb} {}", some(count, bytes)))?;
    if !arguments.kept {
        let (all, all_bytes) = collect(&mut keeper, true, true)?;
        if let left @ 1.. = all.saturating_sub(n) {
            let left = some(left, all_bytes.saturating_sub(b));
            let line = format_args!("persisted and held by nobody: {left} (gc --kept frees them)");
            output::line(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn collect(keeper: &mut Keeper, dry: bool, kept: bool) -> Result<(u64, u64)> {
    match keeper.ask(Request::Collect { dry, kept })? {
        Reply::Collected { count, bytes } => Ok((count, bytes)),
        other => Err(reach::unexpected(&other)),
    }
}

fn some(count: u64, bytes: u64) -> String {
    match count {
        0 => "nothing".to_owned(),
        _ => format!(
            "{}, {}",
            output::times(count, "allocation", "allocations"),
            show_bytes(bytes)
        ),
    }
}
