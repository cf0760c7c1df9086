//! `memcuda explain` and `memcuda trace` of traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::stat::Shown;
use crate::{code, done, failed, memcuda, objects, run, stderr, stdout};

fn bundled() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/traces/detect_varsize.csv.zst")
}

/// A small trace, in this folder.
pub fn small(folder: &Path) -> PathBuf {
    let path = folder.join("small.csv");
    let text = "# memcuda-trace 1\n\
         t_us,op,id,bytes,stream,caller\n\
         0,alloc,1,10485760,0,libmodel.so\n\
         1000,alloc,2,41943040,1,libcache.so\n\
         2000,free,1,10485760,0,\n\
         2000,free_done,1,10485760,0,\n\
         3000,refused,0,999999999999,0,libmodel.so\n";
    fs::write(&path, text).unwrap();
    path
}

fn explain(path: &Path, arguments: &[&str]) -> Output {
    let mut command = memcuda();
    command.arg("explain").arg(path).args(arguments);
    command.output().unwrap()
}

#[test]
fn a_trace_is_explained_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let text = done(explain(
        &path,
        &["--would-fit", "40MiB", "--chunk", "32MiB"],
    ));
    for said in [
        "The peak was 50.0 MiB live, 0.001 s after the beginning.",
        "40.0 MiB were never freed",
        "For 1 of the requests there was no memory",
        "80.0 %  1            libcache.so",
        "Estimates: ",
        "handles of 32.0 MiB",
        "Would it fit in 40.0 MiB? By this estimate it would not",
        "The least limit is about 50.0 MiB.",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    let one = folder.path().join("one.csv");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().take(3).collect();
    fs::write(&one, lines.join("\n") + "\n").unwrap();
    let text = done(explain(&one, &[]));
    assert!(text.contains(": 1 event in 0.0 s"), "{text}");
    let fits = explain(&path, &["--would-fit", "50MiB"]);
    assert!(
        stdout(&fits).contains("it would: 50.0 MiB at most"),
        "{}",
        stdout(&fits)
    );
}

#[test]
fn a_job_with_tensors_and_segments_shows_what_its_allocator_wasted() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("t.svg");
    let native = [
        "--profile",
        "native",
        "--json",
        "--svg",
        svg.to_str().unwrap(),
    ];
    let output = explain(&bundled(), &native);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = objects(&output, "explain").remove(0);
    let device = &report["devices"][0];
    let bytes = |name: &str| device[name].as_u64().unwrap();
    assert!(bytes("peak_segment_bytes") > bytes("peak_live_bytes"));
    let sizes = device["sizes"].as_array().unwrap();
    let sum: u64 = sizes
        .iter()
        .map(|p| p["live_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, bytes("peak_live_bytes"));
    let physical = report["estimates"][0]["peak_physical_bytes"]
        .as_u64()
        .unwrap();
    assert!(physical >= sum && physical < sum * 11 / 10);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert!(drawn.matches("http").count() == 1 && drawn.contains("class=\"c4\""));
    assert_eq!(drawn.matches('<').count(), drawn.matches('>').count());
}

#[test]
fn wrong_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    let cut = folder.path().join("cut");
    let text = fs::read(&path).unwrap();
    fs::write(&cut, &text[..text.len() - 5]).unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let binary = folder.path().join("binary");
    fs::write(&binary, b"\x7fELF\0\0\0\0\0\0\0").unwrap();
    let absent = folder.path().join("absent");
    for (path, why) in [
        (&cut, "line 7: the line is cut off"),
        (&empty, "the trace is empty"),
        (&binary, "line 1"),
        (&absent, "No such file"),
    ] {
        for verb in ["explain", "trace", "replay"] {
            let output = run(&[verb, path.to_str().unwrap()]);
            assert_eq!(code(&output), 2, "{verb} {path:?}: {}", stderr(&output));
            assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
            assert!(stderr(&output).contains(why), "{}", stderr(&output));
            assert!(stdout(&output).is_empty());
        }
    }
    assert!(!folder.path().join("cut.zst").exists());
    // What takes reports says the same of a file that is not there, of either kind.
    let absent = absent.to_str().unwrap();
    let missing = format!("memcuda: {absent}: No such file or directory (os error 2)\n");
    for arguments in [
        &["snapshot", absent, "--json"][..],
        &["explain", absent],
        &["trace", absent],
        &["replay", absent],
    ] {
        failed(&run(arguments), 2, &missing);
    }
    for verb in ["trace", "replay"] {
        let said = stderr(&run(&[verb, "/proc"]));
        assert_eq!(said, "memcuda: /proc: a folder, and no trace\n");
    }
    let bare = Shown::nothing();
    for option in [&["--json"][..], &["--profile", "native"]] {
        let pid = bare.pid();
        let explain = [&["explain", &pid][..], option].concat();
        failed(&run(&explain), 2, "records no trace");
    }
    let output = explain(&path, &["--svg", "/none/t.svg"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let why = "cannot write /none/t.svg: No such file or directory";
    assert!(stderr(&output).contains(why), "{}", stderr(&output));
    // Not a file of this name.
    let output = explain(&path, &["--svg", "-"]);
    let why = "memcuda: --svg -: standard output has the words; accepted: a file, such as ./-\n";
    assert_eq!((code(&output), stderr(&output)), (2, why.to_owned()));
}

#[test]
fn a_trace_is_written_anew_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = small(folder.path());
    done(run(&["trace", path.to_str().unwrap()]));
    let again = folder.path().join("small.csv.zst");
    let text = |path: &Path| stdout(&run(&["trace", path.to_str().unwrap(), "-o", "-"]));
    assert_eq!(text(&path), text(&again));
    assert!(text(&again).contains("\n1000,alloc,2,41943040,1,0,,,,libcache.so,,\n"));
    assert_eq!(
        stdout(&explain(&again, &["--json"])).len(),
        stdout(&explain(&path, &["--json"])).len() + 4
    );
    let twice = run(&["trace", again.to_str().unwrap()]);
    failed(
        &twice,
        2,
        ": its name ends in .zst already; name another file with --output\n",
    );
    failed(&run(&["trace", "none.zst"]), 2, "none.zst: No such file");
}
