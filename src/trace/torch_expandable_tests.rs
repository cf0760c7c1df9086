//! The rules of expandable segments, over the plain driver and over pages that are
//! kept.

use super::*;
use crate::trace::pages::{ALONE, ASKED, Kept, Plain};
use crate::units::{GIB, MIB};

fn torch() -> Expandable<Plain> {
    Expandable::new(Plain::new(GIB), ALONE)
}

fn asked() -> Expandable<Kept> {
    Expandable::new(Kept::new(0, GIB, None), ASKED)
}

#[test]
fn a_range_grows_by_what_its_free_end_leaves_missing() {
    let mut torch = torch();
    let one = torch.malloc(30 * MIB, 0).unwrap();
    assert_eq!(torch.driver.physical(), 40 * MIB);
    // 10 MiB are free at the end.
    let two = torch.malloc(45 * MIB, 0).unwrap();
    assert_eq!((torch.driver.physical(), two - one), (80 * MIB, 30 * MIB));
    torch.malloc(MIB, 0).unwrap();
    assert_eq!(
        torch.driver.physical(),
        82 * MIB,
        "small ones are elsewhere"
    );
    torch.malloc(2 * MIB, 1).unwrap();
    assert_eq!(torch.driver.physical(), 102 * MIB, "and other streams");
}

#[test]
fn the_smallest_block_is_taken_and_the_end_last() {
    let mut torch = torch();
    let mut at = |mib| torch.malloc(mib * MIB, 0).unwrap();
    let [large, _, small, _] = [at(30), at(2), at(10), at(2)];
    // 16 MiB are free at the end.
    torch.free(large);
    torch.free(small);
    assert_eq!(torch.malloc(10 * MIB, 0), Ok(small));
    // The end is the closest fit for these, but the other is taken.
    assert_eq!(torch.malloc(12 * MIB, 0), Ok(large));
    assert_eq!(torch.malloc(12 * MIB, 0), Ok(large + 12 * MIB));
    assert_eq!(torch.malloc(12 * MIB, 0), Ok(small + 12 * MIB));
    assert_eq!(torch.driver.physical(), 60 * MIB);
}

#[test]
fn neighbours_are_joined_and_nothing_is_lost() {
    let mut torch = torch();
    let at: Vec<_> = (0..6).map(|_| torch.malloc(10 * MIB, 0).unwrap()).collect();
    for i in [0, 2, 1, 5, 3, 4] {
        torch.free(at[i]);
    }
    assert_eq!(torch.malloc(60 * MIB, 0), Ok(at[0]));
    assert_eq!(torch.driver.physical(), 60 * MIB);
}

#[test]
fn a_device_has_an_end_at_which_free_pages_go_elsewhere() {
    let mut torch = torch();
    assert!(torch.malloc(GIB + 1, 0).is_err());
    let all = torch.malloc(1020 * MIB, 0).unwrap();
    assert_eq!(torch.malloc(20 * MIB, 0), Err(Code::OUT_OF_MEMORY.into()));
    torch.free(all);
    torch.malloc(MIB, 1).unwrap();
    assert_eq!(torch.driver.physical(), 1022 * MIB, "there is room for it");
    torch.malloc(20 * MIB, 1).unwrap();
    assert_eq!(
        torch.driver.physical(),
        22 * MIB,
        "torch gave all others back"
    );
}

#[test]
fn a_tensor_that_fits_no_device_is_refused_and_not_taken_for_a_shorter_one() {
    let mut torch = Expandable::new(Plain::new(1 << 50), ALONE);
    assert_eq!(torch.malloc(u64::MAX, 0), Err(Code::OUT_OF_MEMORY.into()));
    assert_eq!(torch.driver.physical(), 0);
}

#[test]
fn asked_it_gives_pages_back_before_there_are_more_than_ever() {
    let mut torch = asked();
    let one = torch.malloc(120 * MIB, 0).unwrap();
    assert_eq!(torch.driver.reclaim.soft_failures(), 0, "it held none");
    torch.free(one);
    torch.malloc(48 * MIB, 1).unwrap();
    let pages = &torch.driver.pages;
    assert_eq!((pages.physical(), pages.idle()), (120 * MIB, 72 * MIB));
    torch.malloc(60 * MIB, 0).unwrap();
    assert_eq!(torch.driver.reclaim.soft_failures(), 1);
    assert_eq!(torch.driver.peak_bytes, 120 * MIB);
}

#[test]
fn pages_that_went_and_came_back_cost_no_call() {
    let mut torch = asked();
    let one = torch.malloc(120 * MIB, 0).unwrap();
    torch.free(one);
    torch.malloc(12 * MIB, 1).unwrap();
    let mapped = torch.driver.pages.totals().counts.mapped;
    assert_eq!(torch.malloc(108 * MIB, 0), Ok(one));
    let page_went = torch.driver.pages.totals().counts.mapped - mapped;
    assert!(
        page_went <= 1,
        "{page_went}: the others are where they were"
    );
}

#[test]
fn large_free_blocks_are_not_nibbled_at() {
    let mut torch = asked();
    let large = torch.malloc(600 * MIB, 0).unwrap();
    torch.malloc(12 * MIB, 0).unwrap();
    torch.free(large);
    assert_eq!(torch.driver.pages.idle(), 0, "torch holds it");
    torch.malloc(24 * MIB, 0).unwrap();
    assert_eq!(torch.driver.pages.idle(), 576 * MIB, "it was given back");
    assert_eq!(torch.driver.peak_bytes, 612 * MIB);
}

#[test]
fn a_limit_is_kept() {
    let mut torch = Expandable::new(Kept::new(0, GIB, Some(100 * MIB)), ASKED);
    let one = torch.malloc(90 * MIB, 0).unwrap();
    assert_eq!(torch.malloc(24 * MIB, 0), Err(Code::OUT_OF_MEMORY.into()));
    torch.free(one);
    torch.malloc(MIB, 0).unwrap();
    assert!(torch.malloc(90 * MIB, 1).is_ok());
    assert!(torch.driver.peak_bytes <= 100 * MIB);
}
