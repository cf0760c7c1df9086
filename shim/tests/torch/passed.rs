//! What torch's pages cannot be for others.

use crate::actor::Place;
use crate::sharing::{INVALID_VALUE, PAGE, Torch, actor};

/// As cudaMalloc's memory, though they are mapped, and the driver would take them.
#[test]
fn a_page_is_bound_to_no_multicast_object() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let tensor = actor.torch(PAGE);
    assert_eq!(actor.code(&format!("bind {tensor}")), INVALID_VALUE);
    actor.give_up(&tensor);
    assert_eq!(actor.code(&format!("bind {tensor}")), INVALID_VALUE);
    actor.end();
}

/// Torch then says that there is no memory.
#[test]
fn without_files_to_spare_a_line_says_why_a_page_is_not_passed_on() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let tensor = actor.torch(PAGE);
    actor.must(&format!("descriptor {tensor}"));
    actor.must("more-files 0");
    for _ in 0..2 {
        assert_ne!(actor.code(&format!("descriptor {tensor}")), 0);
    }
    let log = actor.end();
    assert_eq!(log.matches("ulimit -n").count(), 1, "{log}");
}
