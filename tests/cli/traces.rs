//! `memcuda explain` and `memcuda trace` of traces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::stat::Shown;
use crate::{bundled, code, done, failed, memcuda, objects, run, stderr, stdout};

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
        "Would it fit in 40 MiB? By this estimate it would not",
        "The least limit is about 50 MiB.",
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
        stdout(&fits).contains("it would: 50 MiB at most"),
        "{}",
        stdout(&fits)
    );
}

#[test]
fn the_least_limit_is_that_of_the_handles_that_are_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rests.csv");
    let lines = "t_us,op,id,bytes,stream\n0,alloc,1,5242880,1\n1,alloc,2,34603008,1\n\
                 2,free,1,0,1\n2,free_done,1,0,1\n3,alloc,3,34603008,0\n";
    fs::write(&path, lines).unwrap();
    let answer = |others: &[&str]| {
        let arguments = [&["--json", "--chunk", "64MiB"], others].concat();
        objects(&explain(&path, &arguments), "explain").remove(0)
    };
    // As the pool chooses they are 66 MiB.
    for asked in ["10MiB", "1GiB"] {
        for others in [
            &["--would-fit", asked][..],
            &["--would-fit", asked, "--limit", "8MiB"],
        ] {
            let fit = answer(others)["would_fit"].clone();
            assert_eq!(fit["least_limit_bytes"], 72_u64 << 20, "{others:?}: {fit}");
        }
    }
    let of = |limit| answer(&["--limit", limit])["estimates"][1]["peak_physical_bytes"].as_u64();
    assert_eq!((of("70MiB"), of("72MiB")), (None, Some(72 << 20)));
}

/// A trace of one allocation on each of so many devices.
fn of_devices(folder: &Path, bytes: u64, devices: u32) -> PathBuf {
    let path = folder.join("devices.csv");
    let line = |n: u32| format!("0,alloc,{n:x},{bytes},0,{n}\n");
    let lines: String = (0..devices).map(line).collect();
    fs::write(&path, format!("t_us,op,id,bytes,stream,device\n{lines}")).unwrap();
    path
}

#[test]
fn a_limit_is_each_devices_and_so_is_what_is_held_under_it() {
    let folder = tempfile::tempdir().unwrap();
    let trace = of_devices(folder.path(), 3584 << 20, 2);
    let text = done(explain(&trace, &["--would-fit", "4GiB"]));
    for said in [
        "(of 2 devices together; a limit is that of each one)",
        "as the pool chooses           7.0 GiB",
        "Would it fit in 4 GiB on each device? By this estimate it would: 3584 MiB at most on one of them under a limit of 4 GiB. \
         The least limit is about 3584 MiB on each device.",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    let report = objects(
        &explain(&trace, &["--would-fit", "4GiB", "--json"]),
        "explain",
    )
    .remove(0);
    assert_eq!(report["would_fit"]["peak_physical_bytes"], 3584_u64 << 20);
    assert_eq!(
        report["estimates"][0]["peak_physical_bytes"],
        7168_u64 << 20
    );
}

#[test]
fn the_answer_and_the_least_limit_are_of_one_mind() {
    let folder = tempfile::tempdir().unwrap();
    let least = 11_826_u64 << 20;
    let trace = of_devices(folder.path(), 12_400_000_000, 1);
    for (asked, size, answer) in [
        (12_390_000_000, "11816 MiB", "it would not"),
        (least - 1, "11825 MiB", "it would not"),
        (least, "11826 MiB", "it would: 11826 MiB"),
        (14 << 30, "14 GiB", "it would: 11826 MiB"),
    ] {
        let text = done(explain(&trace, &["--would-fit", &asked.to_string()]));
        let said = format!("Would it fit in {size}? By this estimate {answer}");
        assert!(text.contains(&said), "{said:?} is not in\n{text}");
        assert!(
            text.contains("The least limit is about 11826 MiB."),
            "{text}"
        );
    }
    // It is found to a 400th: what was tried is not said to be too little. Torch gives up what
    // it has for the first stream; so 51 pages of 20 MiB are enough.
    let trace = folder.path().join("streams.csv");
    let lines = "t_us,op,id,bytes,stream\n0,alloc,1,1048576000,0\n1,free,1,0,0\n\
                 2,free_done,1,0,0\n3,alloc,2,1069547520,1\n";
    fs::write(&trace, lines).unwrap();
    for mebibytes in (1010..1030).step_by(2) {
        let size = format!("{mebibytes}MiB");
        let asked = ["--profile", "expandable", "--json", "--would-fit", &size];
        let answer = objects(&explain(&trace, &asked), "explain")[0]["would_fit"].clone();
        let least = answer["least_limit_bytes"].as_u64().unwrap();
        assert_eq!(answer["fits"], mebibytes >= 1020, "{answer}");
        assert_eq!(answer["fits"], least <= mebibytes << 20, "{answer}");
    }
}

#[test]
fn what_nobody_counts_is_no_zero() {
    let folder = tempfile::tempdir().unwrap();
    let trace = of_devices(folder.path(), 1 << 30, 1);
    let limit = ["--profile", "expandable", "--limit", "512MiB"];
    let text = done(explain(&trace, &limit));
    let row = |setting: &str| {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(setting));
        let words = line.unwrap_or_default().split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    // 52 pages of 20 MiB.
    assert_eq!(row("as the pool chooses"), "1.0 GiB 98.5 % - - -", "{text}");
    assert_eq!(row("a limit of 512.0 MiB"), "out of memory", "{text}");
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
    let output = explain(&bundled("detect_varsize"), &native);
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
