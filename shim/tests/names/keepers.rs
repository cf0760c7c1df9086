//! Names while the keeper dies, is stopped, or is another one that knows nothing of them.

use std::time::{Duration, Instant};

use crate::actor::Place;
use crate::keeper::{signal, until};
use crate::{NOT_FOUND, UNAVAILABLE, field};

#[test]
fn names_survive_a_killed_keeper() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    let (handle, here) = one.opened("create w bytes=4096");
    one.set(&here, 7, 4096);
    place.keeper.kill();
    let (_, there) = other.opened("open w");
    assert_eq!(other.get(&there), 7);
    until("both hold it", || other.references("w") == 2);
    assert_eq!(one.must(&format!("publish {handle} 0")), "1");
    one.close(&handle);
    assert_eq!(other.references("w"), 1);
    one.end();
    other.end();
}

/// A program that refers to the interface is introduced before it asks anything.
#[test]
fn a_program_that_has_asked_nothing_yet_finds_the_next_keeper() {
    let place = Place::with_keeper();
    let keeper = place.keeper.stop();
    // It does not wait for the keeper's word, nor hear it later.
    let mut actor = place.actor();
    signal(keeper, libc::SIGCONT);
    let status = || place.keeper.verb(&["keeper", "status", "--json"]);
    let is = |what: &str| status().is_some_and(|status| status.contains(what));
    until("it is known", || is("\"clients\":1,"));
    place.keeper.kill();
    until("there is another keeper", || is("\"restarts\":1,"));
    assert_eq!(actor.code("delete w"), NOT_FOUND, "{}", actor.message());
}

#[test]
fn who_holds_what_a_new_keeper_does_not_know_is_told_so() {
    let mut place = Place::with_keeper();
    let mut actor = place.actor();
    let (_, here) = actor.opened("create w bytes=4096");
    actor.set(&here, 7, 4096);
    place.keeper.end();
    place.keeper.start();
    until("the new keeper is found", || {
        actor.code("show w") == NOT_FOUND
    });
    assert_eq!(actor.get(&here), 7);
    let log = actor.end();
    assert!(log.contains("knows nothing more of 1 of what"), "{log}");
}

/// The page that tells of deletions has the number that the one before had.
#[test]
fn what_a_new_keeper_has_by_a_name_is_not_taken_for_what_the_one_before_had() {
    let mut place = Place::with_keeper();
    let (mut actor, mut other) = (place.actor(), place.actor());
    actor.opened("create w bytes=4096");
    let (_, old) = actor.opened("open w");
    actor.set(&old, 7, 4096);
    place.keeper.end();
    place.keeper.start();
    let (_, there) = other.opened("create w bytes=4096");
    other.set(&there, 8, 4096);
    until("the new keeper is found", || actor.code("show w") == 0);
    let (_, new) = actor.opened("open w");
    assert_eq!((actor.get(&old), actor.get(&new)), (7, 8));
}

/// As daemons close what they do not know: the keeper cannot tell that from an end.
#[test]
fn who_closes_the_connection_has_again_what_others_hold() {
    let place = Place::with_keeper();
    let (mut actor, mut other) = (place.actor(), place.actor());
    let (_, here) = actor.opened("create shared bytes=4096");
    actor.opened("create own bytes=4096");
    actor.set(&here, 7, 4096);
    let (_, there) = other.opened("open shared");
    actor.must("close-sockets");
    // The keeper hears of it before the process comes back, which it does by itself soon.
    until("the keeper hears of it", || {
        other.code("show own") == NOT_FOUND
    });
    assert_eq!(actor.code("show own"), NOT_FOUND);
    let shown = actor.must("show shared");
    assert_eq!(
        (field(&shown, "references"), field(&shown, "holders")),
        ("2", "2")
    );
    assert_eq!((actor.get(&here), other.get(&there)), (7, 7));
    let log = actor.end();
    assert!(log.contains("knows nothing more of 1 of what"), "{log}");
}

/// Who has waited long enough for a keeper hangs up, and comes back: a name that
/// nobody else holds is there still, unless its holder has died meanwhile.
#[test]
fn a_keeper_that_was_stopped_for_a_while_takes_nothing_from_who_lives() {
    let place = Place::with_keeper();
    let (mut actor, mut dies) = (place.actor(), place.actor());
    let (handle, _) = actor.opened("create w bytes=4096");
    dies.opened("create dead bytes=4096");
    let keeper = place.keeper.stop();
    for actor in [&mut actor, &mut dies] {
        actor.tell("show w");
    }
    for actor in [&mut actor, &mut dies] {
        let answer = actor.heard();
        assert!(answer.starts_with(&format!("{UNAVAILABLE} ")), "{answer}");
    }
    dies.kill();
    signal(keeper, libc::SIGCONT);
    until("it is asked again", || actor.code("show w") != UNAVAILABLE);
    assert_eq!(actor.references("w"), 1);
    until("the dead hold nothing", || {
        actor.code("show dead") == NOT_FOUND
    });
    actor.close(&handle);
    assert_eq!(actor.code("show w"), NOT_FOUND);
    actor.end();
}

/// The library itself looks for it meanwhile, and keeps nobody.
#[test]
fn who_has_waited_for_a_keeper_that_is_stopped_does_not_wait_again_at_once() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    actor.opened("create w bytes=4096");
    let [keeper, _] = place.keeper.pids();
    signal(keeper, libc::SIGSTOP);
    assert_eq!(actor.code("show w"), UNAVAILABLE);
    std::thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    assert_eq!(actor.code("show w"), UNAVAILABLE);
    let waited = began.elapsed();
    signal(keeper, libc::SIGCONT);
    assert!(waited < memcuda_core::share::client::PATIENCE, "{waited:?}");
    until("it is asked again", || actor.code("show w") != UNAVAILABLE);
    assert_eq!(actor.references("w"), 1);
    actor.end();
}

/// Who has nothing left by then comes back all the same, to say so.
#[test]
fn what_is_closed_while_the_keeper_is_stopped_is_not_held() {
    let place = Place::with_keeper();
    let (mut actor, mut other) = (place.actor(), place.actor());
    let (handle, _) = actor.opened("create w bytes=4096");
    other.opened("create x bytes=4096");
    let keeper = place.keeper.stop();
    assert_eq!(actor.code("open x"), UNAVAILABLE);
    actor.close(&handle);
    signal(keeper, libc::SIGCONT);
    until("what was closed is gone", || {
        other.code("show w") == NOT_FOUND
    });
    until("what came in vain is not held", || {
        other.references("x") == 1
    });
    actor.end();
    other.end();
}
