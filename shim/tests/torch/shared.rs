//! Torch's memory over pages, as programs ask about it and share it: like that of
//! torch's own segments of cudaMalloc.

use crate::actor::{Actor, Place};
use crate::keeper::until;
use crate::sharing::{INVALID_VALUE, PAGE, RANGE_START, Torch};
use crate::sharing::{actor, command, exports, moved, number};
use crate::support::{self, shim};

const NOT_FOUND: i32 = 500;

/// Attributes of a pointer.
const CONTEXT: u32 = 1;
const DEVICE_POINTER: u32 = 3;
const SYNC_MEMOPS: u32 = 6;
const BUFFER_ID: u32 = 7;
const MAPPING_BASE: u32 = 19;
const MEMORY_BLOCK_ID: u32 = 20;

/// `CU_CTX_SYNC_MEMOPS`.
const CTX_SYNC_MEMOPS: u64 = 0x80;

/// Everything that is asked of an address, as far as it is the same in every process.
fn answers(actor: &mut Actor, base: &str, offset: u64) -> Vec<String> {
    let at = moved(base, offset);
    let mut all = Vec::new();
    for attribute in 1..=21 {
        let said = actor.say(&format!("attribute {at} {attribute}"));
        let (code, value) = said.split_once(' ').unwrap();
        let value = number(value);
        let value = match attribute {
            CONTEXT => u64::from(value != 0),
            DEVICE_POINTER | RANGE_START | MAPPING_BASE => value.wrapping_sub(number(base)),
            BUFFER_ID | MEMORY_BLOCK_ID => u64::from(value != 0),
            _ => value,
        };
        all.push(format!("{attribute}: {code} {value:x}"));
    }
    let range = actor.say(&format!("range {at}"));
    all.push(range.replace(base, "base"));
    all.push(actor.say(&format!("retain {at}")));
    all
}

#[test]
fn torchs_memory_answers_as_cuda_mallocs() {
    let place = Place::with_keeper();
    let bytes = 6 * PAGE;
    let mut bare = Actor::start(&mut command(&place, &[]));
    let mut over_pages = actor(&place);
    let (there, here) = (bare.torch(bytes), over_pages.torch(bytes));
    for offset in [0, 5, PAGE, 4 * PAGE + 3, bytes - 1] {
        let expected = answers(&mut bare, &there, offset);
        assert_eq!(answers(&mut over_pages, &here, offset), expected);
    }
    assert_eq!(bare.code(&format!("get {there}")), 0);
    assert_eq!(over_pages.code(&format!("get {here}")), 0);
    // Behind it, and when it is gone.
    for (actor, at) in [(&mut bare, &there), (&mut over_pages, &here)] {
        assert_eq!(
            actor.code(&format!("range {}", moved(at, bytes))),
            NOT_FOUND
        );
        actor.give_up(at);
        assert_eq!(actor.code(&format!("range {at}")), NOT_FOUND);
        assert_eq!(actor.code(&format!("attribute {at} 11")), INVALID_VALUE);
        assert_eq!(actor.code(&format!("get {at}")), INVALID_VALUE);
        assert_eq!(actor.code(&format!("retain {at}")), INVALID_VALUE);
    }
}

#[test]
fn an_allocation_is_what_touches_and_another_one_when_that_changes() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let first = actor.torch(2 * PAGE);
    let alone = actor.attribute(&first, BUFFER_ID);
    let second = actor.torch(PAGE);
    assert_eq!(second, moved(&first, 2 * PAGE), "side by side");
    let three = actor.attribute(&second, BUFFER_ID);
    assert_ne!(three, alone);
    let fourth = actor.torch(PAGE + 5);
    let whole = |actor: &mut Actor, at: &str| actor.must(&format!("range {at}"));
    assert_eq!(
        whole(&mut actor, &fourth),
        format!("{first} {}", 5 * PAGE),
        "torch maps whole pages"
    );
    actor.give_up(&second);
    assert_eq!(actor.code(&format!("range {second}")), NOT_FOUND);
    assert_eq!(
        whole(&mut actor, &moved(&first, 5)),
        format!("{first} {}", 2 * PAGE)
    );
    assert_eq!(whole(&mut actor, &fourth), format!("{fourth} {}", 2 * PAGE));
    // The hole is closed again: the same addresses, other memory.
    let again = actor.torch(PAGE);
    assert_eq!(again, second);
    let closed = actor.attribute(&first, BUFFER_ID);
    assert!(closed != three && closed != alone);
    assert_eq!(closed, actor.attribute(&fourth, BUFFER_ID));
    actor.must(&format!("torch-free {first}"));
    assert_eq!(
        actor.attribute(&first, BUFFER_ID),
        closed,
        "torch still has it"
    );
}

#[test]
fn pages_that_were_shared_are_not_kept_and_the_keeper_forgets_them() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let kept = exporter.torch(PAGE);
    let with_one = exporter.physical();
    exporter.give_up(&kept);
    assert_eq!(exporter.physical(), with_one, "kept for the next");
    let shared = exporter.torch(4 * PAGE);
    let handle = exporter.handle(&shared);
    assert_eq!(exports(&place), 1);
    let here = importer.open(&handle);
    importer.close(&here);
    exporter.give_up(&shared);
    assert_eq!(exporter.physical(), with_one - PAGE);
    assert_eq!(exports(&place), 0);
    // Nor is what a device may reach by itself.
    let reached = exporter.torch(PAGE);
    exporter.must(&format!("dma-buf {reached} {PAGE}"));
    exporter.give_up(&reached);
    assert_eq!(exporter.physical(), with_one - PAGE);
}

#[test]
fn who_is_killed_takes_nothing_from_the_others() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let mut survivor = actor(&place);
    let tensor = exporter.torch(3 * PAGE);
    exporter.must(&format!("fill {tensor} {} 4", 3 * PAGE));
    let handle = exporter.handle(&tensor);
    importer.open(&handle);
    let here = survivor.open(&handle);
    importer.kill();
    assert!(exporter.has(&tensor, 3 * PAGE, 4));
    assert!(survivor.has(&here, 3 * PAGE, 4));
    exporter.kill();
    assert!(survivor.has(&here, 3 * PAGE, 4));
    survivor.close(&here);
    until("the keeper forgets it", || exports(&place) == 0);
    let mut last = actor(&place);
    assert_eq!(last.code(&format!("open {handle}")), INVALID_VALUE);
}

#[test]
fn the_keepers_death_loses_nothing() {
    let place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let tensor = exporter.torch(2 * PAGE);
    exporter.must(&format!("fill {tensor} {} 4", 2 * PAGE));
    let handle = exporter.handle(&tensor);
    place.keeper.kill();
    let here = importer.open(&handle);
    assert!(importer.has(&here, 2 * PAGE, 4));
    exporter.give_up(&tensor);
    let mut third = actor(&place);
    assert_eq!(third.code(&format!("open {handle}")), INVALID_VALUE);
    assert!(importer.has(&here, 2 * PAGE, 4));
    importer.close(&here);
    until("the keeper forgets it", || exports(&place) == 0);
}

#[test]
fn a_keeper_that_knows_nothing_is_given_all_again() {
    let mut place = Place::with_keeper();
    let (mut exporter, mut importer) = (actor(&place), actor(&place));
    let tensor = exporter.torch(2 * PAGE);
    exporter.must(&format!("fill {tensor} {} 4", 2 * PAGE));
    let handle = exporter.handle(&tensor);
    let here = importer.open(&handle);
    // A run that becomes another one, as torch puts more behind it.
    let behind = exporter.torch(PAGE);
    assert_eq!(behind, moved(&tensor, 2 * PAGE));
    let of_all = exporter.handle(&tensor);
    place.keeper.end();
    assert!(importer.has(&here, 2 * PAGE, 4));
    place.keeper.start();
    // Also to who has it for the first time.
    let mut third = actor(&place);
    until("the exporter is back", || exports(&place) == 2);
    let there = third.open(&handle);
    assert!(third.has(&there, 2 * PAGE, 4));
    let all = third.open(&of_all);
    assert!(third.has(&all, 2 * PAGE, 4));
    assert_eq!(exporter.handle(&tensor), of_all);
    assert_eq!(importer.open(&handle), here);
    assert!(importer.has(&here, 2 * PAGE, 4));
    exporter.give_up(&tensor);
    let log = exporter.end();
    assert!(!log.contains("gone for good"), "nothing is parked: {log}");
}

#[test]
fn without_a_keeper_a_line_says_why_there_is_no_handle() {
    let place = Place::empty();
    let mut command = command(&place, &[shim()]);
    let mut alone = Actor::start(command.env("MEMCUDA_KEEPER", "off"));
    let tensor = alone.torch(PAGE);
    assert_eq!(alone.code(&format!("get {tensor}")), INVALID_VALUE);
    let log = alone.end();
    assert!(
        log.contains("cannot be exported by CUDA IPC: MEMCUDA_KEEPER=off"),
        "{log}"
    );
}

fn is_synchronous(actor: &mut Actor) -> bool {
    number(&actor.must("flags")) & CTX_SYNC_MEMOPS != 0
}

#[test]
fn copies_are_synchronous_as_long_as_a_marked_page_is_there() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let (first, second) = (actor.torch(PAGE), actor.torch(PAGE));
    actor.must(&format!("mark {first} 1"));
    assert_eq!(actor.attribute(&second, SYNC_MEMOPS), 1);
    assert!(is_synchronous(&mut actor));
    let third = actor.torch(PAGE);
    assert_eq!(actor.attribute(&third, SYNC_MEMOPS), 1, "the same one");
    actor.give_up(&first);
    assert!(is_synchronous(&mut actor), "a part of it is there");
    actor.give_up(&second);
    assert!(!is_synchronous(&mut actor));
    assert_eq!(actor.attribute(&third, SYNC_MEMOPS), 0);
    actor.must(&format!("mark {third} 1"));
    actor.must(&format!("mark {third} 0"));
    assert!(!is_synchronous(&mut actor));
}

/// What is idle of the pool goes before a page of torch's is refused.
#[test]
fn a_limit_is_of_blocks_and_pages_together() {
    let place = Place::empty();
    let mut command = command(&place, &[shim()]);
    let mut actor = Actor::start(command.env("MEMCUDA_LIMIT", "64MiB"));
    let block = actor.must("alloc 50331648");
    actor.free(&block);
    assert_eq!(actor.physical(), 48 << 20);
    for _ in 0..2 {
        actor.torch(PAGE);
        assert!(actor.physical() <= 64 << 20);
    }
}

/// A mapping takes memory, too: idle blocks go for it.
#[test]
fn a_page_that_there_is_no_room_to_map_is_mapped_again() {
    let place = Place::empty();
    let mut command = command(&place, &[shim()]);
    // The first two are the pool's, as it learns what can be opened, and the block's.
    let mut actor = Actor::start(command.env("MEMCUDA_SIM_FAIL", "cuMemMap@3=2"));
    let block = actor.must("alloc 2097152");
    actor.free(&block);
    actor.torch(PAGE);
    assert_eq!(actor.physical(), PAGE);
}

/// Blocks of the pool, freed in each way, and with their context.
#[test]
fn copies_are_synchronous_as_long_as_a_marked_block_is_there() {
    let place = Place::empty();
    let mut actor = actor(&place);
    for free in ["free", "free-async"] {
        let blocks = [0; 2].map(|_| actor.must("alloc 4194304"));
        for block in &blocks {
            actor.must(&format!("mark {block} 1"));
        }
        for block in &blocks {
            assert!(is_synchronous(&mut actor), "{free}");
            actor.must(&format!("{free} {block}"));
        }
        assert!(!is_synchronous(&mut actor), "{free}");
    }
    // The handle of the context comes back, as another's.
    for _ in 0..2 {
        let block = actor.must("alloc 4194304");
        actor.must(&format!("mark {block} 1"));
        assert!(is_synchronous(&mut actor));
        actor.must("reset");
        assert!(!is_synchronous(&mut actor));
    }
}

#[test]
fn flags_that_the_program_sets_take_nothing_from_what_is_marked() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let tensor = actor.torch(PAGE);
    for set in ["set-flags", "set-primary-flags"] {
        actor.must(&format!("mark {tensor} 1"));
        actor.must(&format!("{set} 0"));
        assert!(is_synchronous(&mut actor), "{set}");
        actor.must(&format!("{set} {CTX_SYNC_MEMOPS:x}"));
        actor.must(&format!("mark {tensor} 0"));
        assert!(is_synchronous(&mut actor), "{set}: the program's own");
        actor.must(&format!("{set} 0"));
        assert!(!is_synchronous(&mut actor), "{set}");
    }
    // With two marks, of which one goes before the other.
    let other = actor.must("alloc 4194304");
    actor.must(&format!("set-flags {CTX_SYNC_MEMOPS:x}"));
    for (marked, value) in [(&tensor, 1), (&other, 1), (&tensor, 0), (&other, 0)] {
        actor.must(&format!("mark {marked} {value}"));
    }
    assert!(is_synchronous(&mut actor), "the program's own");
    actor.must("set-flags 0");
    // Of a context that is not the current one.
    actor.must(&format!("mark {tensor} 1"));
    actor.must("device 1");
    actor.must("set-primary-flags 0");
    actor.must("device 0");
    assert!(is_synchronous(&mut actor));
    actor.must(&format!("mark {tensor} 0"));
    assert!(!is_synchronous(&mut actor));
}

#[test]
fn flags_that_the_program_could_not_set_are_not_its_own() {
    let place = Place::empty();
    let mut command = command(&place, &[shim()]);
    let mut actor = Actor::start(command.env("MEMCUDA_SIM_FAIL", "cuCtxSetFlags@2=999"));
    let block = actor.must("alloc 4194304");
    actor.must(&format!("mark {block} 1"));
    assert_eq!(actor.say(&format!("set-flags {CTX_SYNC_MEMOPS:x}")), "999");
    actor.must(&format!("mark {block} 0"));
    assert!(!is_synchronous(&mut actor));
}

/// The driver carries cudaMalloc's memory where there is no access, and opens it where
/// access is enabled; mapped memory it does neither.
#[test]
fn other_devices_copy_and_reach_torchs_memory_as_cuda_mallocs() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let tensor = actor.torch(2 * PAGE);
    actor.must("device 1");
    actor.must(&format!("fill {tensor} {} 5", 2 * PAGE));
    assert!(actor.has(&tensor, 2 * PAGE, 5));
    let own = actor.must(&format!("alloc {PAGE}"));
    actor.must(&format!("queue-copy {own} {tensor} {PAGE}"));
    actor.must("sync");
    assert!(actor.has(&own, PAGE, 5));
    // In a graph, for which the tensor's memory is opened.
    actor.must("capture 2");
    actor.must(&format!("queue-copy {tensor} {own} {PAGE}"));
    assert_eq!(actor.must("captured"), "kept");
    actor.must("device 0");
    let other = actor.torch(PAGE);
    actor.must("device 1");
    actor.must("peer 0");
    for (at, bytes) in [(&tensor, 2 * PAGE), (&other, PAGE)] {
        actor.must(&format!("work {at} {bytes} 10"));
        actor.must("sync");
    }
    // What torch maps later, too.
    actor.must("device 0");
    let later = actor.torch(PAGE);
    actor.must("device 1");
    actor.must(&format!("work {later} {PAGE} 10"));
    actor.must("sync");
    actor.end();
}

/// Under Yama's first level a child may not take its parent's descriptors, unless the
/// parent says so. The kernel's setting and the call are this test's.
#[test]
fn who_gives_descriptors_away_lets_them_be_taken() {
    let place = Place::empty();
    let kernel = support::compile("yama.c", "yama.so", &["-shared", "-fPIC", "-ldl"]);
    for (scope, said) in [("0", 0), ("1", 1), ("2", 0), ("3", 0)] {
        let mut command = command(&place, &[kernel.clone(), shim()]);
        command.env("YAMA", scope).env("MEMCUDA_LOG", "debug");
        command.env("MEMCUDA_TORCH", "expandable");
        let mut actor = Actor::start(&mut command);
        let tensors = [actor.torch(PAGE), actor.torch(PAGE)];
        for tensor in &tensors {
            actor.must(&format!("descriptor {tensor}"));
        }
        // What is shared is not kept.
        let before = actor.physical();
        actor.give_up(&tensors[0]);
        assert_eq!(actor.physical(), before - PAGE);
        let log = actor.end();
        assert_eq!(log.matches("prctl: anybody").count(), said, "{log}");
        assert_eq!(log.matches("PR_SET_PTRACER").count(), said, "{log}");
    }
}
