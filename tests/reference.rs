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
         All optional; an empty one is as none. The first invalid value is one line on standard error,\n\
         or in `MEMCUDA_LOG_FILE`, and the program runs on the plain driver; where there is none a name\n\
         that is not here is one line, too, and changes nothing. `memcuda doctor` tells all. SIZE is\n\
         `512MiB`, `24GiB`, `1.5GB` or bytes.\n\n\
         | variable | accepted, the default first | meaning |\n|---|---|---|\n",
    );
    for v in VARIABLES {
        page += &format!("| `{}` | {} | {} |\n", v.name, v.accepts, v.meaning);
    }
    check("environment.md", &page);
}

/// What `--help` says of a verb, or of the command.
fn help(verb: &str) -> String {
    let help = Command::new(env!("CARGO_BIN_EXE_memcuda"))
        .args(verb.split_whitespace())
        .arg("--help")
        .output();
    String::from_utf8(help.unwrap().stdout).unwrap()
}

/// The verbs that a help lists.
fn listed(help: &str) -> Vec<String> {
    let (_, verbs) = help.split_once("\nCommands:\n").unwrap_or_default();
    let names = verbs.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next());
    let own = names.filter(|&name| name != "help");
    own.map(str::to_owned).collect()
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
    for verb in listed(&help("")) {
        let own = help(&verb);
        let below = listed(&own).into_iter().map(|it| format!("{verb} {it}"));
        for verb in [verb.clone()].into_iter().chain(below) {
            let help = help(&verb);
            let help: Vec<&str> = help.lines().map(str::trim_end).collect();
            page += &format!("\n## {verb}\n\n```\n{}\n```\n", help.join("\n").trim_end());
            if verb == "stat" {
                let names: Vec<&str> = Counters::default().fields().map(|(name, _)| name).collect();
                page += &format!("\nCounters with `--json`: `{}`", names.join("`, `"));
                page += "; while the process records itself, `trace_frames` and `trace_lost_events`, too.\n";
            }
        }
    }
    check("command-line.md", &page);
}

#[test]
fn metrics() {
    let output = Command::new(env!("CARGO_BIN_EXE_memcuda"))
        .args(["web", "--metrics"])
        .env("MEMCUDA_KEEPER", "off")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut page = String::from(
        "# Metrics\n\n\
         What `/metrics` of `memcuda web` says (and `memcuda web --metrics`, once), in Prometheus'\n\
         text format. The unit is the end of the name: bytes, seconds, or a number. Counters begin\n\
         anew with their process. Those with the labels `pid, command, device` are of a process and a\n\
         device, whose number is the one that the process sees.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(about) = line.strip_prefix("# HELP ") else {
            continue;
        };
        let (name, help) = about.split_once(' ').unwrap();
        let kind = lines.next().unwrap().rsplit(' ').next().unwrap();
        let labels = match name {
            "memcuda_build_info" => "version",
            "memcuda_processes" | "memcuda_unread_processes" | "memcuda_keeper_up" => "",
            name if name.starts_with("memcuda_name") => "device_uuid",
            _ => "pid, command, device",
        };
        page += &format!("| `{name}` | {kind} | {labels} | {help} |\n");
    }
    page += "\n\
         Over torch's expandable segments a device's counters are those of its pool and of the pages\n\
         below torch together. There a page that torch maps is a request, one that was mapped there\n\
         already a hit, one that is made a growth. What lasts is taken as a whole: all calls by which\n\
         torch makes, maps and opens the pages of one tensor, from the first that may take time; and\n\
         where torch was told on purpose that there is no memory, everything until it is served: its\n\
         waits for the device, what it gives back. Longer than 1 ms, that is one stall. What is given\n\
         back for another process is driver time, and a stall of the request that waits for it alone.\n\
         Under `MEMCUDA_TORCH=segments` what torch does between such an answer and its next question is\n\
         a stall, too, if that takes longer than 1 ms.\n";
    check("metrics.md", &page);
    a_dashboard_uses_only_metrics_that_are(&page);
}

/// The Grafana dashboard is valid JSON, its panels have queries, and what they
/// ask for is in the table.
fn a_dashboard_uses_only_metrics_that_are(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/grafana/memcuda.json");
    let board: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut places = std::collections::HashSet::new();
    for panel in panels {
        assert!(places.insert(panel["id"].to_string()), "{}", panel["id"]);
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && panel["title"].is_string(), "{panel}");
        for target in targets {
            let asks = target["expr"].as_str().unwrap();
            assert!(asks.contains("memcuda_"), "{target}");
        }
    }
    assert!(panels.len() >= 8);
    let text = board.to_string();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    for (at, _) in text.match_indices("memcuda_") {
        let name = text[at..].split(|c| !is_name(c)).next().unwrap();
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is no metric"
        );
    }
}
