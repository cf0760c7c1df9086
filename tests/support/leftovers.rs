//! What a test has started and what that has started in turn: keepers, their
//! standbys, whoever these start anew. Nothing of it may outlive the test: whoever
//! reads what the tests say would wait for it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Kills all other processes that were told of a directory, by an argument or a
/// variable, until none is left.
pub fn kill(directory: &Path) {
    loop {
        let left = told_of(directory);
        if left.is_empty() {
            return;
        }
        // Of the shell itself: the program is not everywhere.
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -9 \"$@\"", "sh"]).args(left);
        let _ = kill.stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn told_of(directory: &Path) -> Vec<String> {
    let place = directory.as_os_str().as_bytes();
    let is_told = |pid: &String| {
        ["cmdline", "environ"].iter().any(|file| {
            let said = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            said.windows(place.len()).any(|part| part == place)
        })
    };
    let own = std::process::id().to_string();
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = names.filter(|name| name.parse::<u32>().is_ok() && *name != own);
    pids.filter(is_told).collect()
}
