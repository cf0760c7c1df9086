//! What torch's pages cannot be for others.

use crate::actor::Place;
use crate::keeper::until;
use crate::sharing::{INVALID_VALUE, PAGE, Torch, actor};
use crate::support::signal;

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
const REFUSED: i32 = 900;

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
    let [passed, kept] = [PAGE; 2].map(|bytes| actor.torch(bytes));
    actor.must(&format!("descriptor {passed}"));
    actor.must("more-files 0");
    for _ in 0..2 {
        assert_ne!(actor.code(&format!("descriptor {kept}")), 0);
    }
    let log = actor.end();
    assert_eq!(log.matches("ulimit -n").count(), 1, "{log}");
}

/// Torch keeps a descriptor of each page that it passed on, of which a child has a copy.
#[test]
fn a_forked_child_keeps_no_page_that_was_passed_on() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let [earlier, tensor] = [PAGE; 2].map(|bytes| actor.torch(bytes));
    for at in [&earlier, &tensor] {
        actor.must(&format!("descriptor {at}"));
    }
    actor.give_up(&earlier);
    let before = actor.physical();
    let child: i32 = actor.must("fork-and-stay").parse().unwrap();
    // It is beyond the fork once it has closed the pipes of the test.
    let pipe = format!("/proc/{child}/fd/0");
    until("the child runs", || {
        std::fs::symlink_metadata(&pipe).is_err()
    });
    actor.give_up(&tensor);
    assert_eq!(actor.physical(), before - PAGE);
    signal(child, libc::SIGKILL);
}

/// As memory of CUDA IPC is closed, and unlike a wait of the program's own.
#[test]
fn received_memory_goes_beside_a_capture() {
    let place = Place::empty();
    let mut actor = actor(&place);
    actor.torch(PAGE);
    let own = actor.must(&format!("alloc {PAGE}"));
    for (waits, code, graph) in [("torch-lets-go", 0, "kept"), ("sync", REFUSED, "lost")] {
        actor.must("capture 2");
        actor.must(&format!("queue-copy {own} {own} 8"));
        assert_eq!(actor.code(waits), code, "{waits}");
        let captured = actor.say("captured");
        assert!(captured.ends_with(graph), "{waits}: {captured}");
    }
    actor.end();
}
