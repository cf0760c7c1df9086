//! Exported memory over the model driver.

use crate::config::Policy;
use crate::driver::model::Model;
use crate::driver::{Address, Code, Driver, Handle, Stream};
use crate::pool::tests::{CONTEXT, key, on, pool, request};
use crate::pool::{NotOurs, Order, Pool, Release, Settings};
use crate::units::MIB;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn what_lies_below_an_allocation_is_told_in_order() {
    let pool = pool(Settings {
        chunk: Some(4 * MIB),
        ..Settings::default()
    });
    let at = pool.alloc(&on(10, 10 * MIB)).unwrap();
    let behind = pool.alloc(&on(10, MIB)).unwrap();
    let export = pool.export(at + 9 * MIB).unwrap();
    let sizes: Vec<u64> = export.handles.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!((export.block.base, export.offset), (at, 0));
    assert_eq!(sizes, [4 * MIB; 3]);
    let last = export.handles[2].0;
    let export = pool.export(behind).unwrap();
    assert_eq!((export.handles[0].0, export.offset), (last, 2 * MIB));
    assert_eq!(pool.export(behind + MIB), None);
}

#[test]
fn a_small_allocation_lies_in_its_slab() {
    let pool = pool(Settings::default());
    let first = pool.alloc(&on(10, 1000)).unwrap();
    let second = pool.alloc(&on(10, 1000)).unwrap();
    let (a, b) = (pool.export(first).unwrap(), pool.export(second).unwrap());
    assert_eq!(a.handles, b.handles);
    assert_eq!(b.offset - a.offset, second - first);
}

#[test]
fn exported_memory_is_parked_when_it_is_freed_until_the_export_ends() {
    for bytes in [1000, 8 * MIB] {
        let pool = pool(Settings::default());
        let at = pool.alloc(&on(10, bytes)).unwrap();
        let id = pool.export(at).unwrap().block.id;
        assert!(!pool.is_parked(id));
        let freed = pool.free(at, Release::Stream(key(10))).unwrap();
        assert!(freed.parked && pool.is_parked(id));
        assert_eq!(pool.find(at), None);
        assert_eq!(pool.free(at, Release::Complete), Err(NotOurs::Unknown));
        let stats = pool.stats();
        assert_eq!((stats.live_bytes, stats.parked_bytes), (0, bytes));

        let other = pool.alloc(&on(10, bytes)).unwrap();
        assert_ne!(other, at, "it is not lent");
        pool.free(other, Release::Complete).unwrap();
        pool.trim();
        assert!(pool.physical() > 0, "nor given back");
        pool.context_ends(CONTEXT);
        assert!(pool.physical() > 0, "not at the end of the context either");

        pool.export_ends(id);
        assert_eq!(pool.stats().parked_bytes, 0);
        pool.trim();
        assert_eq!((pool.physical(), pool.stats().granted_bytes), (0, 0));
    }
}

#[test]
fn an_export_that_ends_first_is_freed_as_any() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&request(8 * MIB, Order::Unknown)).unwrap();
    let id = pool.export(at).unwrap().block.id;
    pool.export_ends(id);
    let freed = pool.free(at, Release::Complete).unwrap();
    assert!(!freed.parked);
    assert_eq!(pool.alloc(&request(8 * MIB, Order::Unknown)), Ok(at));
}

#[test]
fn a_context_ends_and_what_it_exported_is_parked() {
    for bytes in [1000, 8 * MIB] {
        let pool = pool(Settings::default());
        let at = pool.alloc(&request(bytes, Order::Unknown)).unwrap();
        let id = pool.export(at).unwrap().block.id;
        pool.context_ends(CONTEXT);
        assert!(pool.is_parked(id) && pool.physical() > 0);
        pool.export_ends(id);
        pool.trim();
        assert_eq!(pool.physical(), 0);
    }
}

#[test]
fn what_is_like_something_exported_is_made_of_one_handle() {
    let pool = pool(Settings::default());
    let exported = |bytes| {
        let at = pool.alloc(&on(10, bytes)).unwrap();
        let handles = pool.export(at).unwrap().handles;
        handles.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>()
    };
    for bytes in [20 * MIB, 24 * MIB + 4, 256 * MIB] {
        let whole = bytes.next_multiple_of(2 * MIB);
        assert!(exported(bytes).len() > 1, "nobody knew");
        assert_eq!(exported(bytes), [whole]);
        assert_eq!(exported(bytes), [whole]);
    }
    // What is of another size is made as ever.
    let at = pool.alloc(&on(10, 48 * MIB)).unwrap();
    assert!(pool.export(at).unwrap().handles.len() > 1);
    // And a fixed size of handles is kept.
    let fixed = self::pool(Settings {
        chunk: Some(4 * MIB),
        ..Settings::default()
    });
    for _ in 0..2 {
        let at = fixed.alloc(&on(10, 20 * MIB)).unwrap();
        assert_eq!(fixed.export(at).unwrap().handles.len(), 5);
    }
}

#[test]
fn parked_memory_is_lent_again_once_nobody_has_it() {
    for bytes in [1000, 8 * MIB] {
        let pool = pool(Settings::default());
        let at = pool.alloc(&request(bytes, Order::Unknown)).unwrap();
        let id = pool.export(at).unwrap().block.id;
        assert!(pool.free(at, Release::Complete).unwrap().parked);
        let other = pool.alloc(&request(bytes, Order::Unknown)).unwrap();
        pool.free(other, Release::Complete).unwrap();
        pool.export_ends(id);
        let again = [0; 2].map(|_| pool.alloc(&request(bytes, Order::Unknown)).unwrap());
        assert!(again.contains(&at), "{bytes}: {again:x?}, not {at:x}");
    }
}

#[test]
fn under_direct_parked_memory_goes_for_the_next_once_nobody_has_it() {
    let settings = Settings {
        policy: Policy::Direct,
        ..Settings::default()
    };
    let pool = Pool::new(Model::new(100 * MIB), 0, settings).unwrap();
    let asked = request(60 * MIB, Order::Unknown);
    let at = pool.alloc(&asked).unwrap();
    let id = pool.export(at).unwrap().block.id;
    assert!(pool.free(at, Release::Complete).unwrap().parked);
    assert_eq!(pool.alloc(&asked), Err(Code::OUT_OF_MEMORY.into()));
    pool.export_ends(id);
    assert!(pool.alloc(&asked).is_ok());
    assert_eq!(pool.physical(), 60 * MIB);
}

fn is_left(pool: &Pool<Model>, id: u64) -> bool {
    pool.leave(&[id]) == [id]
}

#[test]
fn what_is_left_to_others_gives_its_addresses_to_the_next() {
    let pool = pool(Settings::default());
    // The last handle is longer than what is left of it.
    let bytes = 7 * MIB + 1000;
    let at = pool.alloc(&request(bytes, Order::Unknown)).unwrap();
    for _ in 0..3 {
        let id = pool.export(at).unwrap().block.id;
        assert!(!is_left(&pool, id), "the program has it");
        assert!(pool.free(at, Release::Complete).unwrap().parked);
        assert!(is_left(&pool, id) && !is_left(&pool, id));
        assert_eq!((pool.physical(), pool.stats().parked_bytes), (0, 0));
        assert_eq!((pool.stats().granted_bytes, pool.idle()), (0, 0));
        // As if the others had closed it meanwhile.
        pool.export_ends(id);
        assert_eq!(pool.alloc(&request(bytes, Order::Unknown)), Ok(at));
    }
}

#[test]
fn what_several_left_of_one_range_gives_its_addresses_to_the_next() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let alloc = |mib| pool.alloc(&request(mib * MIB, Order::Unknown)).unwrap();
    let (whole, _behind) = (alloc(64), alloc(32));
    pool.free(whole, Release::Complete).unwrap();
    let mut halves = [0; 2].map(|_| alloc(32));
    halves.sort_unstable();
    assert_eq!(halves, [whole, whole + 32 * MIB]);
    let ids = halves.map(|at| pool.export(at).unwrap().block.id);
    for at in halves {
        pool.free(at, Release::Complete).unwrap();
    }
    assert!(ids.iter().all(|id| is_left(&pool, *id)));
    assert_eq!(alloc(32), whole);
}

#[test]
fn what_is_made_and_left_again_and_again_keeps_its_addresses_beside_other_memory() {
    let pool = pool(Settings::default());
    let alloc = |bytes| pool.alloc(&request(bytes, Order::Unknown)).unwrap();
    let mut met = Vec::new();
    for round in 0..20 {
        let shared = alloc(16 * MIB);
        let own = alloc(10 * MIB);
        let id = pool.export(shared).unwrap().block.id;
        for at in [own, shared] {
            pool.free(at, Release::Complete).unwrap();
        }
        assert!(is_left(&pool, id));
        let longer = alloc((50 + round) * MIB);
        pool.free(longer, Release::Complete).unwrap();
        met.push(shared);
    }
    met.sort_unstable();
    met.dedup();
    assert!(met.len() <= 2, "{met:x?}");
}

/// A pool with room for two of 16 MiB, where one was left to others, and its address. The
/// rest of the device somebody else has, by that handle.
fn full_with_one_left(settings: Settings) -> (Pool<Model>, Address, Handle) {
    let pool = Pool::new(Model::new(32 * MIB), 0, settings).unwrap();
    let at = pool.alloc(&request(16 * MIB, Order::Unknown)).unwrap();
    let id = pool.export(at).unwrap().block.id;
    assert!(pool.free(at, Release::Complete).unwrap().parked);
    assert!(is_left(&pool, id));
    let filler = pool.driver().create(0, 32 * MIB).unwrap();
    (pool, at, filler)
}

#[test]
fn what_others_know_they_know_after_a_failure_there() {
    let alike = request(16 * MIB, Order::Unknown);
    let (pool, at, filler) = full_with_one_left(Settings::default());
    assert_eq!(pool.alloc(&alike), Err(Code::OUT_OF_MEMORY.into()));
    pool.driver().release(filler).unwrap();
    assert_eq!(pool.alloc(&alike), Ok(at));
}

/// The request that failed is tried again.
#[test]
fn what_others_know_is_for_a_request_that_somebody_makes_room_for() {
    let starved = Arc::new(AtomicBool::new(false));
    let settings = Settings {
        starving: Some(Box::new({
            let starved = Arc::clone(&starved);
            move |_, _, _| {
                starved.store(true, Relaxed);
                true
            }
        })),
        ..Settings::default()
    };
    let (pool, at, filler) = full_with_one_left(settings);
    std::thread::scope(|scope| {
        let again = scope.spawn(|| pool.alloc(&request(16 * MIB, Order::Unknown)));
        while !starved.load(Relaxed) {
            std::thread::yield_now();
        }
        pool.driver().release(filler).unwrap();
        assert_eq!(again.join().unwrap(), Ok(at));
    });
}

#[test]
fn behind_what_was_left_within_a_handle_new_memory_is_made() {
    let pool = pool(Settings::default());
    let [first, second] = [0; 2].map(|_| pool.alloc(&request(MIB, Order::Unknown)).unwrap());
    let id = pool.export(second).unwrap().block.id;
    for at in [first, second] {
        pool.free(at, Release::Complete).unwrap();
    }
    assert!(is_left(&pool, id));
    pool.alloc(&request(8 * MIB, Order::Unknown)).unwrap();
    let like_it = pool.alloc(&request(MIB, Order::Unknown));
    assert_eq!(like_it, Ok(first), "where the range begins");
}

#[test]
fn what_shares_a_handle_is_not_left() {
    let pool = pool(Settings {
        chunk: Some(4 * MIB),
        ..Settings::default()
    });
    let [at, behind, small] =
        [10 * MIB, MIB, 1000].map(|bytes| pool.alloc(&on(10, bytes)).unwrap());
    let [id, of_small] = [at, small].map(|at| pool.export(at).unwrap().block.id);
    for at in [at, small] {
        assert!(pool.free(at, Release::Complete).unwrap().parked);
    }
    assert!(!is_left(&pool, id) && !is_left(&pool, of_small));
    pool.free(behind, Release::Complete).unwrap();
    assert!(is_left(&pool, id), "nobody has the rest");
}

#[test]
fn what_may_be_in_use_is_not_left_yet() {
    let pool = pool(Settings::default());
    let at = pool.alloc(&on(10, 16 * MIB)).unwrap();
    let id = pool.export(at).unwrap().block.id;
    pool.driver().hold(CONTEXT, Stream(10), true);
    assert!(pool.free(at, Release::Stream(key(10))).unwrap().parked);
    assert!(!is_left(&pool, id) && pool.is_parked(id));
    pool.driver().hold(CONTEXT, Stream(10), false);
    assert!(is_left(&pool, id));
}

#[test]
fn what_work_runs_on_below_its_neighbour_is_not_left_yet() {
    let pool = pool(Settings {
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let [at, beside] = [0; 2].map(|_| pool.alloc(&on(10, 8 * MIB)).unwrap());
    let id = pool.export(at).unwrap().block.id;
    pool.driver().hold(CONTEXT, Stream(10), true);
    pool.free(beside, Release::Stream(key(10))).unwrap();
    assert!(pool.free(at, Release::Complete).unwrap().parked);
    assert!(!is_left(&pool, id) && pool.is_parked(id));
    pool.driver().hold(CONTEXT, Stream(10), false);
    assert!(is_left(&pool, id));
}
