//! Who makes a name: others wait for it, and it is told so.

use std::time::{Duration, Instant};

use crate::actor::{Actor, Place};
use crate::{NOT_FOUND, UNAVAILABLE, field, ruled};

/// Options of an opening that waits for who is to make it.
const AWAIT: &str = "flags=64";

#[test]
fn a_name_that_is_yet_to_be_made_is_waited_for() {
    let place = Place::with_keeper();
    let (mut maker, mut opener) = (place.actor(), place.actor());
    assert_eq!(opener.code("open w wait=20000000"), NOT_FOUND);
    let began = Instant::now();
    assert_eq!(
        opener.code(&format!("open w {AWAIT} wait=50000")),
        NOT_FOUND
    );
    assert!(began.elapsed() >= Duration::from_millis(50));
    opener.tell(&format!("open w {AWAIT} wait=20000000"));
    std::thread::sleep(Duration::from_millis(100));
    let (_, here) = maker.opened("create w bytes=4096");
    maker.set(&here, 7, 4096);
    let handle = opener.heard().strip_prefix("0 ").unwrap().to_owned();
    let there = opener.must(&format!("address {handle}"));
    assert_eq!(opener.get(&there), 7);
}

#[test]
fn who_waits_for_a_name_waits_for_a_keeper_too() {
    let mut place = Place::empty();
    let (mut opener, mut either) = (place.actor(), place.actor());
    let mut by_rule = ruled(&place, "size=4096,name=w,mode=attach,wait=20");
    assert_eq!(opener.code("open w wait=20000000"), UNAVAILABLE);
    let began = Instant::now();
    assert_eq!(
        opener.code(&format!("open w {AWAIT} wait=50000")),
        UNAVAILABLE
    );
    assert!(began.elapsed() >= Duration::from_millis(50));
    opener.tell(&format!("open w {AWAIT} wait=20000000"));
    by_rule.tell("malloc 4096");
    either.tell(&format!("either w bytes=4096 {AWAIT} wait=20000000"));
    std::thread::sleep(Duration::from_millis(100));
    place.keeper.start();
    let handle = |actor: &mut Actor| actor.heard().strip_prefix("0 ").unwrap().to_owned();
    let made = handle(&mut either);
    let here = either.must(&format!("address {made}"));
    either.set(&here, 7, 4096);
    let opened = handle(&mut opener);
    let there = opener.must(&format!("address {opened}"));
    let allocated = handle(&mut by_rule);
    assert_eq!((opener.get(&there), by_rule.get(&allocated)), (7, 7));
}

#[test]
fn who_made_it_is_told_so_and_nobody_else() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    let is_made = |actor: &mut Actor, handle: &str| {
        let shown = actor.must(&format!("describe {handle}"));
        field(&shown, "flags").parse::<u32>().unwrap() & 128 != 0
    };
    let (first, address) = one.opened("either w bytes=4096");
    let (again, _) = one.opened("either w bytes=4096");
    let found = one.must(&format!("find {address}"));
    let (there, _) = other.opened("either w bytes=4096");
    assert!(is_made(&mut one, &first));
    assert!(!is_made(&mut one, &again) && !is_made(&mut one, &found));
    assert!(!is_made(&mut other, &there));
    assert_eq!(field(&one.must("show w"), "flags"), "0");
    // What an allocation made says so to who finds it.
    for (actor, made) in [(&mut one, true), (&mut other, false)] {
        actor.must("next hinted 3");
        let at = actor.malloc(4096);
        let found = actor.must(&format!("find {at}"));
        assert_eq!(is_made(actor, &found), made);
    }
    assert!(one.end().contains(", made\n"));
    assert!(other.end().contains(", found\n"));
}
