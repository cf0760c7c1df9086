//! Torch's expandable segments over pages that are kept.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use memcuda_core::pool::Stats;

use crate::counters;
use crate::support::scratch;
use crate::{NATIVE, Run, command, finished, torch, train, train_with};

pub const EXPANDABLE: (&str, &str) = ("MEMCUDA_TORCH", "expandable");
pub const SEGMENTS: &str = "max_split_size_mb:32";
pub const SETTING: &str = "expandable_segments:True,large_segment_size_mb:12,max_split_size_mb:192";

pub fn run(case: &str, settings: &[(&str, &str)]) -> Run {
    let all: Vec<_> = [EXPANDABLE].iter().chain(settings).copied().collect();
    train_with(&torch().join("expandable"), case, &all)
}

#[test]
fn native_has_pages_where_torch_and_machine_are_fit() {
    for settings in [&[NATIVE][..], &[]] {
        let native = train_with(&torch().join("expandable"), "plain", settings);
        assert_eq!(native.setting, SETTING, "{native:?}");
        assert!(native.retries > 2, "{native:?}");
        assert!(native.log.contains("pages can be shared"), "{}", native.log);
    }
}

/// As under WSL2: those for network cards are made and mapped, and opened to no device.
#[test]
fn native_has_pages_where_handles_for_network_cards_cannot_be_opened() {
    let closed = ("MEMCUDA_SIM_LACKS", "rdma-access");
    let native = train_with(&torch().join("expandable"), "plain", &[NATIVE, closed]);
    assert!(native.retries > 2, "{native:?}");
}

#[test]
fn segments_and_checks_of_what_the_pool_lends_have_no_pages() {
    for settings in [
        [NATIVE, ("MEMCUDA_DEBUG", "canary")],
        [
            NATIVE,
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False"),
        ],
        [("MEMCUDA_TORCH", "segments"), ("MEMCUDA_LIMIT", "8GiB")],
    ] {
        let segments = train_with(&torch().join("expandable"), "plain", &settings);
        assert!(segments.setting.ends_with(SEGMENTS), "{segments:?}");
    }
}

/// There torch would count its pages wrongly (`torch/switch`); who turned them on has them.
#[test]
fn private_pools_have_no_pages_but_by_the_users_wish() {
    let with = |case, settings: &[(&str, &str)]| {
        train_with(&torch().join("expandable"), case, settings);
    };
    with("paused", &[NATIVE]);
    let size = ("PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:16");
    with("sized", &[NATIVE, size]);
    let own = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    with("as it was", &[NATIVE, own]);
    with("as it was", &[("MEMCUDA_TORCH", "segments")]);
    with("as it was", &[("MEMCUDA_TORCH", "keep")]);
}

/// Where all that allocates is seen.
#[test]
#[cfg(target_arch = "x86_64")]
fn other_threads_have_the_idle_pages_while_a_private_pool_is_open() {
    train_with(&torch().join("expandable"), "beside", &[NATIVE]);
}

/// What the pool allocates unseen relies on it.
#[test]
fn no_thread_has_pages_beside_a_private_pool_where_not_all_that_allocates_is_seen() {
    train_with(&torch().join("unseen"), "unseen", &[NATIVE]);
}

/// What the user asked for is kept, and there is nothing to say.
#[test]
fn expandable_segments_of_the_user_stay_on() {
    let user = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    let native = train_with(&torch().join("expandable"), "plain", &[NATIVE, user]);
    assert_eq!(native.setting, SETTING);
    assert_eq!(native.log.matches("left out").count(), 0, "{}", native.log);
}

#[test]
fn torch_gives_pages_back_before_there_are_more_than_ever() {
    let asked = run("plain", &[]);
    assert_eq!(asked.setting, SETTING, "{asked:?}");
    assert!(asked.retries > 2, "{asked:?}");
    let keep = ("MEMCUDA_TORCH", "keep");
    let user = ("PYTORCH_CUDA_ALLOC_CONF", SETTING);
    let bare = run("plain", &[keep, user]);
    assert_eq!(bare.retries, 0, "{bare:?}");
    assert!(
        asked.peak_reserved * 10 < bare.peak_reserved * 9,
        "{asked:?} {bare:?}"
    );
}

/// Of a device whose context is not current nothing is known: the driver serves it.
#[test]
fn pages_of_another_device_than_the_current_one_are_the_drivers() {
    let elsewhere = run("elsewhere", &[("MEMCUDA_SIM_DEVICES", "2")]);
    assert_eq!(elsewhere.retries, 0, "{elsewhere:?}");
}

#[test]
fn rules_that_name_nothing_of_torchs_are_told_of() {
    let run = run(
        "plain",
        &[
            ("MEMCUDA_NAMES", "name=tensor/{n}"),
            ("MEMCUDA_KEEPER", "off"),
        ],
    );
    assert_eq!(
        run.log.matches("rules name no memory of torch's").count(),
        1
    );
}

/// Of what torch gave back nobody runs out: not another call of its process.
#[test]
fn idle_pages_make_no_call_beside_them_run_out() {
    let run = run("idle", &[("MEMCUDA_SIM_MEMORY", "1GiB")]);
    assert!(run.peak_reserved > 600, "{run:?}");
}

/// Nor another process on the device.
#[test]
fn idle_pages_go_to_another_process_that_is_short() {
    let ledger = scratch().join("expandable-ledger");
    let _ = std::fs::remove_file(&ledger);
    let on = [
        EXPANDABLE,
        ("MEMCUDA_SIM_MEMORY", "1GiB"),
        ("MEMCUDA_SIM_SHARED", ledger.to_str().unwrap()),
    ];
    let directory = torch().join("expandable");
    let mut holder = command(&directory, "hold", &on);
    holder.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut holder = holder.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(holder.stderr.take().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("holding")));
    let other = train_with(&directory, "plain", &on);
    assert!(other.peak_reserved > 600, "{other:?}");
    // What it needs again it gets again.
    drop(holder.stdin.take());
    let rest: Vec<_> = lines.collect();
    assert!(holder.wait().unwrap().success(), "{rest:?}");
}

/// How often torch was asked, and what is counted, of a job that then holds what it has.
fn held(case: &str, settings: &[(&str, &str)]) -> (u64, Stats) {
    let mut job = command(&torch().join("expandable"), case, &[EXPANDABLE]);
    job.envs(settings.iter().copied()).stdin(Stdio::piped());
    job.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut job = job.spawn().unwrap();
    let said = BufReader::new(job.stderr.take().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    let holding = lines.find(|line| line.starts_with("holding")).unwrap();
    let retries = holding.split(' ').nth(2).unwrap().parse().unwrap();
    let page = counters::of(job.id())[0].pool;
    drop(job.stdin.take());
    let rest: Vec<_> = lines.collect();
    assert!(job.wait().unwrap().success(), "{rest:?}");
    (retries, page)
}

/// What torch does over pages is on the page of statistics: each time that it was asked
/// to give some up it stood still for as long as that took it.
#[test]
fn the_page_of_statistics_counts_pages_and_how_long_torch_waited() {
    let (retries, page) = held("hold", &[("BUSY_MS", "3")]);

    // It has given all up.
    assert!(
        page.requests > 100 && page.frees == page.requests,
        "{page:?}"
    );
    assert!(page.growths > 10 && page.chunks > 10, "{page:?}");
    assert!(page.handles_mapped >= page.growths, "{page:?}");
    assert_eq!(page.hits + page.handles_mapped, page.requests, "{page:?}");
    assert!(page.hits > 0 && page.driver_ns > 0, "{page:?}");
    assert!(retries > 2 && page.stalls >= retries, "{retries} {page:?}");
    assert!(page.stall_ns >= retries * 3_000_000, "{retries} {page:?}");
    assert_eq!(page.out_of_memory, 0, "soft failures are none");
}

/// The runtime makes a context current with its first work, and pages are asked for before.
#[test]
fn the_first_pages_of_a_thread_without_a_context_are_kept() {
    let (_, page) = held("fresh", &[]);
    assert_eq!(page.live_bytes, 60 << 20, "{page:?}");
}

/// By it extensions pass torch's memory on.
#[test]
fn torch_tells_the_allocation_around_a_tensor_as_it_would_by_itself() {
    run("base", &[]);
    run("throws", &[USERS]);
}

/// Torch warns of each request that fails: of those that fail for our sake it does
/// not (`_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib`), of one that has no memory
/// it does, in its own words and place.
#[test]
fn torch_warns_of_what_is_true() {
    let warned = |run: &Run| {
        let lines = run.log.lines();
        let of_it = |line: &&str| line.starts_with("[W map_range:") || line.starts_with("[W get:");
        lines.filter(of_it).count()
    };
    let asked = run("plain", &[]);
    assert_eq!(warned(&asked), 0, "{}", asked.log);
    // It is out of memory: the first of torch's tries fails, and the second.
    let bare = [
        ("MEMCUDA_DISABLE", "1"),
        ("PYTORCH_CUDA_ALLOC_CONF", SETTING),
    ];
    let small = run(
        "plain",
        &[bare[0], bare[1], ("MEMCUDA_SIM_MEMORY", "700MiB")],
    );
    assert!(
        small.retries > 0 && warned(&small) as u64 >= small.retries,
        "{small:?}"
    );
    // Over segments: asked, and with more than the card has for one request.
    assert_eq!(warned(&train("plain", &[NATIVE])), 0);
    let beyond = train("beyond", &[NATIVE, ("MEMCUDA_SIM_MEMORY", "3GiB")]);
    assert_eq!(warned(&beyond), 1, "{}", beyond.log);
}

/// Torch reads the first variable that is set, of those that its allocator knows: 2.9
/// is told in the first one though another is set, later ones in that other one.
#[test]
fn another_variable_counts_where_the_allocator_reads_it() {
    for name in ["PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"] {
        let user = (name, "garbage_collection_threshold:0.9");
        assert_eq!(train("plain", &[user]).setting, SEGMENTS);
        assert_eq!(run("plain", &[user]).setting, "");
    }
}

/// A torch that would not have expandable segments is not to look for a fabric for them
/// (`_ZN3c104cuda17get_fabric_accessEa`), which ends the program on some machines.
/// Whoever asks for another reason learns the truth.
#[test]
fn torch_looks_for_a_fabric_as_it_would_by_itself() {
    let unknown = run("plain", &[("FABRIC", "unknown")]);
    assert_eq!(unknown.setting, SETTING, "{unknown:?}");
    let sought = |settings: &[(&str, &str)]| {
        let yes = [("FABRIC", "yes"), ("FABRIC_CLIQUE", "1"), HAS_FABRIC];
        let run = run("plain", &[&yes, settings].concat());
        assert!(run.log.contains("clique 7\n"), "{run:?}");
        run.log.contains("pages are for a fabric")
    };
    assert!(!sought(&[]));
    assert!(sought(&[USERS]));
    assert!(sought(&[USERS, ("MEMCUDA_TORCH", "keep")]));
}

const HAS_FABRIC: (&str, &str) = ("MEMCUDA_SIM_FABRIC", "1");
const USERS: (&str, &str) = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");

/// It makes a handle to find that out, and takes any failure for a no, for good.
#[test]
fn torchs_look_for_a_fabric_is_not_failed_on_purpose() {
    for settings in [&[][..], &[USERS]] {
        let yes = [("FABRIC", "yes"), HAS_FABRIC];
        let asked = run("fabric", &[&yes, settings].concat());
        assert!(asked.log.contains("fabric: 1\n"), "{asked:?}");
        let none = run("fabric", &[&yes[..1], settings].concat());
        assert!(none.log.contains("fabric: 0\n"), "{none:?}");
    }
}

/// Torch 2.11 and 2.12 try it with their first page, and throw when they give up what was
/// shared by such a handle.
#[test]
fn torch_has_pages_for_a_fabric_by_the_users_wish_alone() {
    let tried = |settings: &[(&str, &str)]| {
        let run = run(
            "plain",
            &[&[("FABRIC", "try"), HAS_FABRIC], settings].concat(),
        );
        assert!(run.retries > 2, "{run:?}");
        run.log.contains("pages are for a fabric")
    };
    assert!(!tried(&[]));
    assert!(tried(&[USERS]));
}

/// Beyond the limit is out of memory, which torch answers as it always does.
#[test]
fn a_limit_holds_for_pages_as_well() {
    // Less than the job needs, which ends.
    let limit = [EXPANDABLE, ("MEMCUDA_LIMIT", "600MiB")];
    let output = command(&torch().join("expandable"), "plain", &limit).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let limited = finished((text(output.stdout), text(output.stderr)));
    assert!(limited.peak_reserved <= 600, "{limited:?}");
}

/// Also while both grow: calls take their time on this clock.
#[test]
fn a_limit_holds_for_pages_and_pool_that_grow_at_once() {
    let settings = [("MEMCUDA_LIMIT", "700MiB"), ("MEMCUDA_SIM_CLOCK", "real")];
    let (_, page) = held("at once", &settings);
    let most = page.peak_physical_bytes >> 20;
    assert!(600 < most && most <= 700, "{most} MiB at most");
}

/// What there never was is no reason to hold more than before.
#[test]
fn torch_is_asked_at_its_peak_after_it_was_out_of_memory() {
    let small = ("MEMCUDA_SIM_MEMORY", "3GiB");
    let (beyond, plain) = (run("beyond", &[small]), run("plain", &[small]));
    assert_eq!(beyond.peak_reserved, plain.peak_reserved, "{beyond:?}");
    assert!(beyond.retries > plain.retries, "{beyond:?}");
}

#[test]
#[cfg(debug_assertions)]
fn after_pages_have_panicked_they_are_the_drivers() {
    for place in [
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
    ] {
        for behind in ["", ":behind"] {
            let place = format!("{place}{behind}");
            let stopped = run("plain", &[("MEMCUDA_PANIC_IN", &place)]);
            assert!(
                stopped.log.contains("internal error"),
                "{place}: {stopped:?}"
            );
        }
    }
}
