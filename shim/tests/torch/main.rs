//! PyTorch profiles under LD_PRELOAD, over the simulated GPU and stand-ins for
//! torch's two libraries that have its out-of-memory ladder.

#[path = "../ipc/actor.rs"]
mod actor;
#[path = "../support/counters.rs"]
mod counters;
mod ended;
mod expandable;
mod handles;
#[path = "../support/keeper.rs"]
mod keeper;
mod order;
mod passed;
mod recorded;
mod shared;
mod sharing;
mod sized;
mod split;
#[path = "../support/mod.rs"]
mod support;
#[cfg(target_arch = "x86_64")]
mod tensors;
mod unfit;
mod views;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use support::{preloaded, run, scratch, shim, simulator};

/// What a run of the program said.
#[derive(Debug)]
struct Run {
    /// The setting that the stand-in for torch read, and what the program's
    /// own `getenv` gave.
    setting: String,
    own: String,
    /// MiB.
    peak_live: u64,
    peak_reserved: u64,
    /// Failures of cudaMalloc that torch answered by giving memory back.
    retries: u64,
    log: String,
}

const LIBRARY: [&str; 3] = ["-shared", "-fPIC", "-fvisibility=hidden"];

/// Builds a stand-in or a program, over the libraries in a directory before all others.
fn build(source: &str, output: &str, first: &Path, arguments: &[&str]) {
    let search = [first, scratch(), &simulator()].map(|it| format!("-L{}", it.display()));
    run(Command::new("g++")
        .args(["-std=c++17", "-O1", "-Wall", "-Werror", "-pthread"])
        .arg(support::source(source))
        .arg("-o")
        .arg(scratch().join(output))
        .args(search)
        .args(arguments));
}

/// The directory of the stand-ins and the program, built once.
fn torch() -> &'static Path {
    static BUILT: OnceLock<&Path> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = scratch();
        let build =
            |source, output, arguments: &[&str]| build(source, output, directory, arguments);
        let library = LIBRARY.as_slice();
        let needs = ["-l:libc10.so", "-l:libcudart.so.13"].as_slice();
        build("config.cc", "libc10.so", library);
        build("allocator.cc", "libc10_cuda.so", &[library, needs].concat());
        std::fs::create_dir_all(directory.join("expandable")).unwrap();
        let newer = "expandable/libc10_cuda.so";
        build("expandable.cc", newer, &[library, needs].concat());
        std::fs::create_dir_all(directory.join("unseen")).unwrap();
        let unseen = [library, needs, &["-DUNSEEN"]].concat();
        build("expandable.cc", "unseen/libc10_cuda.so", &unseen);
        std::fs::create_dir_all(directory.join("marks")).unwrap();
        let marks = [library, needs, &["-DMARKS"]].concat();
        build("allocator.cc", "marks/libc10_cuda.so", &marks);
        let older = [library, &["-DOLDER"]].concat();
        let oldest = [&older, ["-DOLDEST"].as_slice()].concat();
        for (to, arguments) in [("older", &older), ("oldest", &oldest)] {
            std::fs::create_dir_all(directory.join(to)).unwrap();
            let [config, allocator] =
                ["libc10.so", "libc10_cuda.so"].map(|file| format!("{to}/{file}"));
            self::build("config.cc", &config, directory, arguments);
            let both = [arguments, needs].concat();
            self::build("allocator.cc", &allocator, directory, &both);
        }
        build("reader.cc", "older/libtorch_cuda.so", &older);
        run(Command::new("gcc")
            .args(["-O1", "-Wall", "-Werror"])
            .arg(support::source("filtered.c"))
            .arg("-o")
            .arg(directory.join("filtered")));
        build(
            "program.cc",
            "program",
            &[&["-l:libc10_cuda.so"], needs].concat(),
        );
        let both = [&["-l:libc10_cuda.so", "-l:libcuda.so.1"], needs].concat();
        build("segments.cc", "segments", &both);
        build("identity.cc", "identity", &both);
        build("sizing.cc", "sizing", &both);
        directory
    })
}

fn train(case: &str, settings: &[(&str, &str)]) -> Run {
    train_with(torch(), case, settings)
}

/// Trains with the torch of a directory before all others.
fn train_with(first: &Path, case: &str, settings: &[(&str, &str)]) -> Run {
    finished(support::said(&mut command(first, case, settings)))
}

fn command(first: &Path, case: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = program("program", first);
    command.arg(case).envs(settings.iter().copied());
    command
}

/// A program with the torch of a directory before all others.
fn program(name: &str, first: &Path) -> Command {
    let search = std::env::join_paths([first, torch(), &simulator()]).unwrap();
    let mut command = preloaded(torch().join(name), &[shim()]);
    command
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env("LD_LIBRARY_PATH", search)
        .env("MEMCUDA_SIM_MEMORY", "16GiB")
        .env("MEMCUDA_LOG", "info");
    command
}

/// What it said: its output, its diagnostics.
fn finished((out, log): (String, String)) -> Run {
    let fields: Vec<_> = out.trim().split('|').map(str::trim).collect();
    let number = |i: usize| fields[i].parse().unwrap();
    Run {
        setting: fields[0].to_owned(),
        own: fields[1].to_owned(),
        peak_live: number(2),
        peak_reserved: number(3),
        retries: number(4),
        log,
    }
}

const NATIVE: (&str, &str) = ("MEMCUDA_TORCH", "native");
const KEEP: (&str, &str) = ("MEMCUDA_TORCH", "keep");

#[test]
fn torch_gives_back_instead_of_the_pool_growing() {
    let keep = train("plain", &[KEEP]);
    assert_eq!((keep.setting.as_str(), keep.retries), ("", 0));
    assert!(keep.peak_reserved > keep.peak_live * 3 / 2, "{keep:?}");
    for settings in [&[NATIVE][..], &[]] {
        let native = train("plain", settings);
        assert!(native.retries > 10, "{native:?}");
        let most = native.peak_live * 11 / 10;
        assert!(native.peak_reserved <= most, "{native:?}");
    }
}

/// Torch 2.5 to 2.8 would give several blocks back, and read each when it is gone.
#[test]
fn a_torch_that_reads_what_it_deleted_gives_one_block_back_or_all() {
    let older = torch().join("older");
    let reader = older.join("libtorch_cuda.so");
    for libraries in [vec![shim()], vec![shim(), reader]] {
        let mut command = command(&older, "plain", &[NATIVE, ("READS_DELETED", "1")]);
        command.env("LD_PRELOAD", std::env::join_paths(libraries).unwrap());
        let native = finished(support::said(&mut command));
        assert!(native.retries > 10, "{native:?}");
        let most = native.peak_live * 11 / 10;
        assert!(native.peak_reserved <= most, "{native:?}");
    }
}

/// Who stands in for cudaMalloc may not be ready for a failure that only torch expects.
#[test]
fn torch_is_not_asked_through_another_preloaded_library() {
    let strict = support::compile("strict.c", "libstrict.so", &["-shared", "-fPIC", "-ldl"]);
    for libraries in [[shim(), strict.clone()], [strict, shim()]] {
        let mut command = command(torch(), "plain", &[NATIVE]);
        let libraries = libraries.map(|library| library.to_str().unwrap().to_owned());
        let run = finished(support::said(
            command.env("LD_PRELOAD", libraries.join(":")),
        ));
        assert_eq!(run.retries, 0, "{run:?}");
    }
}

#[test]
fn only_torch_is_told_another_setting() {
    let native = train("plain", &[NATIVE]);
    assert_eq!(native.setting, "max_split_size_mb:32");
    assert_eq!(native.own, "unset");
    let user = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    let merged = train("plain", &[NATIVE, user]);
    assert_eq!(merged.setting, "max_split_size_mb:32");
    assert_eq!(merged.own, user.1);
    let said = merged.log.matches("expandable_segments:True was left out");
    assert_eq!(said.count(), 1);
}

/// Over segments and over pages.
fn both(case: &str) -> [Run; 2] {
    [train(case, &[NATIVE]), expandable::run(case, &[])]
}

#[test]
fn no_soft_failure_where_it_would_end_the_program() {
    for case in ["scope", "limited", "extension", "threads"] {
        let [segments, pages] = both(case);
        assert!(segments.retries > 10, "{case}: {segments:?}");
        assert!(pages.retries > 2, "{case}: {pages:?}");
    }
}

#[test]
fn pools_that_stand_in_on_out_of_memory_end_reclaim() {
    for run in both("use-on-oom") {
        assert_eq!(run.retries, 0, "{run:?}");
    }
}

/// Then torch's last try may be the first call that is seen.
#[test]
fn a_limit_beside_a_pool_with_an_allocator_of_its_own_ends_reclaim() {
    let told = ("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.4");
    let runs = both("fraction and allocator").into_iter();
    for run in runs.chain([
        train("allocator", &[NATIVE, told]),
        expandable::run("allocator", &[told]),
    ]) {
        // Once before, and its own.
        assert!(run.retries <= 2, "{run:?}");
    }
    let [segments, pages] = both("fraction");
    assert!(segments.retries > 10, "{segments:?}");
    assert!(pages.retries > 2, "{pages:?}");
}

/// Torch says of every pool that ends that it stands in for nobody.
#[test]
fn a_pool_that_ends_does_not() {
    let [segments, pages] = both("pool-ended");
    assert!(segments.retries > 10, "{segments:?}");
    assert!(pages.retries > 2, "{pages:?}");
}

/// A segment is lent on to one tensor after another: no name stands for it.
#[test]
fn rules_are_refused_for_torchs_segments_with_one_line() {
    for profile in [NATIVE, KEEP] {
        let named = ("MEMCUDA_NAMES", "name=tensor/{n}");
        let run = train("plain", &[profile, named, ("MEMCUDA_KEEPER", "off")]);
        let said: Vec<_> = run.log.lines().filter(|l| l.contains("tensor/")).collect();
        assert_eq!(said.len(), 1, "{}", run.log);
        assert!(said[0].contains("include/memcuda.h") && said[0].contains("segment"));
        assert_eq!(run.retries > 10, profile == NATIVE);
    }
    // Without caching each is a tensor's own.
    let uncached = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1");
    let named = ("MEMCUDA_NAMES", "name=tensor/{n}");
    let run = train("plain", &[named, uncached, ("MEMCUDA_KEEPER", "off")]);
    assert!(!run.log.contains("include/memcuda.h"), "{}", run.log);
}

#[test]
fn a_user_backend_or_no_caching_keeps_torchs_settings() {
    for (name, value) in [
        ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        ("MEMCUDA_POLICY", "track"),
        ("MEMCUDA_DISABLE", "1"),
        ("MEMCUDA_CHUNK", "nonsense"),
    ] {
        let run = train("plain", &[NATIVE, (name, value)]);
        let is_torchs = name == "PYTORCH_CUDA_ALLOC_CONF";
        let own = if is_torchs { value } else { "" };
        assert_eq!(run.setting, own, "{name}: {run:?}");
        assert_eq!(run.retries, 0, "{name}: {run:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn torch_is_asked_to_give_back_after_the_pool_has_stopped() {
    for run in both("stopped") {
        assert!(run.log.contains("internal error"), "{run:?}");
        assert!(run.peak_reserved <= run.peak_live * 13 / 10, "{run:?}");
    }
    // Which device it is for is not known then: in nobody's scope is it asked, nor at
    // its last try.
    train("stopped-last", &[NATIVE]);
}

/// Its work takes a second on the device, and the third stream knows nothing of it. Nor
/// does a thread of another one's default stream, a stream of what a graph replays, or one
/// that has the handle of a green context's.
#[test]
fn a_segment_that_is_still_used_is_waited_for() {
    for case in ["stream", "thread", "graph", "beside", "green"] {
        let waited = until_next(case);
        assert!((900_000..2_000_000).contains(&waited), "{case}: {waited}");
    }
}

/// Where its stream cannot be named, whoever gives it up waits.
#[test]
fn a_segment_whose_stream_is_no_more_or_another_threads_is_complete_when_given_up() {
    for case in ["given", "ended", "green ended"] {
        assert!(until_next(case) < 1000, "{case}");
    }
}

/// Up to 2.12 torch forgets users of which it was told while a private pool was open.
#[test]
fn a_segment_of_which_torch_forgets_a_user_is_waited_for() {
    for (case, release) in [
        ("recorded", ""),
        ("recorded before", ""),
        ("marked", "marks"),
    ] {
        let waited = until_next_of(&torch().join(release), case);
        assert!(waited < 1000, "{case}: {waited}");
    }
}

/// What a network card reaches by its physical pages stays torch's.
#[test]
fn torch_is_not_asked_for_segments_once_one_is_registered() {
    for case in ["asked", "registered"] {
        until_next(case);
    }
}

/// Microseconds for which the host takes the same segment again.
fn until_next(case: &str) -> u64 {
    until_next_of(torch(), case)
}

/// The same over the torch of a directory.
fn until_next_of(first: &Path, case: &str) -> u64 {
    let mut segments = program("segments", first);
    segments
        .arg(case)
        .env("MEMCUDA_TORCH", "segments")
        .env("MEMCUDA_SIM_MEMORY", "1GiB");
    let (said, log) = support::said(&mut segments);
    let waited = said
        .strip_prefix("again in ")
        .and_then(|said| said.strip_suffix(" us\n"));
    let waited = waited.and_then(|us| us.parse().ok());
    waited.unwrap_or_else(|| panic!("{case}: {said} {log}"))
}

/// What differs in one thing is lent and taken back as anybody's.
#[test]
fn torchs_calls_are_known_by_all_that_they_are() {
    let others = |arguments: &[&str], settings: &[(&str, &str)]| {
        let mut program = program("identity", torch());
        program.args(arguments);
        program
            .env("MEMCUDA_TORCH", "keep")
            .env("MEMCUDA_LOG", "debug");
        let (_, log) = support::said(program.envs(settings.iter().copied()));
        let bytes = |line: &str| -> Option<u64> {
            let (_, said) = line.split_once("cuMemAlloc of ")?;
            said.strip_suffix(" bytes, not torch's own")?.parse().ok()
        };
        let sizes = log.lines().filter_map(bytes).map(|bytes| bytes >> 20);
        sizes.collect::<Vec<_>>()
    };
    for arguments in [&[][..], &["uncached"]] {
        let others = others(arguments, &[]);
        assert_eq!(others, [3, 4, 5, 6, 7, 10, 11, 8, 9, 12]);
    }
    let uncached = others(&[], &[("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")]);
    assert_eq!(uncached, [2, 2, 3, 4, 5, 6, 7, 10, 11, 8, 2, 9, 2, 12]);
}
