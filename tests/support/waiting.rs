//! Waits of tests for what others do: until it holds, and never for long.
#![allow(dead_code, reason = "each of those who share it uses a part")]

use std::time::{Duration, Instant};

/// The most that anything is waited for, but where a test says otherwise.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    within(LONG, what, holds);
}

/// The same with another patience.
#[track_caller]
pub fn within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    attempt(patience, what, || holds().then_some(()));
}

/// Tries until there is an answer.
#[track_caller]
pub fn wait_for<T>(what: &str, answer: impl FnMut() -> Option<T>) -> T {
    attempt(LONG, what, answer)
}

#[track_caller]
fn attempt<T>(patience: Duration, what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(
            begun.elapsed() < patience,
            "{what}: not within {patience:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
