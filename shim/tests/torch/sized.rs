//! What is free in the eyes of a program that sizes its caches by it, after torch was asked.

use crate::{NATIVE, program, support, torch};

/// Torch with pages, and with segments.
#[test]
fn what_torch_gave_back_when_it_was_asked_is_not_free_before_its_cache_is_empty() {
    for release in [torch().join("expandable"), torch().to_owned()] {
        let mut command = program("sizing", &release);
        let (out, _) = support::said(command.envs([NATIVE]));
        let found: Vec<u64> = out
            .split_whitespace()
            .map(|it| it.parse().unwrap())
            .collect();
        let [after, known, rest @ ..] = &found[..] else {
            panic!("{out}");
        };
        // Less for whole pages.
        let about = |free: u64, expected: u64| (expected - 256..=expected).contains(&free);
        assert!(about(*after, (16 - 4 - 7) << 10), "{out}");
        // Who has seen how little torch has cached.
        let is_told = known >= &(after + 500) || cfg!(not(target_arch = "x86_64"));
        assert!(is_told, "{out}");
        let within = (8 << 10) - 1536;
        let expected = [12 << 10, within, within];
        assert!(
            rest.len() == 3 && rest.iter().zip(expected).all(|(&free, it)| about(free, it)),
            "{out}"
        );
    }
}
