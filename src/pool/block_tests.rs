//! Where a window may lie that must not lie in two pages, and what that spares.

use super::super::request::{Order, Owner, Release, Request};
use super::super::tests::{pool, request};
use super::super::{Pool, Settings};
use super::*;
use crate::driver::Address;
use crate::driver::model::Model;
use crate::units::MIB;

fn need(one_page: bool) -> Need {
    Need {
        bytes: 3 * MIB / 2,
        align: 512,
        stream: None,
        late: false,
        alone: false,
        one_page,
    }
}

/// A request of `cuMemAlloc`, or of the device's memory pool.
fn of(owner: Owner, bytes: u64) -> Request {
    Request {
        owner,
        align: owner.alignment(bytes),
        ..request(bytes, Order::Unknown)
    }
}

fn lends(pool: &Pool<Model>, owner: Owner, bytes: u64) -> Address {
    pool.alloc(&of(owner, bytes)).unwrap()
}

fn free(pool: &Pool<Model>, at: Address) {
    pool.free(at, Release::Complete).unwrap();
}

/// Of the borders of pages those that a block lies over.
fn borders(at: Address, bytes: u64) -> u64 {
    (at + bytes - 1) / HANDLE - at / HANDLE
}

#[test]
fn what_must_lie_in_one_page_begins_behind_a_border_or_ends_before_it() {
    let ends = |one_page, from: u64, end: u64| {
        let need = need(one_page);
        [need.first_from(from), need.last_before(end)]
    };
    assert_eq!(ends(false, MIB, 5 * MIB), [Some(MIB), Some(7 * MIB / 2)]);
    assert_eq!(ends(true, MIB, 5 * MIB), [Some(2 * MIB), Some(5 * MIB / 2)]);
    assert_eq!(ends(true, 512, 4 * MIB), [Some(512), Some(5 * MIB / 2)]);
    // None is in between.
    assert_eq!(ends(true, MIB, 3 * MIB), [Some(2 * MIB), Some(MIB / 2)]);
    assert_eq!(ends(true, 0, MIB), [Some(0), None]);
}

/// Frames of a video, the tiles of a picture: what is left when others are gone keeps one page.
#[test]
fn what_is_left_of_many_keeps_no_more_pages_than_the_drivers_own_would() {
    for (bytes, in_a_page) in [(1_990_656, 1), (1_258_496, 1), (307_200, 6)] {
        let pool = pool(Settings::default());
        let all: Vec<_> = (0..64 * in_a_page)
            .map(|_| lends(&pool, Owner::Context, bytes))
            .collect();
        assert!(all.iter().all(|at| borders(*at, bytes) == 0));
        let held = pool.physical();
        assert_eq!(held, 64 * HANDLE, "as the driver would");
        let gone = all
            .iter()
            .enumerate()
            .filter(|(i, _)| i / in_a_page % 2 == 1);
        gone.for_each(|(_, at)| free(&pool, *at));
        lends(&pool, Owner::Context, 32 * HANDLE);
        assert_eq!(pool.physical(), held, "{bytes} bytes each");
    }
}

#[test]
fn a_page_that_was_longer_memory_is_shared_as_well() {
    let pool = pool(Settings::default());
    let long = lends(&pool, Owner::Context, 64 * MIB);
    free(&pool, long);
    let all: Vec<_> = (0..32)
        .map(|_| lends(&pool, Owner::Context, 3 * MIB / 2))
        .collect();
    assert!(all.iter().all(|at| borders(*at, 3 * MIB / 2) == 0));
    assert_eq!(pool.physical(), 64 * MIB);
    // What is freed is remembered, and lent again.
    all.iter().for_each(|at| free(&pool, *at));
    lends(&pool, Owner::Context, 3 * MIB);
    assert_eq!(
        borders(lends(&pool, Owner::Context, 3 * MIB / 2), 3 * MIB / 2),
        0
    );
}

#[test]
fn memory_of_the_memory_pool_lies_end_to_end() {
    let pool = pool(Settings::default());
    for _ in 0..64 {
        lends(&pool, Owner::MemoryPool, 3 * MIB / 2);
    }
    assert_eq!(pool.physical(), 96 * MIB);
}

#[test]
fn sooner_than_none_it_lies_in_two_pages() {
    let device = 4 * MIB;
    let pool = Pool::new(Model::new(device), 0, Settings::default()).unwrap();
    free(&pool, lends(&pool, Owner::MemoryPool, device));
    let lay = [1, 2, 1].map(|mib| lends(&pool, Owner::MemoryPool, mib * MIB));
    assert_eq!((lay[1] - lay[0], lay[2] - lay[0]), (MIB, 3 * MIB));
    free(&pool, lay[1]);
    let at = lends(&pool, Owner::Context, 3 * MIB / 2);
    assert_eq!(borders(at, 3 * MIB / 2), 1);
    // Freed and settled, it is no window for the next one where there is a page.
    free(&pool, at);
    free(&pool, lay[2]);
    assert!(pool.alloc(&of(Owner::Context, 5 * MIB)).is_err());
    let at = lends(&pool, Owner::Context, 3 * MIB / 2);
    assert_eq!(borders(at, 3 * MIB / 2), 0);
}
