//! What a stitch is made of, and when one is made although there is a window.

use super::*;
use crate::driver::{Address, Code, Handle};
use crate::pool::chunk::Chunk;
use crate::pool::retire::Retired;
use crate::pool::streams::Use;
use crate::pool::tests::{on, pool};
use crate::pool::{Effort, Release, Settings};

fn need(mib: u64) -> Need {
    Need {
        bytes: mib * MIB,
        align: 512,
        stream: None,
        late: false,
        alone: false,
        one_page: false,
    }
}

/// A state with wholly free chunks of these sizes in MiB.
fn state(sizes: &[u64]) -> State {
    let mut state = State::default();
    for &mib in sizes {
        state.add_chunk(Chunk::new(Handle(mib), mib * MIB));
    }
    state
}

#[test]
fn a_growth_is_of_falling_sizes_and_no_larger_than_what_lacks() {
    let state = state(&[]);
    for (mib, align) in [
        (2, 512),
        (6, 512),
        (830, 512),
        (830, HANDLE),
        (5000, HANDLE),
    ] {
        let sizes = state.sizes(mib * MIB - 4096, align, None);
        assert_eq!(sizes.iter().sum::<u64>(), mib * MIB);
        assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        assert!(sizes.iter().all(|size| size % HANDLE == 0));
        if align == HANDLE {
            assert!(sizes.iter().all(|size| size.is_power_of_two()));
        }
    }
    let sizes = state.sizes(1024 * MIB, 512, None);
    assert_eq!((sizes[0], sizes[sizes.len() - 1]), (LARGEST, HANDLE));
    assert!(sizes.len() < 32, "a millisecond is about so many mappings");
    // What is held decides how small the smallest one is.
    let holds = self::state(&[8192]);
    let sizes = holds.sizes(1024 * MIB, 512, None);
    assert!(sizes.iter().rev().skip(1).all(|size| *size >= 16 * MIB));
}

#[test]
fn what_is_left_at_the_end_is_taken_of_a_chunk_in_use() {
    let mut state = state(&[24, 16, 16]);
    state.chunks.take(0, 20 * MIB, 4 * MIB);
    let plan = state.plan(need(32), Usable::All, None);
    assert_eq!((plan.whole.len(), plan.tail), (1, Some(0)));
    // More than fits there needs both others.
    let plan = state.plan(need(40), Usable::All, None);
    assert_eq!((plan.whole.len(), plan.growth()), (2, 0));
}

/// A pool with one stitch of 64 MiB, all free, and 32 MiB in use in another.
fn with_free_stitch() -> (crate::pool::Pool<crate::driver::model::Model>, Address) {
    let pool = pool(Settings::default());
    let freed = pool.alloc(&on(10, 64 * MIB)).unwrap();
    pool.alloc(&on(10, 32 * MIB)).unwrap();
    pool.free(freed, Release::Complete).unwrap();
    (pool, freed)
}

#[test]
fn a_stitch_that_ends_in_free_bytes_is_made_longer() {
    let (pool, freed) = with_free_stitch();
    let before = pool.stats();
    // What is mapped there already is not mapped again.
    assert_eq!(pool.alloc(&on(10, 96 * MIB)), Ok(freed));
    let after = pool.stats();
    let fresh = pool.lock().sizes(32 * MIB, 512, None).len() as u64;
    assert_eq!(after.handles_mapped - before.handles_mapped, fresh);
    assert_eq!((after.stitches, after.growths), (2, before.growths + 1));
    assert_eq!((pool.physical(), pool.idle()), (128 * MIB, 0));
    // It has addresses for 128 MiB: beyond them a new one is made of everything.
    pool.free(freed, Release::Complete).unwrap();
    assert_ne!(pool.alloc(&on(10, 130 * MIB)), Ok(freed));
    assert_eq!(pool.stats().stitches, 3);
    assert_eq!((pool.physical(), pool.idle()), (162 * MIB, 0));
}

#[test]
fn a_stitch_that_was_made_longer_goes_with_all_its_addresses() {
    let (pool, freed) = with_free_stitch();
    // The last step of the reservation is nobody's.
    let all = (1 << 40) - HANDLE;
    let taken = |pool: &crate::pool::Pool<_>| all - pool.lock().arena.free_bytes();
    assert_eq!(taken(&pool), 2 * 96 * MIB);
    pool.alloc(&on(10, 96 * MIB)).unwrap();
    assert_eq!(taken(&pool), 2 * 96 * MIB);
    pool.free(freed, Release::Complete).unwrap();
    assert_eq!(pool.trim(), 96 * MIB);
    assert_eq!(taken(&pool), 2 * 32 * MIB);
}

#[test]
fn a_stitch_shows_no_chunk_twice_however_it_was_made_longer() {
    let pool = pool(Settings {
        chunk: Some(16 * MIB),
        ..Settings::default()
    });
    let at = |mib| pool.alloc(&on(10, mib * MIB)).unwrap();
    let all = at(64);
    pool.free(all, Release::Complete).unwrap();
    // One stitch of four chunks, of which only the second is in use.
    let (first, second, rest) = (at(16), at(16), at(32));
    assert_eq!((first, second, rest), (all, all + 16 * MIB, all + 32 * MIB));
    pool.free(first, Release::Complete).unwrap();
    pool.free(rest, Release::Complete).unwrap();
    let window = at(48);
    assert_eq!((pool.physical(), pool.idle()), (64 * MIB, 0));
    assert!(
        window != first && window != rest,
        "the first chunk cannot lie behind them"
    );
    let state = pool.lock();
    for (_, stitch) in state.stitches.iter() {
        let mut shown: Vec<_> = stitch.pieces.iter().map(|piece| piece.chunk).collect();
        shown.sort_unstable();
        assert!(shown.is_sorted_by(|a, b| a < b), "{shown:?}");
    }
}

#[test]
fn a_failure_while_a_stitch_is_made_longer_leaves_it_as_it_was() {
    let (pool, _) = with_free_stitch();
    let before = pool.driver().calls();
    pool.alloc(&on(10, 96 * MIB)).unwrap();
    let calls = pool.driver().calls() - before;
    assert!(calls > 3, "made, mapped and opened");
    for call in 0..calls {
        let (pool, freed) = with_free_stitch();
        pool.driver().fail_at(before + call, Code::INVALID_VALUE);
        let failed = pool.alloc(&on(10, 96 * MIB));
        assert_eq!(failed, Err(Code::INVALID_VALUE.into()), "call {call}");
        assert_eq!((pool.physical(), pool.idle()), (96 * MIB, 64 * MIB));
        assert_eq!(pool.driver().held(), 96 * MIB);
        // And it can be made longer at the next try.
        assert_eq!(pool.alloc(&on(10, 96 * MIB)), Ok(freed));
    }
}

#[test]
fn blocks_that_go_on_growing_are_made_longer() {
    let pool = pool(Settings::default());
    let mut bytes = 16 * MIB;
    let mut blocks = [0; 16].map(|_| pool.alloc(&on(10, bytes)).unwrap());
    let mut mapped = 0;
    for _ in 0..100 {
        bytes += MIB + MIB / 4;
        let before = pool.stats().handles_mapped;
        for block in &mut blocks {
            let longer = pool.alloc(&on(10, bytes)).unwrap();
            pool.free(*block, Release::Complete).unwrap();
            *block = longer;
        }
        mapped = pool.stats().handles_mapped - before;
    }
    let each = mapped / blocks.len() as u64;
    assert!(each <= 2, "{each} handles of {} MiB", bytes / MIB);
    // A free one beside those that are in use, and a step of growth behind each.
    let needed = (blocks.len() as u64 + 1) * (bytes + HANDLE);
    assert!(pool.physical() <= needed, "{}", pool.physical() / MIB);
}

/// Then every free byte counts.
#[test]
fn blocks_that_go_on_growing_share_handles_where_there_is_no_memory() {
    let pool = pool(Settings {
        limit: Some(64 * MIB),
        chunk: Some(32 * MIB),
        ..Settings::default()
    });
    let alloc = |mib| pool.alloc(&on(10, mib * MIB)).unwrap();
    let (_one, end, start, _other) = (alloc(20), alloc(12), alloc(12), alloc(20));
    for at in [end, start] {
        pool.free(at, Release::Complete).unwrap();
    }
    pool.lock().growing.grew(10_000);
    assert!(pool.lock().growing.goes_on());
    assert!(pool.alloc(&on(10, 24 * MIB)).is_ok(), "so much is free");
}

/// A pool with 384 MiB free in one stitch, of handles from 128 to 2 MiB, and as
/// much as that once more, or a little, in use.
fn with_free(used: u64) -> crate::pool::Pool<crate::driver::model::Model> {
    let pool = pool(Settings::default());
    let freed = pool.alloc(&on(10, 384 * MIB)).unwrap();
    pool.alloc(&on(10, used * MIB)).unwrap();
    pool.free(freed, Release::Complete).unwrap();
    pool
}

fn wholly_free(pool: &crate::pool::Pool<crate::driver::model::Model>) -> u64 {
    let state = pool.lock();
    let free = state.chunks.iter().filter(|(_, chunk)| chunk.is_free());
    free.map(|(_, chunk)| chunk.bytes).sum::<u64>() / MIB
}

/// So many MiB in the midst of a handle in use are free.
fn scatter(pool: &crate::pool::Pool<crate::driver::model::Model>, mib: u64) {
    let state = &mut *pool.lock();
    // The last one is not of the block that was freed, which the chunks do not know yet.
    let large = |(_, chunk): &(ChunkId, &Chunk)| chunk.bytes == LARGEST;
    let (id, _) = state.chunks.iter().filter(large).last().unwrap();
    let (from, bytes) = (32 * MIB, mib * MIB);
    state
        .chunks
        .give(id, from, bytes, Use::DONE, &state.streams);
}

#[test]
fn a_stitch_is_made_where_every_window_would_break_much() {
    let pool = with_free(512);
    let physical = pool.physical();
    // Any window of 34 MiB begins or ends within a handle; 32 and 2 MiB do not.
    pool.alloc(&on(10, 34 * MIB)).unwrap();
    assert_eq!(wholly_free(&pool), 350);
    assert_eq!(pool.physical(), physical);
}

#[test]
fn a_window_is_good_enough_while_much_is_free() {
    let pool = with_free(64);
    let calls = pool.driver().calls();
    pool.alloc(&on(10, 34 * MIB)).unwrap();
    assert!(wholly_free(&pool) < 350);
    assert_eq!(pool.driver().calls(), calls);
}

#[test]
fn a_window_may_break_something_until_much_is_scattered() {
    // Of the 384 MiB that are free the last 32 are small handles, before them is one of 16.
    for (scattered, mib, stitched) in [(0, 44, false), (8, 44, true), (0, 34, true)] {
        let pool = with_free(512);
        if scattered > 0 {
            scatter(&pool, scattered);
        }
        let calls = pool.driver().calls();
        pool.alloc(&on(10, mib * MIB)).unwrap();
        assert_eq!(pool.driver().calls() > calls, stitched, "{scattered} {mib}");
        let whole = wholly_free(&pool);
        assert_eq!(whole == 384 - mib, stitched, "{scattered} {mib}");
    }
}

#[test]
fn a_request_for_a_window_gets_one_whatever_it_breaks() {
    let pool = with_free(512);
    let calls = pool.driver().calls();
    let mut request = on(10, 34 * MIB);
    request.effort = Effort::Window;
    pool.alloc(&request).unwrap();
    assert_eq!(pool.driver().calls(), calls);
}

#[test]
fn where_the_stitch_cannot_be_made_the_window_serves() {
    let pool = with_free(512);
    let (calls, physical) = (pool.driver().calls(), pool.physical());
    pool.driver().fail_at(calls, Code::OUT_OF_MEMORY);
    pool.alloc(&on(10, 34 * MIB)).unwrap();
    assert!(wholly_free(&pool) < 350);
    assert_eq!(pool.physical(), physical);
}

/// A pool in which nothing is free but a handle of 128 MiB, beside 1.5 GiB in use.
fn with_one_large_handle() -> crate::pool::Pool<crate::driver::model::Model> {
    let pool = pool(Settings::default());
    let freed = pool.alloc(&on(10, 384 * MIB)).unwrap();
    pool.alloc(&on(10, 1536 * MIB)).unwrap();
    pool.free(freed, Release::Complete).unwrap();
    let first = pool.alloc(&on(10, 128 * MIB)).unwrap();
    pool.alloc(&on(10, 256 * MIB)).unwrap();
    pool.free(first, Release::Complete).unwrap();
    assert_eq!((pool.whole_idle(), pool.idle()), (128 * MIB, 128 * MIB));
    assert_eq!(pool.stats().growths, 2);
    pool
}

#[test]
fn a_handle_that_is_too_large_gives_way_to_handles_that_fit() {
    let pool = with_one_large_handle();
    let (physical, stats) = (pool.physical(), pool.stats());
    pool.alloc(&on(10, 20 * MIB)).unwrap();
    assert_eq!(pool.physical(), physical - 108 * MIB);
    assert_eq!((pool.whole_idle(), pool.idle()), (0, 0));
    assert_eq!(pool.stats().growths, stats.growths);
    assert_eq!(pool.stats().peak_physical_bytes, stats.peak_physical_bytes);
    // The rest is made anew as what is asked for.
    pool.alloc(&on(10, 108 * MIB)).unwrap();
    assert_eq!((pool.physical(), pool.idle()), (physical, 0));
}

#[test]
fn what_is_shown_by_a_stitch_that_ends_meanwhile_is_unmapped_there_first() {
    let pool = with_one_large_handle();
    let both = pool.alloc(&on(10, 130 * MIB)).unwrap();
    pool.free(both, Release::Complete).unwrap();
    let mut few = Retired::default();
    few.most = 8;
    pool.lock().retired = few;
    let physical = pool.physical();
    // The model ends the test where a handle goes that is mapped.
    pool.alloc(&on(10, 20 * MIB)).unwrap();
    assert!(pool.physical() < physical);
    assert_eq!(pool.driver().mapped(both), None);
}

#[test]
fn it_does_so_however_much_is_free_but_not_where_much_has_to_be_unmapped() {
    let mut state = state(&[128]);
    assert_eq!(state.chunks.free(), 128 * MIB);
    let plan = state.plan(need(20), Usable::All, None);
    assert_eq!((plan.exchanged, plan.fresh_bytes()), (Some(0), 20 * MIB));
    for stitch in 0..=UNMAPPED {
        assert_eq!(state.plan(need(20), Usable::All, None).exchanged, Some(0));
        state.chunks.show(0, stitch as u32);
    }
    let plan = state.plan(need(20), Usable::All, None);
    assert_eq!((plan.exchanged, plan.whole), (None, vec![0]));
}

#[test]
fn it_stays_where_uses_run_where_few_bytes_are_asked_for_and_for_a_window() {
    let window = {
        let mut request = on(10, 20 * MIB);
        request.effort = Effort::Window;
        request
    };
    for request in [on(10, 6 * MIB), on(10, 126 * MIB), window] {
        let pool = with_one_large_handle();
        let (physical, calls) = (pool.physical(), pool.driver().calls());
        pool.alloc(&request).unwrap();
        assert_eq!(pool.physical(), physical);
        assert_eq!(pool.driver().calls(), calls, "a window of the old stitch");
    }
    let pool = with_one_large_handle();
    let large = pool.alloc(&on(10, 128 * MIB)).unwrap();
    let (context, stream) = (on(10, 1).context, crate::driver::Stream(10));
    pool.driver().hold(context, stream, true);
    pool.free(large, Release::Stream(crate::pool::tests::key(10)))
        .unwrap();
    let physical = pool.physical();
    pool.alloc(&on(10, 20 * MIB)).unwrap();
    assert_eq!(pool.physical(), physical);
}

#[test]
fn it_stays_once_there_was_no_memory() {
    let pool = with_one_large_handle();
    let next = pool.driver().calls();
    pool.driver().fail_at(next, Code::OUT_OF_MEMORY);
    pool.alloc(&on(10, 256 * MIB)).unwrap();
    let mut full = state(&[128]);
    full.was_full = pool.lock().was_full;
    let plan = full.plan(need(20), Usable::All, None);
    assert_eq!((plan.exchanged, plan.whole), (None, vec![0]));
}

#[test]
fn a_failure_while_a_handle_is_exchanged_costs_no_more_than_that_handle() {
    let pool = with_one_large_handle();
    let before = pool.driver().calls();
    pool.alloc(&on(10, 20 * MIB)).unwrap();
    let calls = pool.driver().calls() - before;
    assert!(calls > 4, "unmapped, released, made, mapped and opened");
    for call in 0..calls {
        let pool = with_one_large_handle();
        let physical = pool.physical();
        pool.driver().fail_at(before + call, Code::OUT_OF_MEMORY);
        pool.alloc(&on(10, 20 * MIB)).unwrap();
        let idle = pool.idle();
        assert!(idle < 128 * MIB && pool.physical() <= physical);
        pool.trim();
        assert_eq!(pool.idle(), 0);
        let held = pool.driver().held();
        let lost = held - pool.physical();
        assert!(lost == 0 || lost == 128 * MIB, "call {call}: {lost}");
    }
}
