//! Names with the driver's own memory, which programs without the library open.

use std::process::Stdio;

use crate::actor::{Actor, Place, program};
use crate::keeper::until;
use crate::{INVALID_VALUE, MIB, NOT_FOUND, field, ruled, support};

const RULE: &str = "size=4MiB,name=w,backend=cuda_ipc";

#[test]
fn a_handle_of_the_driver_is_opened_with_and_without_the_library() {
    let place = Place::with_keeper();
    let mut maker = ruled(&place, RULE);
    let made = maker.malloc(4 * MIB);
    maker.set(&made, 7, 4 * MIB);
    let mut other = ruled(&place, RULE);
    let there = other.malloc(4 * MIB);
    assert_eq!(other.get(&there), 7);
    other.set(&there, 8, 4 * MIB);
    assert_eq!(maker.get(&made), 8);
    assert_eq!(field(&other.must("show w"), "flags"), "16");
    // A second opening has the driver's one address.
    let (handle, again) = other.opened("open w");
    assert_eq!(again, there);
    other.close(&handle);
    assert_eq!(other.get(&there), 8);
    let (own, same) = maker.opened("open w");
    assert_eq!(same, made, "a process does not open what it made");
    maker.close(&own);
    // The 64 bytes are the driver's own, for whoever reads them.
    let said = place.keeper.verb(&["show", "w", "--json"]).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let mut bare = Actor::start(&mut place.command(program(), &[]));
    let handle = hexadecimal(said["ipc_handle"].as_str().unwrap());
    let opened = bare.must(&format!("ipcopen {handle}"));
    assert_eq!(bare.get(&opened), 8);
    bare.must(&format!("ipcclose {opened}"));
    other.free(&there);
    maker.free(&made);
    until("it ends with its maker", || {
        other.code("show w") == NOT_FOUND
    });
    other.end();
    maker.end();
}

/// 64 bytes of base64 as the program takes them.
fn hexadecimal(base64: &str) -> String {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |c| DIGITS.find(c).unwrap() as u32;
    let bits = base64.trim_end_matches('=').chars().map(digit);
    let bits: String = bits.map(|bits| format!("{bits:06b}")).collect();
    let bytes = (0..64).map(|i| u8::from_str_radix(&bits[8 * i..8 * i + 8], 2).unwrap());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// The interface allocates and frees for itself: a capture does not forbid it.
#[test]
fn it_is_made_opened_and_closed_beside_a_capture_which_goes_on() {
    let place = Place::with_keeper();
    let (mut maker, mut other) = (place.actor(), place.actor());
    for actor in [&mut maker, &mut other] {
        actor.must("capture");
    }
    let (made, _) = maker.opened("create w bytes=4194304 flags=16");
    let (opened, _) = other.opened("open w");
    other.close(&opened);
    maker.close(&made);
    for actor in [&mut maker, &mut other] {
        actor.must("captured");
    }
    assert_eq!(maker.must("physical"), "0");
}

/// Others may have it open still: they keep its bytes, and nobody else gets others by its name.
#[test]
fn its_name_ends_when_its_maker_closes_it() {
    let place = Place::with_keeper();
    let (mut maker, mut other, mut late) = (place.actor(), place.actor(), place.actor());
    let (made, here) = maker.opened("create w bytes=4194304 flags=16");
    maker.set(&here, 7, 4 * MIB);
    let (opened, there) = other.opened("open w");
    let mut bare = Actor::start(&mut place.command(program(), &[]));
    let said = place.keeper.verb(&["show", "w", "--json"]).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let handle = hexadecimal(said["ipc_handle"].as_str().unwrap());
    maker.close(&made);
    assert_eq!(other.get(&there), 7);
    for actor in [&mut maker, &mut other, &mut late] {
        assert_eq!(actor.code("open w"), NOT_FOUND);
    }
    assert_eq!(bare.code(&format!("ipcopen {handle}")), INVALID_VALUE);
    let (_, again) = maker.opened("create w bytes=4194304 flags=16");
    assert_eq!(other.get(&there), 7);
    let (_, new) = late.opened("open w");
    maker.set(&again, 8, 4 * MIB);
    assert_eq!((late.get(&new), other.get(&there)), (8, 7));
    other.close(&opened);
}

/// Of a process itself: another thread closes what it made.
#[test]
fn beside_its_makers_close_it_is_opened_or_not_found() {
    const ROUNDS: &str = "3000";
    let place = Place::with_keeper();
    let ending = support::program("ending.c", "ending");
    let mut command = place.command(&ending, &[support::shim()]);
    let (said, _) = support::said(command.arg(ROUNDS));
    let mut counts = said.split_whitespace();
    let mut next = || counts.next().unwrap().parse::<u32>().unwrap();
    let (had, missed, others) = (next(), next(), next());
    assert_eq!(others, 0, "{said}");
    assert!(had > 0 && missed > 0, "{said}");
}

/// A process cannot open what it makes: the second thread waits for the first.
#[test]
fn two_threads_that_both_may_make_it_both_have_it() {
    let place = Place::with_keeper();
    let racing = support::program("racing.c", "racing");
    let mut command = place.command(&racing, &[support::shim()]);
    let (said, log) = support::said(command.args(["threads", "2000"]));
    assert_eq!(said, "0 4000\n", "{log}");
}

/// What was there, and is gone before it is opened, is made anew or comes again.
#[test]
fn beside_a_maker_that_closes_it_again_and_again_it_is_had() {
    let place = Place::with_keeper();
    let racing = support::program("racing.c", "racing");
    for way in ["either", "open"] {
        let run = |way, rounds| {
            let mut command = place.command(&racing, &[support::shim()]);
            command.args([way, rounds]);
            command
        };
        let mut maker = run("make", "1000000");
        let mut maker = maker.stderr(Stdio::null()).spawn().unwrap();
        let (said, log) = support::said(&mut run(way, "300"));
        let _ = maker.kill();
        let _ = maker.wait();
        assert_eq!(said, "0 300\n", "{way}: {log}");
    }
}

#[test]
fn it_ends_with_its_maker() {
    let place = Place::with_keeper();
    let (mut maker, mut other) = (place.actor(), place.actor());
    maker.opened("create w bytes=4194304 flags=16");
    maker.kill();
    until("it ends with its maker", || {
        other.code("open w") == NOT_FOUND
    });
}
