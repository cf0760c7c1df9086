//! Small traces, and what is said of them.

use super::*;
use crate::trace::Reader;
use crate::units::{GIB, MIB};

fn play(lines: &str, profile: Profile) -> std::result::Result<Outcome, Failure> {
    let text = format!("t_us,op,id,bytes,stream,device\n{lines}");
    let reader = Reader::new(text.as_bytes())?;
    replay(reader, profile, GIB, Settings::default)
}

#[test]
fn live_ends_at_free_and_memory_returns_at_free_done() {
    let lines = "0,alloc,1,4194304,0,0\n\
         10,free,1,4194304,0,0\n\
         20,alloc,2,4194304,0,0\n\
         30,free_done,1,4194304,0,0\n\
         40,alloc,3,4194304,0,0\n\
         2000000,free,3,4194304,0,0\n";
    let outcome = play(lines, Profile::Async).unwrap();
    assert_eq!(outcome.requests, 3);
    assert_eq!(outcome.peak_live_bytes, 8 * MIB);
    // The second could not take the first one's bytes, the third could.
    assert_eq!(outcome.peak_physical_bytes, 8 * MIB);
    assert_eq!(outcome.efficiency(), 1.0);
    assert!((outcome.hit_rate - 1.0 / 3.0).abs() < 1e-9);
    assert_eq!(outcome.trace_time_s, 2.0);
    assert!(outcome.driver_time_s > 0.0 && outcome.handles_mapped >= 2);
    assert!(outcome.median_alloc_ns > 0 && outcome.p99_alloc_ns >= outcome.median_alloc_ns);
}

#[test]
fn each_profile_has_its_own_events_and_each_device_its_own_pool() {
    let lines = "0,segment_alloc,7f00,20971520,0,0\n\
         1,alloc,0,512,0,0\n\
         2,segment_alloc,7f00,20971520,0,1\n\
         3,segment_free,7f00,20971520,0,0\n\
         4,segment_alloc,8f00,20971520,0,0\n";
    let recorded = play(lines, Profile::Recorded).unwrap();
    assert_eq!((recorded.requests, recorded.peak_live_bytes), (3, 40 * MIB));
    assert_eq!(recorded.peak_physical_bytes, 40 * MIB);
    assert_eq!(
        (recorded.devices, recorded.device_peak_bytes),
        (2, 20 * MIB)
    );
    assert_eq!(play(lines, Profile::Async).unwrap().requests, 1);
    // One tensor of 512 bytes, in a segment of 2 MiB.
    let segments = play(lines, Profile::Segments).unwrap();
    assert_eq!((segments.requests, segments.peak_live_bytes), (1, 512));
    assert_eq!(segments.peak_physical_bytes, 2 * MIB);
    // The pool would have grown for it.
    assert_eq!(segments.soft_failures, 1);
}

/// 64 MiB, freed, then 96: torch has no use for the 64 itself; and two small ones.
const GROWING: &str = "0,alloc,1,67108864,0,0\n\
     10,free,1,67108864,0,0\n\
     20,free_done,1,67108864,0,0\n\
     30,alloc,2,100663296,0,0\n\
     40,alloc,3,4194304,0,0\n\
     50,alloc,4,4194304,0,0\n";

#[test]
fn torch_gives_idle_segments_back_before_the_pool_grows() {
    let segments = play(GROWING, Profile::Segments).unwrap();
    assert_eq!(segments.peak_live_bytes, 104 * MIB);
    // The two small ones share a segment of 20 MiB.
    assert_eq!(segments.peak_physical_bytes, 116 * MIB);
    assert_eq!(segments.requests, 3);
    // Each was asked for softly first, and torch brought enough for none.
    assert_eq!((segments.soft_failures, segments.short_ladders), (3, 3));
}

#[test]
fn native_maps_pages_where_they_are_and_asks_for_no_more_than_ever() {
    // 64 MiB are 6 pages of 12; 96 are these and two more, the small one another.
    let native = play(GROWING, Profile::Native).unwrap();
    assert_eq!(native.peak_live_bytes, 104 * MIB);
    assert_eq!(native.peak_physical_bytes, 108 * MIB);
    // Asked before the eighth page and before the ninth; the first time it brought
    // all it had, which was there again.
    assert_eq!((native.soft_failures, native.short_ladders), (2, 1));
    assert_eq!((native.requests, native.handles_mapped), (15, 9));
    assert!((native.hit_rate - 6.0 / 15.0).abs() < 1e-9);
}

/// 24 MiB of the pool and pages at two addresses, of which the first comes back.
const PAGES: &str = "0,alloc,7f0000000000,12582912,0,0,any,page\n\
    1,alloc,500000,25165824,0,0,stream,context\n\
    2,free,7f0000000000,12582912,0,0,complete,page\n\
    2,free_done,7f0000000000,12582912,0,0,complete,page\n\
    3,alloc,7f0000000000,12582912,0,0,any,page\n\
    4,alloc,7f0000c00000,12582912,0,0,any,page\n";

fn pages(profile: Profile, limit: u64) -> std::result::Result<Outcome, Failure> {
    let text = format!("t_us,op,id,bytes,stream,device,uses,owner\n{PAGES}");
    let settings = || Settings {
        limit: Some(limit),
        ..Settings::default()
    };
    replay(Reader::new(text.as_bytes())?, profile, GIB, settings)
}

#[test]
fn pages_are_mapped_where_they_were_beside_the_pool_and_under_its_limit() {
    let outcome = pages(Profile::Async, GIB).unwrap();
    assert_eq!((outcome.requests, outcome.peak_live_bytes), (4, 48 * MIB));
    assert_eq!(outcome.peak_physical_bytes, 48 * MIB);
    // The one that came back was there; of the others each was mapped.
    assert!((outcome.hit_rate - 0.25).abs() < 1e-9, "{outcome:?}");
    assert!(outcome.driver_time_s > 0.0 && outcome.handles_mapped >= 3);
    let just = pages(Profile::Async, 48 * MIB).unwrap();
    assert_eq!(just.peak_physical_bytes, 48 * MIB);
    let refused = Failure::Refused(7, Code::OUT_OF_MEMORY);
    assert_eq!(pages(Profile::Async, 46 * MIB), Err(refused));
}

/// Blocks of the pool that are split, freed and joined, and a page between their frees; at the
/// end all of it is freed.
fn with_a_page_at(id: u64) -> Outcome {
    let free = |id: u64, bytes: u64, owner: &str| {
        let event = |op: &str| format!("3,{op},{id:x},{bytes},0,0,complete,{owner}\n");
        event("free") + &event("free_done")
    };
    let alloc = |id: u64, bytes: u64| format!("2,alloc,{id:x},{bytes},0,0,stream,context\n");
    let text = format!(
        "t_us,op,id,bytes,stream,device,uses,owner\n0,alloc,{id:x},{},0,0,any,page\n",
        2 * MIB
    ) + &alloc(0x500000, 2 * MIB)
        + &alloc(0x700000, 2 * MIB)
        + &free(0x500000, 2 * MIB, "context")
        + &alloc(0x900000, 4 * MIB)
        + &free(0x700000, 2 * MIB, "context")
        + &free(id, 2 * MIB, "page")
        + &free(0x900000, 4 * MIB, "context");
    let reader = Reader::new(text.as_bytes()).unwrap();
    replay(reader, Profile::Async, GIB, Settings::default).unwrap()
}

/// Pages and pool have a model each, and both give addresses from the same one on.
#[test]
fn a_page_at_an_address_of_the_pools_is_no_block_of_it() {
    let held = |outcome: Outcome| {
        let Outcome {
            handles_mapped,
            peak_physical_bytes,
            ..
        } = outcome;
        (handles_mapped, peak_physical_bytes)
    };
    let apart = held(with_a_page_at(0x7f00_0000_0000));
    assert_eq!(apart, (4, 8 * MIB));
    for megabytes in (0..64).step_by(2) {
        assert_eq!(held(with_a_page_at(megabytes * MIB)), apart, "{megabytes}");
    }
}

#[test]
fn a_model_of_torch_plays_no_pages() {
    for profile in [Profile::Native, Profile::Segments, Profile::Expandable] {
        let Err(Failure::Trace(error)) = pages(profile, GIB) else {
            panic!("{profile:?} plays pages");
        };
        assert!(
            error
                .to_string()
                .starts_with("line 2: 7f0000000000 is a page")
        );
    }
}

#[test]
fn a_limit_is_kept_in_each_profile() {
    let text = format!("t_us,op,id,bytes,stream,device\n{GROWING}");
    let play = |profile, limit| {
        let settings = || Settings {
            limit: Some(limit),
            ..Settings::default()
        };
        let reader = Reader::new(text.as_bytes()).unwrap();
        replay(reader, profile, GIB, settings)
    };
    use Profile::{Async, Expandable, Native, Segments};
    for profile in [Async, Native, Segments, Expandable] {
        let served = play(profile, 128 * MIB).unwrap();
        assert!(served.peak_physical_bytes <= 128 * MIB, "{served:?}");
        // 104 are live.
        let refused = play(profile, 102 * MIB);
        let no_memory = matches!(refused, Err(Failure::Refused(_, Code::OUT_OF_MEMORY)));
        assert!(no_memory, "{profile:?}: {refused:?}");
    }
}

#[test]
fn a_trace_that_contradicts_itself_is_wrong_at_that_line() {
    for (lines, expected) in [
        (
            "0,alloc,1,5,0,0\n0,alloc,1,5,0,0\n",
            "line 3: 1 is allocated, but was not",
        ),
        ("", "line 1: the trace ends without any alloc"),
        (
            "0,segment_alloc,1,5,0,0\n",
            "line 2: the trace ends without any alloc",
        ),
        ("0,free,1,5,0,0\n", "line 2: 1 is freed, but not allocated"),
        (
            "0,alloc,1,5,0,0\n0,free_done,1,5,0,0\n",
            "line 3: 1 is done with",
        ),
        ("0,alloc,a,0,0,0\n", "line 2: a is allocated with 0 bytes"),
        (
            "0,alloc,1,5,0,0\n0,free,1,5,0,0\n0,free,1,5,0,0\n",
            "line 4: 1 is freed",
        ),
    ] {
        let Failure::Trace(error) = play(lines, Profile::Async).unwrap_err() else {
            panic!("{lines} is no failure of the pool");
        };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_request_beyond_the_device_is_refused_at_its_line() {
    let lines = "0,alloc,1,2147483648,0,0\n";
    let refused = Failure::Refused(2, Code::OUT_OF_MEMORY);
    assert_eq!(play(lines, Profile::Async), Err(refused));
}
