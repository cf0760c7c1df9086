//! `memcuda env`: the lines that a shell needs, for `eval "$(memcuda env)"`.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::Result;
use memcuda::error::Error;
use serde::Serialize;

use crate::output;
use crate::program::preload;

/// Print the shell lines that preload the pool: eval "$(memcuda env)".
#[derive(clap::Args)]
pub struct Arguments {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Variable {
    variable: &'static str,
    value: String,
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let library = preload::library()?;
    let existing = std::env::var_os("LD_PRELOAD");
    let value = preload::with(&library, existing.as_deref());
    if arguments.json {
        // Of other bytes it would name another file.
        let value = value.into_string().map_err(|value| {
            let value = value.display();
            Error::new(format!(
                "LD_PRELOAD={value} is no text, as JSON needs; memcuda env prints it"
            ))
        })?;
        output::json(
            "env",
            &Variable {
                variable: "LD_PRELOAD",
                value,
            },
        )?;
    } else {
        let line = [b"export LD_PRELOAD=", &quote(value.as_bytes())[..], b"\n"].concat();
        std::io::Write::write_all(&mut output::out(), &line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Single quotes for a POSIX shell.
fn quote(value: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in value {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_quote_in_a_path_stays_in_it() {
        assert_eq!(super::quote(b"/it's/$HOME"), b"'/it'\\''s/$HOME'");
    }
}
