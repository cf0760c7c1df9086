//! Allocations that get names by rules, in programs that know nothing of them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::actor::{Actor, Place, program};
use crate::{INVALID_VALUE, MIB, NOT_FOUND, field, ruled, support};

fn plain(place: &Place, what: &str) -> Command {
    let program = support::program("plain.c", &format!("plain-{what}"));
    let mut command = place.command(&program, &[support::shim()]);
    command.arg(what);
    command
}

/// Starts one; the line that it writes.
fn run(command: &mut Command) -> (Child, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (child, line)
}

fn ends_well(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// A name has the bytes that were asked for; of rows the driver says how many they are.
#[test]
fn rows_have_no_name() {
    let place = Place::with_keeper();
    let mut actor = ruled(&place, "size=1MiB..,name=w");
    let rows = actor.must("rows 4096 1024");
    assert_eq!(actor.code("show w"), NOT_FOUND);
    actor.free(&rows);
    actor.must("next w 1");
    let rows = actor.must("rows 4096 1024");
    assert_eq!(actor.code("show w"), NOT_FOUND);
    actor.free(&rows);
}

#[test]
fn two_unmodified_programs_with_one_rule_hold_the_same_memory() {
    let place = Place::with_keeper();
    let rule = "size=4MiB,name=weights/{device},dtype=f32,shape=1024x1024,zeroed";
    let (writer, wrote) = run(plain(&place, "write").env("MEMCUDA_NAMES", rule));
    let (reader, read) = run(plain(&place, "read").env("MEMCUDA_NAMES", rule));
    assert_eq!(wrote, read);
    // Memory of its own says something else.
    let (other, own) = run(&mut plain(&place, "read"));
    assert_ne!(own, read);
    let listed = place.keeper.verb(&["show", "weights/0", "--json"]).unwrap();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["requested_bytes"], 4 * MIB, "{listed}");
    for child in [writer, reader, other] {
        ends_well(child);
    }
    assert!(
        place.keeper.verb(&["show", "weights/0"]).is_none(),
        "gone with its last holder"
    );
}

#[test]
fn the_same_by_a_file() {
    let place = Place::with_keeper();
    let file = place.path("names.toml");
    std::fs::write(
        &file,
        "[[rule]]\nsize = \"4MiB\"\nname = \"w\"\nzeroed = true\n",
    )
    .unwrap();
    let (writer, wrote) = run(plain(&place, "write").env("MEMCUDA_NAMES_FILE", &file));
    let (reader, read) = run(plain(&place, "read").env("MEMCUDA_NAMES_FILE", &file));
    assert_eq!(wrote, read);
    ends_well(writer);
    ends_well(reader);
}

#[test]
fn a_name_is_found_by_size_order_device_thread_and_library() {
    let place = Place::with_keeper();
    let mut actor = ruled(
        &place,
        "size=1MiB,nth=2,name=second; size=2MiB..3MiB,device=1,name=on/{device}; \
         thread=loader*,name=by-thread/{n}; library=actor,size=5MiB,name=by-library; \
         library=libother.so,size=6MiB,name=never",
    );
    let names = |actor: &mut Actor| actor.say("list").trim_start_matches('0').trim().to_owned();
    let first = actor.malloc(MIB);
    assert_eq!(names(&mut actor), "");
    let second = actor.malloc(MIB);
    assert_eq!(names(&mut actor), "second");
    actor.malloc(MIB);
    actor.malloc(2 * MIB);
    assert_eq!(names(&mut actor), "second");
    actor.must("device 1");
    actor.malloc(2 * MIB + 512);
    actor.must("device 0");
    assert_eq!(names(&mut actor), "on/1 second");
    actor.must("thread loader-7");
    actor.malloc(100);
    actor.must("async 100000");
    actor.must("driver 100000");
    actor.must("thread other");
    actor.malloc(5 * MIB);
    actor.malloc(6 * MIB);
    assert_eq!(
        names(&mut actor),
        "by-library by-thread/1 by-thread/2 by-thread/3 on/1 second"
    );
    // It answers as any allocation, and its free ends the name.
    assert_eq!(
        actor.must(&format!("range {second}")),
        format!("{second} {MIB}")
    );
    actor.free(&second);
    actor.free(&first);
    assert!(!names(&mut actor).contains("second"));
    assert_ne!(actor.code(&format!("free {second}")), 0);
    actor.end();
}

#[test]
fn templates_name_process_rank_device_and_number() {
    let place = Place::with_keeper();
    let template = ("MEMCUDA_NAMES", "name=p{pid}/r{rank}/d{device}/n{n}");
    let mut actor = place.actor_with(&[template, ("RANK", "5")]);
    actor.malloc(4096);
    actor.malloc(4096);
    let pid = actor.pid();
    assert_eq!(
        actor.say("list"),
        format!("0 p{pid}/r5/d0/n1 p{pid}/r5/d0/n2")
    );
}

#[test]
fn modes_say_whether_it_is_made_or_opened() {
    let place = Place::with_keeper();
    let mut maker = ruled(&place, "size=4MiB,name=w,mode=create,zeroed");
    let mut opener = ruled(&place, "size=4MiB,name=w,mode=attach");
    let mut either = ruled(&place, "size=4MiB,name=w,mode=create-or-attach");
    let malloc = format!("malloc {}", 4 * MIB);
    assert_eq!(opener.code(&malloc), INVALID_VALUE, "there is none yet");
    let made = maker.must(&malloc);
    assert_eq!(maker.must(&format!("sum {made} {}", 4 * MIB)), "0");
    maker.set(&made, 7, 4 * MIB);
    let opened = opener.malloc(4194304);
    // The rule's one allocation was the one that failed.
    assert_ne!(opener.get(&opened), 7);
    let there = either.must(&malloc);
    assert_eq!(either.get(&there), 7);
    either.set(&there, 9, 4 * MIB);
    assert_eq!(maker.get(&made), 9);
    let mut second = ruled(&place, "size=4MiB,name=w,mode=create");
    assert_eq!(second.code(&malloc), INVALID_VALUE, "there is one");
    assert!(second.end().contains("is refused: a rule names it w, but "));
    let mut opener = ruled(&place, "size=4MiB,name=w,mode=attach");
    let opened = opener.must(&malloc);
    assert_eq!(opener.get(&opened), 9);
}

#[test]
fn a_rule_waits_for_who_is_to_make_it() {
    let place = Place::with_keeper();
    let mut opener = ruled(&place, "size=4096,name=w,mode=attach,wait=20");
    let mut maker = ruled(&place, "size=4096,name=w");
    opener.tell("malloc 4096");
    std::thread::sleep(Duration::from_millis(100));
    let made = maker.malloc(4096);
    maker.set(&made, 7, 4096);
    let opened = opener.heard().strip_prefix("0 ").unwrap().to_owned();
    assert_eq!(opener.get(&opened), 7);
}

#[test]
fn another_size_is_an_error_or_an_unnamed_allocation() {
    let place = Place::with_keeper();
    let mut maker = ruled(&place, "name=w");
    let made = maker.malloc(4 * MIB);
    maker.set(&made, 7, 4 * MIB);
    let malloc = format!("malloc {}", 2 * MIB);
    let mut strict = ruled(&place, "name=w");
    assert_eq!(strict.code(&malloc), INVALID_VALUE);
    let log = strict.end();
    assert_eq!(
        log.lines()
            .filter(|line| line.contains("is refused: a rule names it w, but "))
            .count(),
        1,
        "{log}"
    );
    let mut lenient = ruled(&place, "name=w,mismatch=unnamed");
    let own = lenient.must(&malloc);
    lenient.set(&own, 1, 2 * MIB);
    assert_eq!(maker.get(&made), 7);
    lenient.free(&own);
    assert!(lenient.end().contains("is not w"));
}

#[test]
fn a_reader_reads_and_its_write_ends_it() {
    let place = Place::with_keeper();
    let mut maker = ruled(&place, "name=w");
    let made = maker.malloc(4096);
    maker.set(&made, 7, 4096);
    let mut reader = ruled(&place, "name=w,read-only");
    let opened = reader.malloc(4096);
    assert_eq!(reader.get(&opened), 7);
    reader.free(&opened);
    reader.end();
    let mut reader = ruled(&place, "name=w,mode=attach,read-only");
    let opened = reader.malloc(4096);
    assert_ne!(
        reader.code(&format!("set {opened} 1 4096")),
        0,
        "the driver refuses"
    );
    let ends = std::panic::AssertUnwindSafe(|| reader.say(&format!("kernel {opened} 4096")));
    // The simulated GPU ends the process; a real one the context, with an error
    // that stays.
    assert!(std::panic::catch_unwind(ends).is_err());
    assert_eq!(maker.get(&made), 7);
}

#[test]
fn wrong_rules_are_one_line_and_the_program_runs() {
    let place = Place::with_keeper();
    for rules in ["name=w,size=lots", "size=4096", "name=a b", "name=w/{rank}"] {
        let mut command = place.command(program(), &[support::shim()]);
        command
            .env("MEMCUDA_NAMES", rules)
            .env("MEMCUDA_LOG", "warn")
            .env_remove("RANK");
        let mut actor = Actor::start(&mut command);
        let at = actor.malloc(4096);
        assert_eq!(actor.say("list"), "0");
        actor.free(&at);
        let log = actor.end();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(
            log.contains("MEMCUDA_NAMES: rule 1: ") && log.contains("without names"),
            "{log}"
        );
    }
}

#[test]
fn what_no_rule_names_is_told_to_who_looks_for_it() {
    let place = Place::with_keeper();
    let rule = ("MEMCUDA_NAMES", "size=4096,thread=loader,name=w");
    let mut actor = place.actor_with(&[rule, ("MEMCUDA_LOG", "debug")]);
    actor.must("thread other");
    actor.malloc(4096);
    actor.must("thread loader");
    actor.malloc(4096);
    let log = actor.end();
    let told: Vec<_> = log
        .lines()
        .filter(|line| line.contains("no rule"))
        .collect();
    let said = "no rule names these 4096 bytes on device 0, thread other, library actor";
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].ends_with(said), "{}", told[0]);
}

#[test]
fn without_a_keeper_an_allocation_has_no_name() {
    for (keeper, why) in [
        ("off", "MEMCUDA_KEEPER=off"),
        ("/nowhere/k.sock", "no keeper"),
    ] {
        let place = Place::empty();
        let mut actor = place.actor_with(&[
            ("MEMCUDA_NAMES", "name=w{n}"),
            ("MEMCUDA_KEEPER", keeper),
            ("MEMCUDA_LOG", "warn"),
        ]);
        for _ in 0..3 {
            let at = actor.malloc(4096);
            actor.set(&at, 1, 4096);
            actor.free(&at);
        }
        assert_eq!(actor.code("list"), crate::UNAVAILABLE);
        let log = actor.end();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains(why), "{log}");
    }
}

#[test]
fn stream_ordered_allocations_have_names_too() {
    let place = Place::with_keeper();
    let rule = "size=4MiB,name=t,dtype=u8,shape=4194304";
    let (mut one, mut other) = (ruled(&place, rule), ruled(&place, rule));
    let here = one.must("async 4194304");
    one.must(&format!("setasync {here} 5 4194304"));
    one.must("sync");
    let there = other.must("async 4194304");
    assert_eq!(other.get(&there), 5);
    let shown = other.must("show t");
    assert_eq!(
        (field(&shown, "dtype"), field(&shown, "first")),
        ("u8", "4194304")
    );
    assert_eq!(field(&shown, "references"), "2");
    other.must(&format!("setasync {there} 6 4194304"));
    other.must(&format!("freeasync {there}"));
    assert_eq!(one.get(&here), 6);
    one.must(&format!("freeasync {here}"));
    assert_eq!(one.say("list"), "0");
    one.end();
    other.end();
}

#[test]
fn a_capture_forbids_of_named_memory_what_it_forbids_of_any() {
    let place = Place::with_keeper();
    let mut one = ruled(&place, "size=4MiB,name=t");
    let refused = |one: &mut Actor, call: &str| {
        one.must("capture");
        assert_eq!(one.say(call).split(' ').next(), Some("900"));
        assert_eq!(one.say("captured"), "901");
    };
    refused(&mut one, "malloc 4194304");
    let here = one.must("malloc 4194304");
    refused(&mut one, &format!("free {here}"));
    one.must("capture");
    assert_eq!(one.say(&format!("freeasync {here}")), "1");
    one.say("captured");
    one.must(&format!("set {here} 7 4194304"));
    one.must(&format!("free {here}"));
    assert_eq!(one.say("list"), "0");
    one.end();
}

#[test]
fn named_memory_is_exported_by_cuda_ipc_as_any() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (ruled(&place, "name=w"), place.actor());
    let here = one.malloc(4194304);
    one.set(&here, 7, 4 << 20);
    let handle = one.must(&format!("ipcget {here}"));
    let there = other.must(&format!("ipcopen {handle}"));
    assert_eq!(other.get(&there), 7);
    other.set(&there, 8, 4 << 20);
    assert_eq!(one.get(&here), 8);
    one.free(&here);
    assert_eq!(other.get(&there), 8);
    other.must(&format!("ipcclose {there}"));
    assert_eq!(other.say("list"), "0");
    let mut reader = ruled(&place, "name=v,read-only");
    one.opened("create v bytes=4096");
    let opened = reader.malloc(4096);
    assert_ne!(reader.code(&format!("ipcget {opened}")), 0);
}

#[test]
fn all_who_come_at_once_have_one_memory() {
    const PROCESSES: u8 = 6;
    let place = Place::with_keeper();
    let start = std::sync::Barrier::new(PROCESSES.into());
    let mut actors: Vec<(Actor, String)> = std::thread::scope(|scope| {
        let one = || {
            let mut actor = ruled(&place, "name=w,zeroed");
            start.wait();
            let at = actor.malloc(64 * MIB);
            (actor, at)
        };
        let all: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(field(&actors[0].0.must("show w"), "references"), "6");
    for number in 0..PROCESSES {
        let (actor, at) = &mut actors[usize::from(number)];
        assert_eq!(actor.get(at), number);
        actor.set(at, number + 1, 64 * MIB);
    }
}

#[test]
fn a_reset_of_the_device_ends_what_was_named_there() {
    let place = Place::with_keeper();
    let mut actor = ruled(&place, "name=w");
    actor.malloc(4096);
    assert_eq!(actor.say("list"), "0 w");
    actor.must("reset");
    actor.must("device 0");
    assert_eq!(actor.say("list"), "0");
    actor.end();
}
