//! `memcuda man DIRECTORY`: the manual, a page a verb, made from the arguments and
//! the table of variables themselves. For whoever packs the command; hidden.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_mangen::generate_to;
use clap_mangen::roff::{Roff, bold, roman};
use memcuda::config::VARIABLES;

/// Write the manual pages into a directory.
#[derive(clap::Args)]
pub struct Arguments {
    /// Made where it is missing
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub fn main(arguments: &Arguments, command: clap::Command) -> Result<ExitCode> {
    let directory = &arguments.directory;
    let into = || directory.display().to_string();
    fs::create_dir_all(directory).with_context(into)?;
    generate_to(command.clone(), directory).with_context(into)?;

    // The first page says what all of them heed.
    let first = directory.join("memcuda.1");
    let mut page = File::options()
        .append(true)
        .open(&first)
        .with_context(|| first.display().to_string())?;
    environment().to_writer(&mut page).with_context(into)?;
    Ok(ExitCode::SUCCESS)
}

/// Every variable: what it accepts, the default first, and what it does.
fn environment() -> Roff {
    let plain = |markdown: &str| markdown.replace('`', "");
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman(
        "All optional; an empty one is as none. An invalid value is one line on standard error, or in MEMCUDA_LOG_FILE, and the program runs on the plain driver.",
    )]);
    for variable in VARIABLES {
        roff.control("TP", []);
        roff.text([
            bold(variable.name),
            roman(format!(" = {}", plain(variable.accepts))),
        ]);
        roff.text([roman(plain(variable.meaning))]);
    }
    roff
}
