//! How long a name lives: deleted and made again, kept, left by who was killed.

use memcuda_core::share::protocol::{Code, Reply, Request};

use crate::actor::Place;
use crate::fickle;
use crate::keeper::until;
use crate::{MIB, NOT_FOUND, UNAVAILABLE, field, ruled};

#[test]
fn a_name_that_is_made_again_is_another_one_and_openings_notice() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    let (_, first) = one.opened("create w bytes=4096");
    let (old, _) = other.opened("open w");
    let (_, same) = other.opened("open w");
    one.set(&first, 1, 4096);
    let before = other.must("show w");
    one.must("delete w");
    assert_eq!(
        other.code("open w"),
        NOT_FOUND,
        "a remembered opening notices"
    );
    assert_eq!(other.get(&same), 1, "who has it keeps it");
    let (_, second) = one.opened("create w bytes=4096");
    one.set(&second, 2, 4096);
    let (new, there) = other.opened("open w");
    assert_eq!((other.get(&there), other.get(&same)), (2, 1));
    assert_ne!(
        field(&before, "generation"),
        field(&other.must("show w"), "generation")
    );
    other.close(&old);
    let (_, again) = other.opened("open w");
    assert_eq!(again, there);
    other.close(&new);
    other.end();
    one.end();
}

#[test]
fn a_kept_name_outlives_a_killed_maker() {
    let place = Place::with_keeper();
    let mut maker = place.actor();
    let (_, here) = maker.opened("create w bytes=4194304 flags=8");
    maker.set(&here, 7, 4 << 20);
    maker.opened("create lost bytes=4096");
    maker.kill();
    let mut next = place.actor();
    until("what nobody keeps is gone", || {
        next.code("open lost") == NOT_FOUND
    });
    let (_, there) = next.opened("open w bytes=4194304");
    assert_eq!(
        next.must(&format!("sum {there} 4194304")),
        (7_u64 * (4 << 20)).to_string()
    );
    assert_eq!(field(&next.must("show w"), "persist"), u64::MAX.to_string());
    next.must("persist w 0");
    next.kill();
    let mut last = place.actor();
    until("it is not kept any more", || {
        last.code("open w") == NOT_FOUND
    });
}

#[test]
fn a_maker_that_is_killed_leaves_what_others_hold() {
    let place = Place::with_keeper();
    let (mut maker, mut holder) = (place.actor(), place.actor());
    let (_, here) = maker.opened("create w bytes=4096");
    maker.set(&here, 7, 4096);
    let (_, there) = holder.opened("open w");
    maker.kill();
    assert_eq!(holder.get(&there), 7);
    until("the maker's count is gone", || holder.references("w") == 1);
}

/// Programs count on it, whoever else has the memory.
#[test]
fn a_free_waits_though_a_handle_holds_the_memory() {
    let place = Place::with_keeper();
    let mut actor = ruled(&place, "size=1GiB,name=w");
    let at = actor.malloc(1024 * MIB);
    let handle = actor.must(&format!("find {at}"));
    actor.must(&format!("setasync {at} 0 {}", 1024 * MIB));
    actor.free(&at);
    assert_eq!(actor.code("query"), 0, "the work is over");
    actor.close(&handle);
}

/// The connection has to end then, since what the keeper gave is not known.
#[test]
fn who_has_no_descriptor_for_a_name_keeps_the_others() {
    let place = Place::with_keeper();
    let (mut actor, mut other) = (place.actor(), place.actor());
    actor.opened("create w bytes=4096");
    other.opened("create x bytes=4096");
    actor.must("files 0");
    assert_eq!(actor.code("open x"), UNAVAILABLE);
    let said = actor.message();
    assert!(said.contains("RLIMIT_NOFILE"), "{said}");
    // It comes back meanwhile, and has no descriptor for the keeper's page.
    std::thread::sleep(std::time::Duration::from_millis(700));
    actor.must("files 256");
    until("it is asked again", || actor.code("show w") != UNAVAILABLE);
    assert_eq!(actor.references("w"), 1);
    until("what came in vain is not held", || {
        other.references("x") == 1
    });
    actor.end();
    other.end();
}

/// It asks no table: another thread of its parent may have locked it.
#[test]
fn in_a_forked_child_a_handle_is_none() {
    let place = Place::with_keeper();
    let mut actor = place.actor();
    let (handle, _) = actor.opened("create w bytes=4096");
    assert_eq!(actor.must(&format!("fork {handle}")), "0");
    actor.close(&handle);
    actor.end();
}

#[test]
fn nothing_is_left_of_a_name_whose_context_cannot_be_made_current() {
    let place = Place::with_keeper();
    let fails = |nth: &u32| {
        let fault = format!("cuCtxPushCurrent_v2@{nth}=999");
        let memory = ("MEMCUDA_SIM_MEMORY", "48MiB");
        let mut actor = place.actor_with(&[memory, ("MEMCUDA_SIM_FAIL", &fault)]);
        actor.must("device 1");
        // There is room for one of them.
        let create = "create w bytes=33554432 device=0";
        // What fails ahead of the answer is made up for behind it.
        let failed = actor.code(create) != 0;
        if failed {
            actor.must(create);
        }
        actor.end();
        failed
    };
    // Which of them is for the mapping is not the same in each process.
    let met = (0..5).any(|_| (1..=6).filter(fails).count() > 0);
    assert!(met, "no failure met the mapping");
}

#[test]
fn what_is_sealed_is_read_only_also_by_a_handle_of_cuda_ipc() {
    let place = Place::with_keeper();
    let (mut one, mut other) = (place.actor(), place.actor());
    let (handle, here) = one.opened("create w bytes=4194304");
    one.set(&here, 7, 4 << 20);
    let exported = one.must(&format!("ipcget {here}"));
    one.must(&format!("seal {handle}"));
    let there = other.must(&format!("ipcopen {exported}"));
    assert_eq!(other.get(&there), 7);
    assert_eq!(one.must(&format!("access {here}")), "3");
    assert_eq!(other.must(&format!("access {there}")), "1");
}

/// Else what a name takes looks as memory that the pool lost.
#[test]
fn what_a_process_holds_by_a_name_is_told_apart() {
    let place = Place::with_keeper();
    let mut maker = place.actor();
    maker.opened("create w bytes=8388608");
    maker.malloc(4 * MIB);
    let pid = maker.pid().to_string();
    let said = place.keeper.verb(&["explain", &pid]).unwrap();
    let sum =
        "physical 12.0 MiB: live 4.0 MiB (lent 4.0 MiB), shared 8.0 MiB, pending 0 B, idle 0 B";
    assert!(said.contains(sum), "{said}");
}

/// Beside a capture the wait of a close is an allocation and its free, for which there is no
/// memory here. The simulated GPU ends a program that unmaps memory in use.
#[test]
fn what_cannot_be_waited_for_now_is_not_closed_yet() {
    const DRIVER: i32 = 12;
    const OUT_OF_MEMORY: i32 = 2;
    let place = Place::with_keeper();
    let full = ("MEMCUDA_SIM_FAIL", "cuMemAlloc_v2%1=2,cuMemHostAlloc%1=2");
    let rule = ("MEMCUDA_NAMES", "size=4MiB,name=t");
    let mut actor = place.actor_with(&[full, rule]);
    let (handle, here) = actor.opened("create w bytes=4096");
    let there = actor.must("malloc 4194304");
    for (at, ends, fails) in [
        (&here, format!("close {handle}"), DRIVER),
        (&there, format!("free {there}"), OUT_OF_MEMORY),
    ] {
        actor.must(&format!("setasync {at} 7 4096"));
        actor.must("relaxed");
        assert_eq!(actor.code(&ends), fails);
        actor.must("captured");
        assert_eq!(actor.get(at), 7);
        actor.must(&ends);
    }
    assert_eq!(actor.say("list"), "0");
    actor.end();
}

/// The keeper did it, and went away before it said so.
#[test]
fn a_name_that_is_gone_by_a_try_before_is_deleted() {
    let place = Place::empty();
    let mut asked = 0;
    let mut actor = fickle::start(&place, move |request| {
        if !matches!(request, Request::Delete { .. } | Request::Persist { .. }) {
            return Some(Reply::Done);
        }
        asked += 1;
        let (code, message) = (Code::NotFound, "there is none".to_owned());
        (asked % 2 == 0 || asked > 6).then_some(Reply::Failed { code, message })
    });
    assert_eq!(actor.code("delete w"), 0);
    assert_eq!(actor.code("persist w 0"), 0);
    assert_eq!(actor.code("persist w 60"), NOT_FOUND, "not kept");
    assert_eq!(actor.code("delete w"), NOT_FOUND, "by the first try");
}

/// A green context is a view of the primary one, whose memory it is when the view is gone.
#[test]
fn what_was_named_in_a_view_outlives_it() {
    let place = Place::with_keeper();
    let mut actor = ruled(&place, "size=4MiB,name=t");
    for ends in ["close", "reset"] {
        actor.must("view");
        let (handle, here) = actor.opened("create w bytes=4096");
        let there = actor.malloc(4 * MIB);
        actor.must("view-ends");
        for at in [&here, &there] {
            actor.set(at, 7, 4096);
            assert_eq!(actor.get(at), 7);
        }
        if ends == "close" {
            assert_eq!(actor.references("w"), 1);
            actor.must(&format!("close {handle}"));
            actor.must(&format!("free {there}"));
        } else {
            actor.must("reset");
            actor.must("device 0");
        }
        assert_eq!(actor.say("list"), "0", "{ends}");
    }
    actor.end();
}
