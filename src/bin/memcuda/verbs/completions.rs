//! `memcuda completions`: what a shell completes, made from the arguments
//! themselves. Writes to standard output only.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap_complete::{Shell, generate};

use crate::output;

/// Print the completions for a shell.
///
/// For this shell alone: eval "$(memcuda completions bash)". `make install` and the
/// packages put them where the shells look.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn main(arguments: &Arguments, mut command: clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut command, "memcuda", &mut script);
    output::out().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
