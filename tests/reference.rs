//! The pages of `docs/reference` are what the code says. After a change of the
//! code, `UPDATE=1 cargo test --test reference` writes them anew.

use std::fs;
use std::path::Path;
use std::process::Command;

use memcuda::config::VARIABLES;
use memcuda::stats_page::Counters;

/// Compares a page with what it should be, or writes it.
fn check(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/reference")
        .join(page);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/{page} is not what the code says; UPDATE=1 cargo test --test reference"
    );
}

#[test]
fn environment() {
    let mut page = String::from(
        "# Environment\n\n\
         All optional. An invalid value is one line on standard error, and the program runs on\n\
         the plain driver. SIZE is `512MiB`, `24GiB`, `1.5GB` or bytes.\n\n\
         | variable | accepted, the default first | meaning |\n|---|---|---|\n",
    );
    for v in VARIABLES {
        page += &format!("| `{}` | {} | {} |\n", v.name, v.accepts, v.meaning);
    }
    check("environment.md", &page);
}

#[test]
fn command_line() {
    let mut page = String::from(
        "# Command line\n\n\
         Exit codes: 0 done, 1 the operation failed, 2 bad usage or input. `run` ends with the\n\
         program's own status.\n\n\
         `--json` prints one object a line. Its first field is `schema`, `memcuda.<verb>/1`; units\n\
         are in the names of the fields: `_bytes`, `_ns`, `_us`, `_s`, `_rate`. `null` is unknown.\n",
    );
    for verb in [
        "run",
        "env",
        "compare",
        "doctor",
        "stat",
        "snapshot",
        "explain",
        "replay",
        "ls",
        "show",
        "rm",
        "gc",
        "completions",
    ] {
        let help = Command::new(env!("CARGO_BIN_EXE_memcuda"))
            .args([verb, "--help"])
            .output();
        let help = String::from_utf8(help.unwrap().stdout).unwrap();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        page += &format!("\n## {verb}\n\n```\n{}\n```\n", help.join("\n").trim_end());
        if verb == "stat" {
            let names: Vec<&str> = Counters::default().fields().map(|(name, _)| name).collect();
            page += &format!("\nCounters with `--json`: `{}`.\n", names.join("`, `"));
        }
    }
    check("command-line.md", &page);
}
