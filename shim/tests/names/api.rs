//! The interface of `include/memcuda.h`.

use crate::actor::{Actor, Place};
use crate::keeper::until;
use crate::{
    DENIED, EXISTS, IN_PROGRESS, INVALID, INVALID_VALUE, MIB, MISMATCH, NOT_FOUND, SEALED,
    UNAVAILABLE, field,
};

#[test]
fn a_name_is_the_same_memory_everywhere() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    assert_eq!(other.code("open w"), NOT_FOUND);
    let (handle, here) = one.opened("create w dtype=f32 shape=256x1024 flags=2");
    assert_eq!(one.must(&format!("sum {here} {MIB}")), "0");
    one.set(&here, 7, MIB);
    let (_, there) = other.opened("open w");
    assert_eq!(other.get(&there), 7);
    other.set(&there, 8, MIB);
    assert_eq!(one.get(&here), 8);
    assert_eq!(one.code("create w bytes=1048576"), EXISTS);
    let shown = one.must(&format!("describe {handle}"));
    for (name, value) in [
        ("name", "w"),
        ("state", "1"),
        ("bytes", "1048576"),
        ("mapped", "2097152"),
        ("dtype", "f32"),
        ("rank", "2"),
        ("first", "256"),
        ("device", "0"),
        ("version", "0"),
        ("persist", "0"),
    ] {
        assert_eq!(field(&shown, name), value, "{name}: {shown}");
    }
    assert_eq!(field(&shown, "address"), here);
    assert_eq!(field(&shown, "maker"), one.pid().to_string());
    one.close(&handle);
    assert_eq!(one.code(&format!("close {handle}")), INVALID);
    assert_eq!(one.code(&format!("describe {handle}")), INVALID);
    assert_eq!(other.get(&there), 8, "it lives while somebody holds it");
    let log = other.end();
    until("the name is gone", || one.code("open w") == NOT_FOUND);
    assert!(!log.contains("error"), "{log}");
    one.end();
}

#[test]
fn opened_again_it_has_the_same_address() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    let (made, address) = actor.opened("either w bytes=4096");
    let (second, again) = actor.opened("open w");
    let (reader, apart) = actor.opened("open w flags=1");
    assert_eq!(address, again);
    assert_ne!(address, apart, "for reading it is another mapping");
    actor.set(&address, 3, 4096);
    assert_eq!(actor.get(&apart), 3);
    assert_eq!(actor.references("w"), 2);
    for handle in [made, second] {
        actor.close(&handle);
    }
    assert_eq!(actor.references("w"), 1);
    actor.close(&reader);
    assert_eq!(actor.code("show w"), NOT_FOUND);
    actor.end();
}

#[test]
fn a_tensor_of_dlpack_gives_its_handle_back() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    for versioned in [0, 1] {
        let (handle, _) = actor.opened("create w bytes=4096");
        actor.must(&format!("dlpack {handle} {versioned}"));
        assert_eq!(actor.code(&format!("close {handle}")), INVALID);
        assert_eq!(actor.code("open w"), NOT_FOUND);
    }
    actor.end();
}

#[test]
fn threads_that_open_a_name_at_once_have_one_address() {
    let place = Place::with_keeper();
    let (mut maker, mut opener) = (place.actor(), place.actor());
    maker.opened("create w bytes=4096");
    for _ in 0..20 {
        assert_eq!(opener.must("race w"), "1");
        assert_eq!(opener.references("w"), 1);
    }
    opener.end();
}

#[test]
fn what_is_expected_is_checked() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    one.opened("create w dtype=bf16 shape=64x64");
    for actor in [&mut one, &mut other] {
        for (options, result) in [
            ("", 0),
            ("bytes=8192", 0),
            ("dtype=bf16 shape=64x64", 0),
            ("bytes=4096", MISMATCH),
            ("dtype=f16", MISMATCH),
            ("dtype=bf16 shape=32x128", MISMATCH),
            ("dtype=f32 shape=64x64 bytes=8192", INVALID),
        ] {
            assert_eq!(
                actor.code(&format!("open w {options}")),
                result,
                "{options}"
            );
        }
    }
}

/// By who has it open and answers by itself, and by who asks the keeper.
#[test]
fn what_is_not_as_expected_is_named() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    one.opened("create w dtype=bf16 shape=64x64");
    for actor in [&mut one, &mut other] {
        for (options, said) in [
            ("bytes=4096", "w has bytes 8192, not 4096"),
            ("dtype=f16 shape=64x32", "w has dtype bf16, not f16"),
            (
                "dtype=bf16 shape=64x32",
                "w has shape [64, 64], not [64, 32]",
            ),
        ] {
            assert_eq!(actor.code(&format!("open w {options}")), MISMATCH);
            let message = actor.message();
            assert!(message.ends_with(said), "{message}");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    for (line, says) in [
        ("open -", "null pointer"),
        ("open cmd", "reserved"),
        ("open a\\b", "names do not have"),
        ("create w", "accepted: 1 to"),
        ("create w bytes=4096 flags=128", "flags 0x80"),
        ("create w bytes=4096 flags=1", "MEMCUDA_READ_ONLY"),
        ("create w bytes=4096 flags=17", "READ_ONLY"),
        ("create w bytes=4096 flags=24", "MEMCUDA_CUDA_IPC"),
        ("create w bytes=4096 device=7", "device 7"),
        ("create w dtype=float shape=2", "dtype \"float\""),
        ("create w shape=2x2", "without a dtype"),
        ("create w dtype=f32 shape=2x0", "no elements"),
        (
            "create w dtype=f64 shape=9223372036854775807x2",
            "larger than an address",
        ),
        ("open w size=8", "sizeof(memcuda_options)"),
        ("next w 9", "mode 9"),
        ("close 77", "77 is no handle"),
        ("wait 0 1 0", "0 is no handle"),
        ("show -", "null pointer"),
        ("delete a\tb", ""),
    ] {
        let code = actor.code(line);
        let said = actor.message();
        assert!(
            code == INVALID || (says.is_empty() && code == NOT_FOUND),
            "{line}: {code} {said}"
        );
        assert!(
            said.starts_with("memcuda_") && said.contains(says),
            "{line}: {said}"
        );
    }
    assert_eq!(actor.say("list"), "0");
    assert_eq!(actor.must("resultname 4"), "mismatch");
    assert_eq!(actor.must("resultname 99"), "unknown");
    actor.end();
}

#[test]
fn what_was_allocated_with_a_name_is_freed_once_and_a_handle_keeps_it() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    actor.must("next other 1");
    actor.malloc(100);
    actor.must("next w 1");
    let at = actor.malloc(100);
    let handle = actor.must(&format!("find {at}"));
    actor.set(&at, 4, 100);
    actor.free(&at);
    assert_eq!(actor.code(&format!("free {at}")), INVALID_VALUE);
    assert_eq!(actor.must(&format!("address {handle}")), at);
    assert_eq!(actor.get(&at), 4);
    actor.close(&handle);
    assert_eq!(actor.code("show w"), NOT_FOUND);
}

#[test]
fn the_next_allocation_of_a_thread_has_the_name() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    one.must("next w 3 flags=2 dtype=u8 shape=100");
    let named = one.malloc(100);
    let plain = one.malloc(100);
    assert_eq!(one.say("list"), "0 w");
    let handle = one.must(&format!("find {named}"));
    let inside = u64::from_str_radix(&named, 16).unwrap() + 99;
    let second = one.must(&format!("find {inside:x}"));
    assert_eq!(one.code(&format!("find {:x}", inside + 1)), NOT_FOUND);
    assert_eq!(one.code(&format!("find {plain}")), NOT_FOUND);
    one.set(&named, 4, 100);
    other.must("next w 2");
    let there = other.must("async 100");
    assert_eq!(other.get(&there), 4);
    other.must("next w 2");
    assert_eq!(other.code("malloc 200"), INVALID_VALUE);
    other.must("next w 2 flags=32");
    let own = other.malloc(200);
    assert_eq!(other.code(&format!("find {own}")), NOT_FOUND);
    other.must("next w 2");
    other.must("next - 0");
    let own = other.malloc(100);
    assert_eq!(
        other.code(&format!("find {own}")),
        NOT_FOUND,
        "it was taken back"
    );
    // The program frees what it allocated; who has a handle keeps it.
    one.free(&named);
    assert_eq!(one.get(&named), 4);
    one.close(&second);
    one.close(&handle);
    assert_eq!(other.references("w"), 1);
    one.end();
    other.end();
}

#[test]
fn a_hidden_one_is_found_once_it_is_sealed() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    let (handle, here) = one.opened("create w bytes=4096 flags=4");
    assert_eq!(other.code("open w wait=1000"), IN_PROGRESS);
    // Nor by its own process, whatever happens to other names meanwhile.
    let (again, _) = one.opened("create x bytes=4096 flags=4");
    for line in ["open x wait=1000", "either x bytes=4096 wait=1000"] {
        assert_eq!(one.code(line), IN_PROGRESS, "{line}");
    }
    one.close(&again);
    assert_eq!(other.say("list"), "0", "nor listed before that");
    one.set(&here, 9, 4096);
    one.must(&format!("seal {handle}"));
    let described = one.must(&format!("describe {handle}"));
    assert_eq!(field(&described, "state"), "2");
    assert_eq!(other.code("open w"), SEALED, "its bytes are final");
    assert_eq!(one.code("open w"), SEALED);
    let (reader, there) = other.opened("open w flags=1");
    assert_eq!(other.get(&there), 9);
    assert_eq!(other.code(&format!("seal {reader}")), DENIED);
    assert_eq!(other.code(&format!("publish {reader} 0")), DENIED);
    assert_eq!(field(&other.must("show w"), "state"), "2");
    // So are those of one that is open for writing already.
    let (handle, _) = one.opened("create u bytes=4096");
    other.opened("open u");
    other.opened("open u");
    one.must(&format!("seal {handle}"));
    assert_eq!((one.code("open u"), other.code("open u")), (SEALED, SEALED));
    let described = one.must(&format!("describe {handle}"));
    assert_eq!(field(&described, "state"), "2");
    // One that its maker never shows ends with it.
    let (_, _) = one.opened("create v bytes=4096 flags=4");
    one.end();
    until("the hidden one is gone", || {
        other.code("open v wait=1000") == NOT_FOUND
    });
}

#[test]
fn a_library_that_stands_aside_says_so() {
    let place = Place::with_keeper();
    for (variable, value) in [("MEMCUDA_DISABLE", "1"), ("MEMCUDA_POLICY", "track")] {
        let mut actor = place.actor_with(&[(variable, value)]);
        assert_eq!(actor.code("create w bytes=4096"), UNAVAILABLE, "{variable}");
        let said = actor.message();
        assert!(
            said.contains("stands aside") || said.contains("track"),
            "{said}"
        );
    }
}

#[test]
fn a_failure_of_the_driver_is_told_with_its_code() {
    const CUDA: i32 = 12;
    const OUT_OF_MEMORY: &str = "2";
    let place = Place::with_keeper();
    let mut actor = place.actor_with(&[("MEMCUDA_SIM_MEMORY", "64MiB")]);
    assert_eq!(actor.code("create w bytes=268435456"), CUDA);
    assert_eq!(actor.must("cuda"), OUT_OF_MEMORY);
    assert!(actor.message().contains("OUT_OF_MEMORY"));
    assert_eq!(actor.code("open w"), NOT_FOUND, "nothing is left of it");
    actor.opened("create w bytes=4096");
    // Nor of one that is made and cannot be filled.
    let fails = ("MEMCUDA_SIM_FAIL", "cuMemsetD32Async@1=999");
    let mut actor = place.actor_with(&[("MEMCUDA_SIM_MEMORY", "64MiB"), fails]);
    let before = actor.must("physical");
    assert_eq!(actor.code("create v bytes=4096 flags=2"), CUDA);
    assert_eq!(actor.must("physical"), before);
    actor.opened("create v bytes=4096 flags=2");
}

#[test]
fn a_limit_holds_for_names_and_the_pool_together() {
    const CUDA: i32 = 12;
    const LIMIT: u64 = 1024 * MIB;
    let place = Place::with_keeper();
    let mut actor = place.actor_with(&[("MEMCUDA_LIMIT", &LIMIT.to_string())]);
    let idle = actor.malloc(800 * MIB);
    actor.free(&idle);
    let (one, _) = actor.opened(&format!("create one bytes={}", 600 * MIB));
    let physical = |actor: &mut Actor| actor.must("physical").parse::<u64>().unwrap();
    assert!(physical(&mut actor) <= LIMIT, "idle memory makes way");
    let held = physical(&mut actor);
    assert_eq!(
        actor.code(&format!("create huge bytes={}", LIMIT + 1)),
        CUDA
    );
    assert_eq!(physical(&mut actor), held, "nor for nothing");
    actor.malloc(300 * MIB);
    let other = format!("create other bytes={}", 300 * MIB);
    assert_eq!(actor.code(&other), CUDA, "all that is held is in use");
    assert!(physical(&mut actor) <= LIMIT);
    actor.close(&one);
    actor.opened(&other);
}

/// Panics are planted in debug builds only.
#[cfg(debug_assertions)]
#[test]
fn a_panic_is_a_result_and_the_program_goes_on() {
    const INTERNAL: i32 = 13;
    for (function, line) in [
        ("memcuda_create", "create w bytes=4096"),
        ("memcuda_open", "open w"),
        ("memcuda_close", "close 1"),
        ("memcuda_list", "list"),
        ("memcuda_publish", "publish 1 0"),
    ] {
        let place = Place::with_keeper();
        let mut actor =
            place.actor_with(&[("MEMCUDA_PANIC_IN", function), ("MEMCUDA_LOG", "warn")]);
        assert_eq!(actor.code(line), INTERNAL, "{function}");
        assert!(actor.message().contains("internal error"));
        assert_eq!(actor.code("create v bytes=4096"), UNAVAILABLE);
        let at = actor.malloc(4096);
        actor.free(&at);
        let log = actor.end();
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

#[test]
fn of_memory_that_the_driver_does_not_export_nothing_is_left() {
    let place = Place::with_keeper();
    // The first one is a question of the library's own.
    let fails = ("MEMCUDA_SIM_FAIL", "cuMemExportToShareableHandle@2=999");
    let mut actor = place.actor_with(&[fails]);
    let before = actor.must("physical");
    assert_ne!(actor.code("create w bytes=4096"), 0);
    assert_eq!(actor.must("physical"), before);
    actor.opened("create w bytes=4096");
}
