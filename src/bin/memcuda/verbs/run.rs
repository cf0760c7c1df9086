//! `memcuda run`: becomes the program, with libmemcuda.so preloaded. The
//! process is replaced, so signals, terminal and process id are the program's
//! own; but with `--trace` it stays, to write the trace at the end.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use memcuda::driver::ignored;

use crate::program::{preload, record, unstarted};
use crate::{file_limit, output};

/// Run a program on the pool.
///
/// Ends with the program's own status; a shell shows 128 + N for a program
/// that signal N ended. 127: there is no such program, 126: it cannot be run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Record what it allocates and frees; several processes: FILE.PID each, or %p in FILE
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let library = preload::library()?;
    let existing = std::env::var_os("LD_PRELOAD");
    let [program, rest @ ..] = &arguments.command[..] else {
        unreachable!("clap requires a command");
    };
    let preloaded = preload::with(&library, existing.as_deref());
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", &preloaded);
    let error = match &arguments.trace {
        None => {
            tracing::info!(
                "becomes {} with LD_PRELOAD={}",
                program.display(),
                preloaded.display()
            );
            file_limit::let_go();
            ignored::exec(&mut command)
        }
        Some(file) => match record::run(&mut command, file)? {
            Ok(code) => return Ok(code),
            Err(error) => error,
        },
    };
    output::say(unstarted::why("run", program, &error));
    Ok(ExitCode::from(match error.kind() {
        ErrorKind::NotFound => 127,
        _ => 126,
    }))
}
