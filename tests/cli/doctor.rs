//! `memcuda doctor`.

use crate::{failed, library, memcuda, objects, run, stdout, unread};

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
    let mut doctor = memcuda();
    doctor.arg("doctor").env("MEMCUDA_TORCH", "fast");
    let output = doctor.output().unwrap();
    let text = stdout(&output);
    let line = text.lines().find(|l| l.contains("settings")).unwrap();
    assert!(
        line.starts_with("FAIL") && line.contains("MEMCUDA_TORCH=fast"),
        "{line}"
    );
    assert_eq!(output.status.code(), Some(1));
    // The status says so, also to who reads nothing else.
    let status = doctor.stdout(unread()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn all_invalid_settings_are_found_and_none_is_a_command_to_the_terminal() {
    let (escape, secret) = ("\u{1b}[2Jlots", "redis://u:geheim@h:99999");
    let mut command = memcuda();
    command.arg("doctor").env("MEMCUDA_LIMIT", escape);
    command.env("MEMCUDA_REDIS", secret).env("MEMCUDA_LOG", "x");
    let text = stdout(&command.output().unwrap());
    let lines = text.lines().filter(|line| line.contains("settings"));
    assert_eq!(lines.clone().count(), 3, "{text}");
    assert!(lines.clone().all(|line| line.starts_with("FAIL")), "{text}");
    assert!(text.contains("MEMCUDA_LIMIT=?[2Jlots"), "{text}");
    assert!(!text.contains("geheim"), "{text}");
}

fn settings(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut command = memcuda();
    command.args(["doctor", "--json"]).env_remove("RANK");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    objects(&output, "doctor")
        .iter()
        .filter(|finding| finding["check"] == "settings")
        .map(|finding| (text(&finding["status"]), text(&finding["detail"])))
        .collect()
}

#[test]
fn a_setting_that_is_misspelt_is_found() {
    let found = settings(&[("MEMCUDA_LMIT", "1GiB"), ("MEMCUDA_SIM_MEMORY", "1GiB")]);
    let detail = "MEMCUDA_LMIT is no setting, and changes nothing";
    assert_eq!(found, [("warn".to_owned(), detail.to_owned())]);
}

#[test]
fn a_setting_that_needs_another_one_is_found_without_it() {
    let stacks = ("MEMCUDA_TRACE_STACKS", "python");
    let detail = "MEMCUDA_TRACE_STACKS has no effect without MEMCUDA_TRACE";
    assert_eq!(
        settings(&[stacks]),
        [("warn".to_owned(), detail.to_owned())]
    );
    assert_eq!(settings(&[stacks, ("MEMCUDA_TRACE", "t")])[0].0, "ok");
}

#[test]
fn rules_are_read_as_a_program_would() {
    let found = settings(&[("MEMCUDA_NAMES", "siz=1MiB,name=a")]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].0 == "fail" && found[0].1.contains("\"siz\""),
        "{found:?}"
    );
    let by_rank = ("MEMCUDA_NAMES", "name=a{rank}");
    assert_eq!(settings(&[by_rank])[0].0, "fail");
    assert_eq!(settings(&[by_rank, ("RANK", "3")])[0].0, "ok");
}

#[test]
fn expandable_segments_are_warned_of_where_they_are_left_out() {
    for (name, value, status, said) in [
        ("MEMCUDA_TORCH", "segments", "WARN", "are left out"),
        ("MEMCUDA_TORCH", " async ", "WARN", "MEMCUDA_TORCH=async "),
        ("MEMCUDA_TORCH", "native", "info", "is merged"),
        ("MEMCUDA_TORCH", "keep", "info", "stays as it is"),
        ("MEMCUDA_DISABLE", "1", "info", "stays as it is"),
    ] {
        let output = memcuda()
            .arg("doctor")
            .env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
            .env(name, value)
            .output()
            .unwrap();
        let text = stdout(&output);
        let line = text
            .lines()
            .find(|l| l.contains("expandable_segments"))
            .unwrap();
        assert!(line.starts_with(status) && line.contains(said), "{line}");
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

#[test]
fn a_program_without_a_place_for_its_log_is_not_run() {
    let mut doctor = memcuda();
    doctor.args(["doctor", "--", "echo", "run"]);
    let output = doctor.env("TMPDIR", "/nowhere").output().unwrap();
    failed(&output, 1, "memcuda: cannot make a temporary file: No such");
}

/// As on a GPU whose memory is the host's.
#[test]
fn a_gpu_that_does_not_tell_its_memory_in_use_is_said_to_be_one() {
    const MANAGEMENT: &str = "int nvmlInit_v2(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) { *gpu = 0; return 0; }
        int nvmlDeviceGetMemoryInfo(void *gpu, void *memory) { return 3; }";
    let folder = tempfile::tempdir().unwrap();
    let built = library(folder.path(), MANAGEMENT);
    std::fs::rename(built, folder.path().join("libnvidia-ml.so.1")).unwrap();
    let say = |words: &[&str]| {
        let mut command = memcuda();
        command.args(words).env("LD_LIBRARY_PATH", folder.path());
        stdout(&command.output().unwrap())
    };
    let why = "nvmlDeviceGetMemoryInfo failed with code 3";
    let text = say(&["doctor"]);
    let line = text.lines().find(|line| line.contains("nvml")).unwrap();
    assert!(line.contains(why), "{line}");
    let text = say(&["compare", "--repeat", "1", "--profiles", "bare", "true"]);
    let line = format!("device peak is unknown: {why}");
    assert!(text.contains(&line), "{text}");
}
