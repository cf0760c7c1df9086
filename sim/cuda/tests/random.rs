//! Random programs, judged by an independent oracle: the checker stops exactly
//! those that the oracle forbids.

mod support;

use std::os::unix::process::ExitStatusExt;

/// Programs of each kind.
const PROGRAMS: u32 = 60;

fn programs(planted: &[&str]) -> impl Iterator<Item = (String, std::process::Output)> {
    (1..=PROGRAMS).map(move |seed| {
        let seed = seed.to_string();
        let arguments: Vec<&str> = [seed.as_str()].iter().chain(planted).copied().collect();
        let output = support::run("random", "libcuda.so.1", &arguments, &[]);
        (seed, output)
    })
}

fn all_are_caught(kind: &str) {
    let mut caught = 0;
    for (seed, output) in programs(&[kind]) {
        let (told, said) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if told.is_empty() {
            // This program never came to the planted one: it is a legal one.
            assert!(
                output.status.success() && said.is_empty(),
                "seed {seed}: {said}"
            );
            continue;
        }
        let aborted = output.status.signal() == Some(libc::SIGABRT);
        // One operation can be both; which of the two is seen first is open.
        let named = said.contains("MISUSE: data race") || said.contains("MISUSE: stale alias");
        assert!(
            aborted && named,
            "seed {seed}: {told} was not caught, but: {said}"
        );
        caught += 1;
    }
    assert!(
        caught > PROGRAMS / 2,
        "only {caught} programs planted a {kind}"
    );
}

#[test]
fn every_race_is_caught() {
    all_are_caught("data race");
}

#[test]
fn every_stale_alias_is_caught() {
    all_are_caught("stale alias");
}

#[test]
fn what_is_ordered_passes() {
    for (seed, output) in programs(&[]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "seed {seed}: {said}"
        );
    }
}
