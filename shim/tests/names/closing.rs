//! What the end of a use waits for, so that no work loses its memory. The simulated GPU ends a
//! program that unmaps memory in use.

use crate::MIB;
use crate::actor::Place;

#[test]
fn a_close_and_a_free_wait_for_what_was_begun_during_their_wait() {
    let place = Place::with_keeper();
    let clock = ("MEMCUDA_SIM_CLOCK", "real");
    let rule = ("MEMCUDA_NAMES", "size=4MiB,name=t");
    let mut actor = place.actor_with(&[clock, rule]);
    let (handle, here) = actor.opened("create w bytes=4096");
    actor.must(&format!("overtaken {here} {handle}"));
    let there = actor.malloc(4 * MIB);
    actor.must(&format!("overtaken {there} 0"));
    assert_eq!(actor.say("list"), "0");
    actor.end();
}
