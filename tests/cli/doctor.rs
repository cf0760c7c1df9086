//! `memcuda doctor`.

use crate::{memcuda, objects, run, stdout};

#[test]
fn the_library_is_found_and_can_be_preloaded() {
    let findings = objects(&run(&["doctor", "--json"]), "doctor");
    let library = findings
        .iter()
        .find(|f| f["check"] == "libmemcuda.so")
        .unwrap();
    assert_eq!(library["status"], "ok", "{library}");
    assert!(
        library["detail"]
            .as_str()
            .unwrap()
            .ends_with("libmemcuda.so")
    );
    assert!(findings.iter().any(|f| f["check"] == "driver"));
}

#[test]
fn an_invalid_setting_is_found() {
    let output = memcuda()
        .arg("doctor")
        .env("MEMCUDA_TORCH", "fast")
        .output()
        .unwrap();
    let text = stdout(&output);
    let line = text.lines().find(|l| l.contains("settings")).unwrap();
    assert!(
        line.starts_with("FAIL") && line.contains("MEMCUDA_TORCH=fast"),
        "{line}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn expandable_segments_are_warned_of_where_they_are_left_out() {
    for (profile, status) in [("segments", "WARN"), ("async", "WARN"), ("native", "info")] {
        let output = memcuda()
            .arg("doctor")
            .env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
            .env("MEMCUDA_TORCH", profile)
            .output()
            .unwrap();
        let text = stdout(&output);
        let line = text
            .lines()
            .find(|l| l.contains("expandable_segments"))
            .unwrap();
        assert!(line.starts_with(status), "{line}");
    }
}

#[test]
fn a_program_without_cuda_is_said_to_be_one() {
    let findings = objects(
        &run(&["doctor", "--json", "--", "sh", "-c", "exit 5"]),
        "doctor",
    );
    let of = |check: &str| {
        findings
            .iter()
            .filter(|f| f["check"] == check)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("program")[0]["detail"], "ended with exit status: 5");
    assert!(
        of("driver")
            .iter()
            .any(|f| { f["detail"].as_str().unwrap().contains("does not use CUDA") })
    );
}
