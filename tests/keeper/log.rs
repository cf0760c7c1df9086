//! What the keeper logs goes where nobody reads it.

use std::process::Stdio;

use memcuda::share::protocol::Request;
use rustix::process::Signal;

use crate::support::*;

#[test]
fn nobody_waits_for_who_reads_what_it_logs() {
    // On standard error, and in a pipe that has the name of a log.
    for file in [None, Some("/dev/stdout")] {
        let keeper = Keeper::run(|command, _| {
            command.stderr(Stdio::piped()).stdout(Stdio::piped());
            command.env("MEMCUDA_LOG", "info");
            command.envs(file.map(|file| ("MEMCUDA_LOG_FILE", file)));
        });
        log_much(&keeper);
    }
}

fn log_much(keeper: &Keeper) {
    let mut client = keeper.client();
    let pid = keeper.status().pid;
    // A line each; a pipe has room for less.
    for _ in 0..1500 {
        signal(pid, Signal::HUP);
        client.call(Request::Status, &[]).unwrap();
    }
}
