//! docs/entry-points.md against the library and the driver's header: nothing is
//! intercepted that it does not name, each row's test names it, and every function
//! of the driver stands somewhere.

use std::collections::BTreeSet;
use std::path::Path;

/// The names in backticks of one cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of a section's table, as cells.
fn rows<'a>(document: &'a str, section: &str) -> Vec<Vec<&'a str>> {
    let body = document.split(section).nth(1).expect("the section");
    let body = body.split("\n## ").next().expect("its end");
    let table = body.lines().filter(|line| line.starts_with("| `"));
    table
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Every function that `cuda.h` of CUDA 13.5 declares; `make test-compat` compares the two.
const FUNCTIONS: &str = include_str!("cuda_functions.txt");

/// The rows of what is intercepted, and of what is left.
fn tables(document: &str) -> (Vec<Vec<&str>>, Vec<Vec<&str>>) {
    let intercepted = rows(document, "\n## Intercepted\n");
    let left = rows(document, "\n## Left to the driver\n");
    assert!(
        intercepted.iter().all(|row| row.len() == 3),
        "{intercepted:?}"
    );
    assert!(
        left.iter().all(|row| row.len() == 2 && row[1].len() > 10),
        "{left:?}"
    );
    (intercepted, left)
}

fn document() -> String {
    std::fs::read_to_string(root().join("docs/entry-points.md")).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn every_function_of_the_driver_stands_somewhere() {
    let document = document();
    let (intercepted, left) = tables(&document);
    let named = intercepted
        .iter()
        .chain(&left)
        .flat_map(|row| names(row[0]));
    let (families, alone): (Vec<_>, Vec<_>) = named.partition(|name| name.ends_with('*'));
    let families: Vec<_> = families
        .iter()
        .map(|name| name.trim_end_matches('*'))
        .collect();
    for name in FUNCTIONS.lines() {
        let family = families.iter().any(|family| name.starts_with(family));
        assert!(family || alone.contains(&name), "{name} stands nowhere");
    }
    for family in families {
        let there = FUNCTIONS.lines().any(|name| name.starts_with(family));
        assert!(there, "there is no {family}*");
    }
}

#[test]
fn the_table_is_what_the_library_exports() {
    let document = document();
    let (intercepted, left) = tables(&document);

    let mut named = BTreeSet::new();
    for name in intercepted
        .iter()
        .chain(&left)
        .flat_map(|row| names(row[0]))
    {
        assert!(named.insert(name), "{name} stands in two rows");
    }
    let exported: BTreeSet<_> = include_str!("../../exports.txt").lines().collect();
    let hooked: BTreeSet<_> = intercepted.iter().flat_map(|row| names(row[0])).collect();
    // In one of the two alone.
    let odd: Vec<_> = hooked.symmetric_difference(&exported).collect();
    assert_eq!(odd, [&""; 0], "docs/entry-points.md and shim/exports.txt");

    for row in &intercepted {
        let tests = names(row[2]);
        assert!(!tests.is_empty(), "no test: {row:?}");
        for test in tests {
            let text = std::fs::read_to_string(root().join(test));
            let text = text.unwrap_or_else(|error| panic!("{test}: {error}"));
            let words: BTreeSet<_> = text
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .collect();
            for name in names(row[0]) {
                assert!(words.contains(name), "{test} does not name {name}");
            }
        }
    }
}
