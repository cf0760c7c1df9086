//! Torch's ladder over pages waits for nothing, and nobody uses a page too early for it:
//! an allocator with torch's segments, streams, events, private pools and ladder, over
//! the simulated GPU that knows every order that a program made.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::{self, preloaded, scratch, shim, simulator};
use crate::{LIBRARY, torch};

/// Where the allocator and its programs are, built once.
fn built() -> &'static Path {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = torch();
        std::fs::create_dir_all(directory.join("streams")).unwrap();
        let needs = ["-l:libc10.so", "-l:libcudart.so.13", "-l:libcuda.so.1"];
        let build = |source: &str, output: &str, more: &[&str]| {
            let first = directory.join("streams");
            crate::build(source, output, &first, &[more, &needs].concat());
        };
        build("streams.cc", "streams/libc10_cuda.so", &LIBRARY);
        build("ladder.cc", "ladder", &["-l:libc10_cuda.so"]);
        build("order.cc", "order", &["-l:libc10_cuda.so"]);
        build("forgotten.cc", "forgotten", &["-l:libc10_cuda.so"]);
        build("ended.cc", "ended", &["-l:libc10_cuda.so"]);
    });
    torch()
}

/// One that hangs is ended.
fn program(name: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let search = [&built().join("streams"), torch(), &simulator()];
    let search = std::env::join_paths(search).unwrap();
    let mut program = preloaded("timeout", &[shim()]);
    program
        .arg("60")
        .arg(built().join(name))
        .args(arguments)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env("LD_LIBRARY_PATH", search)
        .env("MEMCUDA_TORCH", "expandable")
        .env("MEMCUDA_LOG", "warn")
        .envs(settings.iter().copied());
    program
}

/// What follows a word in what a program said.
fn number(said: &str, word: &str) -> u64 {
    let mut words = said.split_whitespace().skip_while(|w| *w != word);
    let number = words.nth(1).and_then(|w| w.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {said:?}"))
}

pub fn ladder(case: &str, settings: &[(&str, &str)]) -> String {
    support::said(&mut program("ladder", &[case], settings)).0
}

/// The same of streams for which torch cannot wait.
pub fn waits(case: &str, settings: &[(&str, &str)]) {
    let words: Vec<_> = case.split(' ').collect();
    support::said(&mut program("ended", &words, settings));
}

/// The program has a second context.
const SEVERAL: &[(&str, &str)] = &[("LADDER_CONTEXTS", "1")];

/// Its first stream is the default one.
const DEFAULT: &[(&str, &str)] = &[("LADDER_DEFAULT", "1")];

/// The work behind pages takes seconds, what the ladder waits for them microseconds.
#[test]
fn a_ladder_waits_for_nothing_and_whoever_uses_its_pages_next_comes_after() {
    let cases = ["same", "moved", "other", "third", "new", "back", "recycled"];
    let runs = cases.map(|case| (case, &[][..])).into_iter();
    let runs = runs.chain(cases.map(|case| (case, SEVERAL)));
    for (case, settings) in runs.chain(["same", "moved", "other"].map(|case| (case, DEFAULT))) {
        let said = ladder(case, settings);
        assert!(number(&said, "waits") > 0, "{case}: {said}");
        assert!(number(&said, "in") < 1000, "{case}: {said}");
    }
}

#[test]
fn a_context_that_came_before_the_library_had_started_counts() {
    // A line is said for the second one.
    let lines = [("MEMCUDA_LOG", "info"), ("MEMCUDA_NOTHING", "1")];
    ladder(
        "other",
        &[&lines[..], &[("LADDER_CONTEXTS", "unseen")]].concat(),
    );
}

#[test]
fn a_context_that_is_released_and_stays_has_its_order() {
    ladder("released", &[]);
}

/// All streams of the first one wait for work that the one to come does not wait for.
#[test]
fn a_context_that_comes_waits_for_work_that_others_wait_for() {
    ladder("joined", &[]);
}

/// Nor by others' need: what may be in use does not leave.
#[test]
fn pages_on_which_work_may_run_do_not_leave() {
    ladder("foreign", &[("MEMCUDA_SIM_MEMORY", "2GiB")]);
}

/// Nor by another process's, which has waited for a second.
#[test]
fn pages_on_which_work_may_run_go_to_no_other_process() {
    let ledger = scratch().join("order-ledger");
    let _ = std::fs::remove_file(&ledger);
    let on = [
        ("MEMCUDA_SIM_MEMORY", "2GiB"),
        ("MEMCUDA_SIM_SHARED", ledger.to_str().unwrap()),
    ];
    let mut holder = program("ladder", &["held"], &on);
    holder.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "held");
    std::thread::sleep(Duration::from_millis(1100));
    ladder("foreign", &on);
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// Releases up to 2.12 forget users of which they were told while a private pool was open.
#[test]
fn pages_of_which_torch_forgets_a_user_are_waited_for() {
    for case in ["plain", "asked", "emptied"] {
        support::said(&mut program("forgotten", &[case], &[]));
    }
}

#[test]
fn who_is_not_asked_waits() {
    ladder("emptied", &[]);
    ladder("refused", &[("MEMCUDA_SIM_MEMORY", "1500MiB")]);
}

/// Time passes as on the wall, for there are waits that may not last.
#[test]
fn under_a_limit_what_others_have_freed_is_waited_for() {
    let limit = [("MEMCUDA_LIMIT", "1GiB"), ("MEMCUDA_SIM_CLOCK", "real")];
    ladder("limited", &limit);
}

#[test]
fn pages_of_another_device_are_waited_for_where_torch_waits_for_its_own() {
    let two = ("MEMCUDA_SIM_DEVICES", "2");
    ladder("elsewhere", &[two]);
    ladder("elsewhere_captured", &[two]);
    // There is no event for it.
    ladder(
        "elsewhere",
        &[two, ("MEMCUDA_SIM_FAIL", "cuEventCreate%1=999")],
    );
}

#[test]
fn a_stream_that_captures_waits_for_nothing_and_is_given_nothing_too_early() {
    ladder("captured", &[]);
    ladder("captured_own", &[]);
}

#[test]
fn nobody_is_asked_for_pages_beside_a_capture() {
    ladder("captured_beside", &[]);
}

#[test]
fn pages_that_are_not_kept_are_waited_for() {
    ladder("shared", &[]);
}

#[test]
fn a_broken_context_gets_no_page() {
    ladder("crashed", &[]);
}

#[test]
fn memory_of_a_graph_is_used_after_its_replays() {
    for how in ["", "_captured", "_elsewhere", "_early", "_alone"] {
        ladder(&format!("replay{how}"), &[]);
    }
    let full = "cuMemAlloc_v2%1=2,cuMemHostAlloc%1=2";
    ladder("replay_captured", &[("MEMCUDA_SIM_FAIL", full)]);
}

#[test]
fn after_a_ladder_that_ended_by_an_exception_waits_are_waits() {
    ladder("thrown", &[]);
}

/// A wait that is made ends what stood for the one before: its stream's work is not the other's.
#[test]
fn a_wait_that_is_put_off_is_not_taken_for_the_next_one() {
    ladder("own_stream", &[]);
}

/// A thread's own default stream is another one elsewhere: its waits are made.
#[test]
fn what_a_thread_used_on_its_own_stream_is_not_in_the_order_of_another_ones() {
    ladder("other_thread", &[]);
}

/// Nothing runs on them any more, and there are no events to ask: who uses them next waits for
/// neither.
#[test]
fn pages_outlive_the_context_of_their_last_use() {
    ladder("reset", &[]);
}

/// Whoever unmaps in truth behind a wait that was put off finds it made.
#[test]
fn a_mapping_of_the_programs_own_goes_behind_the_wait_that_torch_did_not_make() {
    ladder("beside", &[]);
}

/// What random programs did, added up.
#[derive(Default, Debug)]
struct Done {
    ladders: u64,
    waits: u64,
    microseconds: u64,
    graphs: u64,
    stopped: u64,
    /// Of the last one.
    log: String,
}

impl Done {
    fn run(&mut self, seed: u64, steps: u64, threads: u64, settings: &[(&str, &str)]) {
        let arguments = [seed, steps, threads].map(|n| n.to_string());
        let arguments = arguments.each_ref().map(String::as_str);
        let (said, log) = support::said(&mut program("order", &arguments, settings));
        self.log = log;
        // A call of torch's own failed, on purpose.
        if said.starts_with("stopped") {
            self.stopped += 1;
            return;
        }
        self.ladders += number(&said, "ladders");
        self.waits += number(&said, "waits");
        self.microseconds += number(&said, "microseconds");
        self.graphs += number(&said, "graphs");
    }
}

/// The program alone, on a card that is too small for it: then the ladder is torch's
/// own, waits, and the program is legal.
const ALONE: [(&str, &str); 4] = [
    ("LD_PRELOAD", ""),
    ("MEMCUDA_SIM_MEMORY", "700MiB"),
    (
        "PYTORCH_CUDA_ALLOC_CONF",
        "expandable_segments:True,large_segment_size_mb:12",
    ),
    ("ORDER_SMALL", "1"),
];

#[test]
fn random_programs_are_legal() {
    let mut done = Done::default();
    (1..4).for_each(|seed| done.run(seed, 1500, 1 + seed % 2, &ALONE));
    assert!(done.ladders > 10 && done.graphs > 10, "{done:?}");
    assert!(done.microseconds > 100 * done.ladders, "{done:?}");
}

#[test]
fn pages_are_used_in_order_whatever_torch_does() {
    let mut done = Done::default();
    (1..8).for_each(|seed| done.run(seed, 2000, 1, &[]));
    // The first of a place is a wait indeed.
    assert!(done.waits > 2 * done.ladders, "{done:?}");
    assert!(done.microseconds < 100 * done.ladders, "{done:?}");
    // With two threads one's calls pass the time of the other's waits.
    (8..11).for_each(|seed| done.run(seed, 1500, 2, &[]));
    // Newer ones unmap what touches by one call.
    let at_once = [("ORDER_AT_ONCE", "1")];
    (11..13).for_each(|seed| done.run(seed, 1000, seed - 10, &at_once));
    assert!(done.ladders > 300 && done.graphs > 50, "{done:?}");
}

/// Each thread works on both devices, that reach each other's memory, and now and then
/// in the order of a stream of the other one.
#[test]
fn pages_of_two_devices_are_used_in_order() {
    let two = [("ORDER_DEVICES", "2"), ("MEMCUDA_SIM_DEVICES", "2")];
    let mut alone = Done::default();
    let cards = [("MEMCUDA_SIM_MEMORY", "400MiB")];
    let settings = [&ALONE[..], &two, &cards].concat();
    (1..3).for_each(|seed| alone.run(seed, 1000, seed, &settings));
    assert!(alone.ladders > 10, "{alone:?}");
    let mut done = Done::default();
    (1..5).for_each(|seed| done.run(seed, 1500, 1 + seed % 2, &two));
    assert!(done.ladders > 200 && done.graphs > 20, "{done:?}");
}

#[test]
fn pages_are_used_in_order_while_contexts_come_and_go_and_others_have_some() {
    let mut done = Done::default();
    for more in ["ORDER_CONTEXTS", "ORDER_SHARED"] {
        let settings = [(more, "1"), ("ORDER_SMALL", "1")];
        (1..3).for_each(|seed| done.run(seed, 800, 1 + seed % 2, &settings));
    }
    assert!(done.ladders > 80 && done.graphs > 15, "{done:?}");
}

/// Idle pages go to others: to the rest of the process, beyond the limit, for a card
/// that is full. Time passes as on the wall, for there are waits that may not last.
#[test]
fn pages_that_leave_are_not_in_use() {
    let mut done = Done::default();
    let others = [
        ("ORDER_SMALL", "1"),
        ("ORDER_FOREIGN", "1"),
        ("MEMCUDA_SIM_CLOCK", "real"),
    ];
    for (seed, more) in [
        ("MEMCUDA_LIMIT", "500MiB"),
        ("MEMCUDA_SIM_MEMORY", "600MiB"),
    ]
    .into_iter()
    .enumerate()
    {
        let settings = [&others[..], &[more]].concat();
        done.run(seed as u64, 1000, 2, &settings);
    }
    assert!(done.ladders > 20, "{done:?}");
}

/// The driver never waits for an event: the context is waited for.
#[test]
fn events_that_cannot_be_waited_for_cost_a_longer_wait() {
    for (call, case) in [
        ("cuEventSynchronize", "new"),
        ("cuEventSynchronize", "back"),
        ("cuThreadExchangeStreamCaptureMode", "new"),
    ] {
        let fault = format!("{call}%1=999");
        ladder(case, &[SEVERAL, &[("MEMCUDA_SIM_FAIL", &fault)]].concat());
    }
}

/// A failure of a call that only the order needs: nothing is to be seen.
#[test]
fn calls_that_fail_cost_a_wait_and_no_order() {
    let mut done = Done::default();
    for call in [
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuStreamWaitEvent",
        "cuStreamIsCapturing",
        "cuCtxRecordEvent",
        "cuCtxWaitEvent",
        "cuThreadExchangeStreamCaptureMode",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemSetAccess",
        "cuMemRelease",
    ] {
        for (seed, each) in [3, 17].into_iter().enumerate() {
            let fault = format!("{call}%{each}=999");
            done.run(seed as u64, 800, 1, &[("MEMCUDA_SIM_FAIL", &fault)]);
        }
    }
    assert!(done.ladders > 20, "{done:?}");
}

/// An error of the library's own: from then on the pool rests, and pages are still used.
#[test]
#[cfg(debug_assertions)]
fn pages_are_used_in_order_after_a_panic() {
    let mut done = Done::default();
    for place in [
        "cuStreamSynchronize",
        "cuStreamSynchronize:behind",
        "cudaStreamSynchronize",
        "cuMemUnmap",
        "cuMemUnmap:behind",
        "cuMemMap",
        "cuMemAddressFree",
        "cuMemAddressFree:behind",
    ] {
        let panics = [("MEMCUDA_PANIC_IN", place), ("ORDER_SMALL", "1")];
        done.run(1, 500, 1, &panics);
        assert!(done.log.contains("internal error"), "{place}: {done:?}");
    }
    assert!(done.ladders > 60 && done.stopped == 0, "{done:?}");
}
