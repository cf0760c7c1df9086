//! `memcuda doctor`: would a program run on the pool here, and does this one?
//! Without a command it looks at the machine; with one it runs it and says how
//! it reached the driver and what went past the shim.

mod machine;
mod program;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use memcuda::driver::children;
use serde::Serialize;

use crate::output::{self, Table, plain};

/// Check the machine, or say how a program reaches the driver.
#[derive(clap::Args)]
pub struct Arguments {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// A program to run and look into, and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// Something goes past the pool, or will.
    Warn,
    /// The pool cannot work.
    Fail,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    detail: String,
}

impl Finding {
    fn new(check: &'static str, status: Status, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self {
            check,
            status,
            detail,
        }
    }
}

pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    children::can_be_waited_for();
    let mut findings = machine::examine();
    if !arguments.command.is_empty() {
        findings.extend(program::examine(&arguments.command)?);
    }
    let failed = findings.iter().any(|f| f.status == Status::Fail);
    let printed = match arguments.json {
        true => output::json_lines("doctor", &findings),
        false => print(&findings),
    };
    output::after(ExitCode::from(if failed { 1 } else { 0 }), printed)
}

fn print(findings: &[Finding]) -> Result<()> {
    let mut table = Table::left(&["", "check", "finding"]);
    for finding in findings {
        let status = match finding.status {
            Status::Ok => "ok",
            Status::Info => "info",
            Status::Warn => "WARN",
            Status::Fail => "FAIL",
        };
        table.row(vec![
            status.to_owned(),
            finding.check.to_owned(),
            // Of a variable's value, or of another process: no command to the terminal.
            plain(&finding.detail),
        ]);
    }
    table.print()
}
