//! The guard of `make bench-count`: what it lets pass and what it does not.

#[path = "../benches/count/guard.rs"]
mod guard;

use guard::{Counts, TOLERANCE, Verdict};

fn counts(text: &str) -> Counts {
    text.parse().unwrap()
}

#[test]
fn a_count_that_grows_beyond_the_tolerance_fails_and_is_named() {
    let expected = counts("# remark\npool: slab = 1000\npool: warm = 50\n");
    let most = 1000 + 10 * TOLERANCE;
    let same = counts(&format!("pool: slab = {most}\npool: warm = 52\n"));
    assert!(Verdict::new(&expected, &same).passes());
    let mut more = same.clone();
    more.add("pool: slab", most + 1);
    let verdict = Verdict::new(&expected, &more);
    assert!(!verdict.passes());
    let failures = verdict.failures();
    assert_eq!(failures.len(), 1);
    assert!(
        failures[0]
            .starts_with("pool: slab: 1031 instructions, 1000 expected: 3.1 % more; a regression"),
        "{failures:?}"
    );
    assert!(verdict.to_string().contains("FAIL"));
}

#[test]
fn fewer_missing_and_unknown_counts_fail_too() {
    let expected = counts("a = 1000\n");
    for (found, says) in [
        ("a = 900\n", "10.0 % fewer; write it down"),
        ("", "expected and not counted"),
        ("a = 1000\nb = 5\n", "b: counted and not in the file"),
    ] {
        let failures = Verdict::new(&expected, &counts(found)).failures();
        assert!(
            failures.len() == 1 && failures[0].contains(says),
            "{failures:?}"
        );
    }
}

#[test]
fn a_file_is_read_as_it_was_written_and_nonsense_is_refused() {
    let some = counts("a, b = 7\nc = 8\n");
    assert_eq!(counts(&some.to_string()), some);
    assert_eq!(
        (some.of("a, b"), some.of("b"), some.iter().count()),
        (Some(7), None, 2)
    );
    for line in ["a", "a = ", "a = x", "a = 0", "a=1"] {
        let refused = line.parse::<Counts>().unwrap_err();
        assert!(refused.starts_with("line 1:"), "{refused}");
    }
}

/// What is committed can be read and says something of both levels.
#[test]
fn the_committed_counts_are_such_a_file() {
    let committed = counts(include_str!("../benches/count/x86_64.txt"));
    let names: Vec<&str> = committed.iter().map(|(name, _)| name).collect();
    assert!(
        names.iter().any(|name| name.starts_with("pool: ")),
        "{names:?}"
    );
    assert!(
        names.iter().any(|name| name.starts_with("library: ")),
        "{names:?}"
    );
}
