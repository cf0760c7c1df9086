//! Where torch keeps its segments, or has them again, though its release knows pages: what the
//! machine, a device, the user or another library stands against them with.

use std::process::Command;

use crate::expandable::{EXPANDABLE, SEGMENTS, SETTING, run};
use crate::support::{self, shim};
use crate::{NATIVE, Run, command, finished, program, torch, train, train_with};

/// The same where a filter keeps processes from one another's descriptors.
fn run_filtered(how: &str, settings: &[(&str, &str)]) -> Run {
    let mut filtered = program("filtered", &torch().join("expandable"));
    filtered.arg(how).arg(torch().join("program")).arg("plain");
    finished(support::said(filtered.envs(settings.iter().copied())))
}

/// There a tensor in a page could be shared with nobody; in a segment it can.
#[test]
fn native_has_segments_where_pages_cannot_be_shared() {
    for how in ["refuses", "ends"] {
        let filtered = run_filtered(how, &[NATIVE]);
        assert_eq!(filtered.setting, SEGMENTS, "{filtered:?}");
        let said = filtered.log.matches("pidfd_getfd").count();
        assert_eq!(said, 1, "{filtered:?}");
        let forced = run_filtered(how, &[EXPANDABLE]);
        assert_eq!(forced.setting, SETTING, "{forced:?}");
    }
    assert_eq!(run_filtered("allows", &[NATIVE]).setting, SETTING);
    let untraced = [NATIVE, ("UNTRACED", "1")];
    let untraced = train_with(&torch().join("expandable"), "plain", &untraced);
    assert_eq!(untraced.setting, SEGMENTS, "{untraced:?}");
    assert!(untraced.log.contains("PR_SET_DUMPABLE"), "{untraced:?}");
}

/// There torch would end at its first page, unless that was its user's wish.
#[test]
fn native_has_segments_where_a_device_can_have_no_pages() {
    let directory = torch().join("expandable");
    for lacks in ["vmm", "descriptors"] {
        let lacks = ("MEMCUDA_SIM_LACKS", lacks);
        let segments = train_with(&directory, "plain", &[NATIVE, lacks]);
        assert_eq!(segments.setting, SETTING, "known once CUDA starts");
        let said = segments.log.matches("segments by cudaMalloc after all");
        assert_eq!(said.count(), 1, "{segments:?}");
        let own = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
        let ended = command(&directory, "plain", &[NATIVE, lacks, own]).output();
        assert!(!ended.unwrap().status.success());
    }
}

/// Nor where a device has fewer addresses than torch reserves for its pages.
#[test]
fn native_has_segments_where_addresses_are_few() {
    let program = command(&torch().join("expandable"), "plain", &[NATIVE]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v $((100 << 20)) && exec \"$0\" \"$@\""]);
    limited.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let segments = finished(support::said(&mut limited));
    let said = segments.log.matches("too few addresses");
    assert_eq!(said.count(), 1, "{segments:?}");
    let plenty = train_with(&torch().join("expandable"), "plain", &[NATIVE]);
    assert!(!plenty.log.contains("too few addresses"), "{plenty:?}");
}

/// Who turned the sharing of pages off shares segments, unless he turned pages on himself.
#[test]
fn native_has_segments_where_the_user_lets_no_pages_be_shared() {
    let off = ("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0");
    let with = |settings: &[(&str, &str)]| {
        let all = [&[off], settings].concat();
        train_with(&torch().join("expandable"), "plain", &all)
    };
    for settings in [&[][..], &[NATIVE]] {
        let segments = with(settings);
        assert_eq!(segments.setting, SEGMENTS, "{segments:?}");
        assert_eq!(segments.log.matches(off.0).count(), 1, "{segments:?}");
    }
    let own = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    for settings in [[NATIVE, own], [EXPANDABLE, ("MEMCUDA_LIMIT", "8GiB")]] {
        let pages = with(&settings);
        assert_eq!(pages.setting, SETTING, "{pages:?}");
        assert!(!pages.log.contains("pages can be shared"), "{pages:?}");
    }
}

/// Torch registers no page with NCCL.
#[test]
fn native_has_segments_where_nccl_is_to_know_all_memory() {
    let registers = ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "True");
    let segments = train_with(&torch().join("expandable"), "plain", &[registers]);
    assert_eq!(segments.setting, SEGMENTS, "{segments:?}");
    let said = segments.log.matches("registers segments alone");
    assert_eq!(said.count(), 1, "{segments:?}");
}

/// Who counts what torch has by its calls of cudaMalloc sees no page, and torch cannot be asked
/// through it: nothing that is for being asked is good for it.
#[test]
fn torch_keeps_its_settings_where_another_library_stands_before_cuda_malloc() {
    let strict = support::compile("strict.c", "libbefore.so", &["-shared", "-fPIC", "-ldl"]);
    for libraries in [[shim(), strict.clone()], [strict, shim()]] {
        let preload = std::env::join_paths(libraries).unwrap();
        let beside = |release: &str, settings: &[(&str, &str)]| {
            let mut command = command(&torch().join(release), "plain", settings);
            finished(support::said(command.env("LD_PRELOAD", &preload)))
        };
        let segments = ("MEMCUDA_TORCH", "segments");
        for (release, settings) in [
            ("", &[][..]),
            ("", &[NATIVE]),
            ("", &[EXPANDABLE]),
            ("expandable", &[]),
            ("expandable", &[NATIVE]),
            ("expandable", &[segments]),
        ] {
            let kept = beside(release, settings);
            assert_eq!((kept.setting.as_str(), kept.retries), ("", 0), "{kept:?}");
            let why = "another library stands in for cudaMalloc";
            let said = kept.log.lines().filter(|line| line.contains(why));
            let warned = said.clone().filter(|line| line.contains("warning"));
            let once = (said.count(), warned.count());
            assert_eq!(once, (1 + settings.len(), settings.len()), "{kept:?}");
        }
        assert_eq!(beside("expandable", &[EXPANDABLE]).setting, SETTING);
    }
}

/// ComfyUI's memory manager takes a failure for the end, and hears of no page.
#[test]
fn torch_keeps_its_settings_where_aimdo_hears_of_its_memory() {
    let arguments = ["-shared", "-fPIC", "-ldl"];
    let aimdo = support::compile("../loader/writer.c", "libaimdo.so", &arguments);
    let preload = std::env::join_paths([shim(), aimdo]).unwrap();
    for release in ["", "expandable"] {
        let mut command = command(&torch().join(release), "plain", &[]);
        let kept = finished(support::said(command.env("LD_PRELOAD", &preload)));
        assert_eq!((kept.setting.as_str(), kept.retries), ("", 0), "{kept:?}");
        assert!(kept.log.contains("aimdo hears of cudaMalloc"), "{kept:?}");
    }
}

/// How often it is said that torch has none.
fn said(run: &Run) -> usize {
    run.log
        .matches("torch keeps segments by cudaMalloc")
        .count()
}

#[test]
fn native_has_segments_where_the_users_setting_speaks_for_them() {
    for (own, why) in [
        (
            "expandable_segments:False",
            "turned expandable segments off",
        ),
        (
            "expandable_segments_reserve:0.1",
            "(expandable_segments_...)",
        ),
        ("large_segment_size_mb:25", "large_segment_size_mb is odd"),
    ] {
        for profile in [NATIVE, EXPANDABLE] {
            let own = ("PYTORCH_CUDA_ALLOC_CONF", own);
            let segments = train_with(&torch().join("expandable"), "plain", &[profile, own]);
            assert!(segments.setting.ends_with(SEGMENTS), "{segments:?}");
            assert_eq!(said(&segments), 1, "{segments:?}");
            let line = segments
                .log
                .lines()
                .find(|line| line.contains(why))
                .unwrap();
            let warned = line.contains("warning: MEMCUDA_TORCH=expandable: ");
            assert_eq!(warned, profile == EXPANDABLE, "{line}");
        }
    }
}

#[test]
fn a_torch_that_is_not_fit_gets_segments_with_one_line() {
    let older = train("plain", &[EXPANDABLE]);
    assert_eq!(older.setting, SEGMENTS);
    assert_eq!(said(&older), 1, "{}", older.log);
    let direct = run("plain", &[("MEMCUDA_POLICY", "direct")]);
    assert_eq!((direct.setting.as_str(), said(&direct)), (SEGMENTS, 1));
}

#[test]
fn which_profile_torch_has_and_who_asked_for_it_is_said() {
    for (release, asked, profile) in [
        ("", "auto", "segments"),
        ("expandable", "auto", "native, with expandable segments"),
        ("expandable", "segments", "segments"),
        ("expandable", "async", "async"),
    ] {
        let asked = ("MEMCUDA_TORCH", asked);
        let run = train_with(&torch().join(release), "plain", &[asked]);
        let line = format!("torch's profile is {profile} (MEMCUDA_TORCH={})", asked.1);
        assert_eq!(run.log.matches(&line).count(), 1, "{run:?}");
    }
}

/// Whoever asks for a profile by its name, as `compare` does, must see that it is another one.
#[test]
fn a_backend_of_the_users_is_a_warning_where_a_profile_is_asked_for() {
    let own = ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync");
    for (asked, warns) in [("auto", false), ("native", true), ("segments", true)] {
        let run = train("plain", &[("MEMCUDA_TORCH", asked), own]);
        assert_eq!(run.setting, own.1, "{run:?}");
        let line = format!("warning: MEMCUDA_TORCH={asked}: torch keeps PYTORCH_CUDA_ALLOC_CONF=");
        assert_eq!(run.log.contains(&line), warns, "{run:?}");
        assert_eq!(said(&run), 0, "it has no segments: {run:?}");
    }
}
