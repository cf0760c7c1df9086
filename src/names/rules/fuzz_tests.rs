//! Random text, and random changes of rules that are right: the parsers never
//! panic, say what is wrong in one line, and what they accept holds together.
//! `MEMCUDA_FUZZ` is the number of executions of each (a test run makes 20,000).

use super::*;
use crate::random::Random;

impl Random {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.index(from.len())]
    }
}

const WORDS: &[&str] = &[
    "size",
    "nth",
    "device",
    "thread",
    "library",
    "name",
    "dtype",
    "shape",
    "mode",
    "read-only",
    "zeroed",
    "persist",
    "mismatch",
    "backend",
    "=",
    "=",
    "=",
    ",",
    ",",
    ";",
    "..",
    "x",
    "*",
    "{n}",
    "{rank}",
    "{",
    "}",
    "4MiB",
    "1.5GB",
    "18446744073709551615",
    "0",
    "1",
    "-1",
    "f32",
    "bf16",
    "attach",
    "create",
    "true",
    "unnamed",
    "cuda_ipc",
    "w/",
    "\n",
    "\"",
    "'",
    "[[rule]]",
    "[",
    "]",
    "# ",
    "\u{1b}",
    "\u{0}",
    "ü",
    "é=",
    "=\u{202e}",
    " ",
];

fn soup(random: &mut Random) -> String {
    (0..random.index(24)).map(|_| random.pick(WORDS)).collect()
}

fn right(random: &mut Random, between: &str, quote: &str) -> String {
    let mut rule = format!("name = {quote}w{{n}}/{}{quote}", random.index(9));
    for (key, value) in [
        ("size", "1MiB..4GiB"),
        ("nth", "2.."),
        ("thread", "a*b"),
        ("mode", "attach"),
        ("mismatch", "unnamed"),
        ("dtype", "f32"),
    ] {
        if random.index(2) == 0 {
            rule += &format!("{between}{key} = {quote}{value}{quote}");
        }
    }
    rule
}

fn changed(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.index(4) {
        let at = random.index(bytes.len().max(1));
        match random.index(3) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 => bytes.insert(at.min(bytes.len()), random.next() as u8),
            _ if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn check(read: Result<Vec<Rule>>, text: &str) -> bool {
    match read {
        Ok(rules) => {
            for rule in &rules {
                let facts = Facts {
                    rank: Some("0".to_owned()),
                    ..Facts::default()
                };
                assert!(rule.name(&facts).is_ok(), "{text:?}");
                if let Some(dtype) = rule.what.dtype {
                    assert!(
                        super::super::bytes_of(dtype, &rule.what.shape).is_ok(),
                        "{text:?}"
                    );
                }
            }
            true
        }
        Err(error) => {
            let said = error.to_string();
            let clean = !said.contains(|c: char| c.is_control());
            assert!(
                clean && !said.is_empty() && said.len() < 600,
                "{text:?}: {said:?}"
            );
            false
        }
    }
}

fn executions() -> u64 {
    let asked = std::env::var("MEMCUDA_FUZZ").ok();
    asked.map_or(20_000, |asked| asked.parse().expect("a number"))
}

fn run(
    name: &str,
    quote: &str,
    begin: &str,
    between: &str,
    parse: fn(&str, &Facts) -> Result<Vec<Rule>>,
) {
    let facts = Facts {
        rank: Some("0".to_owned()),
        ..Facts::default()
    };
    let mut accepted = 0;
    for seed in 1..=executions() {
        let random = &mut Random::new(seed);
        let text = match random.index(3) {
            0 => soup(random),
            _ => {
                let rule = format!("{begin}{}", right(random, between, quote));
                changed(&rule, random)
            }
        };
        accepted += u64::from(check(parse(&text, &facts), &text));
    }
    println!("{name}: {} executions, {accepted} accepted", executions());
    // The inputs reach both ways out.
    assert!(accepted > executions() / 10 && accepted < executions() * 9 / 10);
}

#[test]
fn lines_of_random_text() {
    run("lines", "", "", ",", line::read);
}

#[test]
fn files_of_random_text() {
    run("files", "'", "[[rule]]\n", "\n", file::read);
}
