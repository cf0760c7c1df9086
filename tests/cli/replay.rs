//! `memcuda replay`.

use std::fs;

use crate::{bundled, check_units, code, memcuda, objects, run, stderr, stdout};

const TRACES: [&str; 3] = ["detect_varsize", "llm_full_offload", "llm_lora_recompute"];
/// MiB that the real allocator of torch 2.11 held for them over the simulated GPU, with
/// the library preloaded (docs/research.md).
const ASKED: [u64; 3] = [28_234, 5_404, 12_198];
/// Allocations in them.
const REQUESTS: [u64; 3] = [120_052, 113_567, 218_043];

/// The first lines of a bundled trace, where it does not matter how it goes on: a whole one
/// takes this build of the command ten seconds.
fn short() -> Vec<u8> {
    let whole = zstd::decode_all(&fs::read(bundled(TRACES[1])).unwrap()[..]).unwrap();
    let lines = whole.split_inclusive(|byte| *byte == b'\n');
    lines.take(20_000).flatten().copied().collect()
}

/// What the command reports of a bundled trace.
fn replayed(name: &str, profile: &str) -> serde_json::Value {
    let path = bundled(name);
    let path = path.to_str().unwrap();
    let output = run(&["replay", "--json", "--profile", profile, path]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    objects(&output, "replay").remove(0)
}

/// What the command says about a trace with this content, and its exit code.
fn replay(content: &[u8]) -> (i32, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), content).unwrap();
    let output = memcuda().arg("replay").arg(file.path()).output().unwrap();
    let text = stderr(&output);
    if code(&output) != 0 {
        assert!(stdout(&output).is_empty());
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(file.path().to_str().unwrap()), "{text}");
    }
    (code(&output), text)
}

#[test]
fn json_has_the_fields_in_order_with_their_units() {
    let (file, trace) = (tempfile::NamedTempFile::new().unwrap(), short());
    fs::write(file.path(), &trace).unwrap();
    let output = run(&["replay", "--json", file.path().to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = &objects(&output, "replay")[0];
    check_units(report, &["requests", "efficiency", "handles_mapped"]);
    let names = "schema trace profile requests peak_live_bytes peak_physical_bytes efficiency \
        hit_rate handles_mapped driver_time_s trace_time_s median_alloc_ns p99_alloc_ns";
    let text = stdout(&output);
    let places: Vec<_> = names
        .split(' ')
        .map(|n| text.find(&format!("\"{n}\":")))
        .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
    assert_eq!(report.as_object().unwrap().len(), places.len());
    assert_eq!(report["profile"], "async");
    let requests = str::from_utf8(&trace).unwrap().matches(",alloc,").count();
    assert_eq!(report["requests"], requests);
}

#[test]
fn every_bundled_trace_can_be_replayed_in_every_profile() {
    for ((name, asked), requests) in TRACES.into_iter().zip(ASKED).zip(REQUESTS) {
        let of = |profile| replayed(name, profile);
        let (tensors, native) = (of("async"), of("native"));
        assert_eq!(tensors["requests"], requests, "{name}");
        let (segments, recorded) = (of("segments"), of("recorded"));
        let bytes = |report: &serde_json::Value, field: &str| report[field].as_u64().unwrap();
        assert!(bytes(&tensors, "peak_physical_bytes") >= bytes(&tensors, "peak_live_bytes"));
        // The same tensors, in fewer requests, some of which torch was asked
        // to make room for first.
        for torch in [&native, &segments] {
            assert_eq!(torch["peak_live_bytes"], tensors["peak_live_bytes"]);
            assert!(bytes(torch, "soft_failures") > bytes(torch, "short_ladders"));
            assert!(torch["efficiency"].as_f64().unwrap() > 0.9, "{torch}");
        }
        assert_eq!(native["peak_physical_bytes"], asked << 20, "{name}");
        assert!(bytes(&native, "soft_failures") > 100, "{native}");
        assert!(native["hit_rate"].as_f64().unwrap() > 0.5, "{native}");
        assert!(bytes(&segments, "requests") < bytes(&tensors, "requests"));
        assert!(tensors.get("soft_failures").is_none());
        // The segments of the program's own allocator hold its tensors, and
        // more than when it was asked to give them back.
        for torch in [&native, &segments, &tensors] {
            assert!(bytes(&recorded, "peak_live_bytes") > bytes(torch, "peak_physical_bytes"));
        }
        let ratio = tensors["peak_live_bytes"].as_f64().unwrap()
            / tensors["peak_physical_bytes"].as_f64().unwrap();
        assert!((tensors["efficiency"].as_f64().unwrap() - ratio).abs() < 1e-9);
    }
}

/// On an H200 torch 2.11 with expandable segments held as much for these jobs.
#[test]
fn the_model_of_expandable_segments_holds_what_torch_did() {
    for (name, mib) in TRACES.into_iter().zip([30_206_u64, 6_006, 14_170]) {
        let report = replayed(name, "expandable");
        assert_eq!(report["peak_physical_bytes"], mib << 20, "{name}");
        for unknown in [
            "requests",
            "hit_rate",
            "handles_mapped",
            "driver_time_s",
            "p99_alloc_ns",
        ] {
            assert!(report[unknown].is_null(), "{report}");
        }
    }
}

#[test]
fn the_direct_policy_holds_one_handle_a_request() {
    let path = bundled(TRACES[1]);
    let args = [
        "replay",
        "--json",
        "--policy",
        "direct",
        "--profile",
        "recorded",
    ];
    let output = memcuda().args(args).arg(path).output().unwrap();
    let report = &objects(&output, "replay")[0];
    assert_eq!(report["handles_mapped"], report["requests"]);
}

/// Pages are of torch's sizes: what says how the pool makes handles would change nothing.
#[test]
fn what_is_about_the_pool_is_refused_where_pages_are_played() {
    let path = bundled(TRACES[1]);
    let path = path.to_str().unwrap();
    for profile in ["native", "expandable"] {
        for option in [["--chunk", "64MiB"], ["--policy", "direct"]] {
            let output = run(&["replay", "--profile", profile, option[0], option[1], path]);
            assert_eq!(code(&output), 2, "{option:?}");
            let said = stderr(&output);
            let about = said.contains(option[0]) && said.contains(profile);
            assert!(about && said.lines().count() == 1, "{said}");
        }
        let output = run(&["explain", "--profile", profile, "--chunk", "64MiB", path]);
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("--chunk is about the pool"));
    }
}

#[test]
fn an_empty_trace_is_2() {
    let (code, said) = replay(b"");
    assert!(
        code == 2 && said.contains("line 1: the trace is empty"),
        "{said}"
    );
    // A header and nothing more: a trace of nothing.
    assert_eq!(replay(b"t_us,op,id,bytes,stream\n").0, 2);
}

#[test]
fn what_was_played_before_a_trace_that_is_wrong_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let [right, wrong] = ["right.csv", "wrong.csv"].map(|name| folder.path().join(name));
    fs::write(&right, short()).unwrap();
    fs::write(&wrong, "").unwrap();
    let paths = [&right, &right, &wrong, &right].map(|path| path.to_str().unwrap());
    for options in [&["replay"][..], &["replay", "--json"]] {
        let output = run(&[options, &paths].concat());
        assert_eq!(code(&output), 2);
        assert_eq!(stdout(&output).matches("right.csv").count(), 2);
        assert!(stderr(&output).contains("wrong.csv: line 1: the trace is empty"));
    }
}

#[test]
fn a_corrupt_trace_is_2_with_its_line() {
    let whole = short();
    let mut lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    lines[776] = b"12,alloc,x-y,512,0\n";
    let (code, said) = replay(&lines.concat());
    assert!(
        code == 2 && said.contains("line 777: id is \"x-y\""),
        "{said}"
    );
    lines.remove(776);
    lines.insert(776, lines[4]);
    let (code, said) = replay(&lines.concat());
    assert!(code == 2 && said.contains("line 777: "), "{said}");
    let (code, said) = replay(b"\x7fELF\x02\x01\x01\n");
    assert!(code == 2 && said.contains("line 1: "), "{said}");
}

#[test]
fn a_truncated_trace_is_2_with_its_line() {
    let packed = zstd::encode_all(&short()[..], 0).unwrap();
    assert_eq!(replay(&packed).0, 0);
    for part in [3, 20, packed.len() / 2, packed.len() - 1] {
        let (code, said) = replay(&packed[..part]);
        assert!(code == 2 && said.contains("line "), "{part}: {said}");
    }
    let (code, said) = replay(b"t_us,op,id,bytes,stream\n0,alloc,1,512,0\n1,free,1,51");
    assert!(
        code == 2 && said.contains("line 3: the line is cut off"),
        "{said}"
    );
}

#[test]
fn what_is_no_file_is_2_and_what_does_not_fit_is_1() {
    let output = run(&["replay", "no-such-trace.csv"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("no-such-trace.csv"));
    let path = bundled(TRACES[1]);
    let output = run(&["replay", "--total", "1GiB", path.to_str().unwrap()]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("OUT_OF_MEMORY") && stderr(&output).contains(": line "));
    let output = run(&["replay", "--chunk", "3MiB", path.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("3MiB"));
}

#[test]
fn no_bar_is_drawn_where_nobody_looks() {
    assert_eq!(replay(&short()), (0, String::new()));
}
