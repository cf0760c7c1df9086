//! What goes wrong inside the library stays inside: the program runs on.

use std::fs;
use std::process::Command;

use crate::support::{compile, preloaded, program, run, said, scratch, shim};

const ON_THE_POOL: &str = "pool\npool\n";
const ON_THE_DRIVER: &str = "driver\ndriver\n";

/// The program that says whose its memory is, a line an allocation.
fn whose() -> Command {
    preloaded(program("whose.c", "whose"), &[shim()])
}

#[test]
fn by_default_memory_comes_from_the_pool_and_nothing_is_said() {
    let (out, log) = said(&mut whose());
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, ""));
}

#[test]
fn an_empty_setting_is_as_none() {
    for name in ["MEMCUDA_POLICY", "MEMCUDA_LIMIT", "MEMCUDA_DISABLE"] {
        let (out, log) = said(whose().env(name, ""));
        assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, ""), "{name}");
    }
}

#[test]
fn disabled_it_does_nothing() {
    for value in ["1", " 1 "] {
        let (out, log) = said(whose().env("MEMCUDA_DISABLE", value));
        assert_eq!((out.as_str(), log.as_str()), (ON_THE_DRIVER, ""));
    }
    let mut wrong = whose();
    wrong.env("MEMCUDA_POLICY", "nonsense");
    let (out, log) = said(wrong.env("MEMCUDA_DISABLE", "1"));
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_DRIVER, ""));
}

#[test]
fn tracking_is_the_plain_driver() {
    let (out, log) = said(whose().env("MEMCUDA_POLICY", "track"));
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_DRIVER, ""));
}

/// Each call that memory of the pool's needs, refused for good: by a driver, a filter, a container.
#[test]
fn where_the_driver_permits_no_pool_that_is_one_line_and_the_plain_driver() {
    for call in [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
    ] {
        for code in [800, 801] {
            let (out, log) = said(whose().env("MEMCUDA_SIM_FAIL", format!("{call}%1={code}")));
            assert_eq!(
                (out.as_str(), log.lines().count()),
                (ON_THE_DRIVER, 1),
                "{call}: {log}"
            );
        }
    }
}

#[test]
fn one_handle_each_is_a_pool_too() {
    let (out, log) = said(whose().env("MEMCUDA_POLICY", "direct"));
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, ""));
}

#[test]
fn a_wrong_setting_is_one_line_and_the_plain_driver() {
    for (name, value) in [
        ("MEMCUDA_POLICY", "nonsense"),
        ("MEMCUDA_LIMIT", "-3"),
        ("MEMCUDA_IDLE", "101%"),
        ("MEMCUDA_DISABLE", "perhaps"),
    ] {
        // Whatever the log is to hold.
        let mut command = whose();
        command.env("MEMCUDA_LOG", "off");
        let (out, log) = said(command.env(name, value));
        assert_eq!(out, ON_THE_DRIVER);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(
            log.contains(name) && log.contains(value) && log.contains("accepted"),
            "{log}"
        );
    }
}

#[test]
fn the_line_of_a_wrong_setting_goes_where_the_log_does() {
    let file = scratch().join("wrong.json");
    let _ = fs::remove_file(&file);
    let mut command = whose();
    command
        .env("MEMCUDA_LIMIT", "-3")
        .env("MEMCUDA_LOG", "loud");
    command.env("MEMCUDA_LOG_FORMAT", "json");
    let (out, log) = said(command.env("MEMCUDA_LOG_FILE", &file));
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_DRIVER, ""));
    let line: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("MEMCUDA_LIMIT=-3"), "{message}");
}

#[test]
fn a_limit_of_who_lends_nothing_is_one_line() {
    let mut command = whose();
    command.env("MEMCUDA_POLICY", "track");
    let (out, log) = said(command.env("MEMCUDA_LIMIT", "1GiB"));
    let line = "memcuda: warning: MEMCUDA_LIMIT has no effect with MEMCUDA_POLICY=track, which lends nothing\n";
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_DRIVER, line));
}

#[test]
fn a_misspelt_setting_is_one_line_and_changes_nothing() {
    let (out, log) = said(whose().env("MEMCUDA_LMIT", "1MiB"));
    let line = "memcuda: warning: MEMCUDA_LMIT is no setting, and changes nothing\n";
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, line));
}

#[test]
fn a_setting_that_needs_another_one_is_one_line_without_it() {
    let (out, log) = said(whose().env("MEMCUDA_TRACE_STACKS", "c"));
    let line = "memcuda: warning: MEMCUDA_TRACE_STACKS has no effect without MEMCUDA_TRACE\n";
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, line));
}

#[test]
fn a_limit_of_a_device_that_is_not_there_is_one_line() {
    let (out, log) = said(whose().env("MEMCUDA_LIMIT", "0=1GiB,3=1GiB"));
    let line =
        "memcuda: warning: MEMCUDA_LIMIT is for device 3, too, which this process does not see\n";
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, line));
}

#[test]
fn what_a_limit_forbids_is_not_free() {
    let program = program("limited.c", "limited");
    let mut command = preloaded(program, &[shim()]);
    command.env("MEMCUDA_SIM_MEMORY", "4GiB");
    let (out, _) = said(command.env("MEMCUDA_LIMIT", "1GiB"));
    let expected = "at first: 1024 of 4096\nwith 256: 768 of 4096\nwithout: 1024 of 4096\n\
                    4 times 256\nfull: 0 of 4096\n";
    assert_eq!(out, expected);
    let (out, _) = said(command.env("MEMCUDA_LIMIT", ""));
    assert!(
        out.starts_with("at first: 4096 of 4096\nwith 256: 3840"),
        "{out}"
    );
}

#[test]
fn the_log_can_be_json_in_a_file() {
    let file = crate::support::scratch().join("log.json");
    let _ = std::fs::remove_file(&file);
    let mut command = whose();
    command
        .env("MEMCUDA_LOG", "info")
        .env("MEMCUDA_LOG_FORMAT", "json");
    let (_, log) = said(command.env("MEMCUDA_LOG_FILE", &file));
    assert_eq!(log, "");
    let written = std::fs::read_to_string(file).unwrap();
    for line in written.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["schema"], "memcuda.log/1");
        assert_eq!(
            (&line["level"], &line["part"]),
            (&"info".into(), &"library".into())
        );
        assert!(line["time_us"].as_u64().unwrap() > 1_700_000_000_000_000 && line["pid"].is_u64());
    }
    assert!(written.contains("started"), "{written}");
}

#[test]
fn a_log_that_cannot_be_opened_is_one_line_with_the_reason() {
    let (out, log) = said(whose().env("MEMCUDA_LOG_FILE", "/proc/none/log"));
    let line = "memcuda: warning: MEMCUDA_LOG_FILE=/proc/none/log cannot be opened (No such file or directory (os error 2)); logging here\n";
    assert_eq!((out.as_str(), log.as_str()), (ON_THE_POOL, line));
}

/// Nobody reads it, and nobody waits for who might.
#[test]
fn a_log_in_a_pipe_that_nobody_reads_is_one_line() {
    let pipe = scratch().join("log.pipe");
    let _ = fs::remove_file(&pipe);
    run(Command::new("mkfifo").arg(&pipe));
    let mut command = preloaded("timeout", &[shim()]);
    command.arg("10").arg(program("whose.c", "whose-piped"));
    let (out, log) = said(command.env("MEMCUDA_LOG_FILE", &pipe));
    assert_eq!((out.as_str(), log.lines().count()), (ON_THE_POOL, 1));
    assert!(
        log.contains("cannot be opened (No such device or address"),
        "{log}"
    );
}

#[test]
fn a_file_that_may_not_grow_ends_no_program() {
    let full = compile("full.c", "libfull.so", &["-shared", "-fPIC"]);
    let limited = || preloaded(program("whose.c", "whose"), &[shim(), full.clone()]);
    let log = scratch().join("full.log");
    let _ = fs::remove_file(&log);
    let (out, said_of_page) = said(limited().env("MOST", "1"));
    assert_eq!(out, ON_THE_POOL);
    assert!(
        said_of_page.contains("no statistics page"),
        "{said_of_page}"
    );
    let mut logging = limited();
    let settings = [("MEMCUDA_STATS", "off"), ("MEMCUDA_LOG", "debug")];
    logging.envs(settings).env("MEMCUDA_LOG_FILE", &log);
    let (out, _) = said(logging.env("MOST", "100"));
    assert_eq!(out, ON_THE_POOL);
    assert_eq!(fs::metadata(&log).unwrap().len(), 100);
    let reports = tempfile::tempdir().unwrap();
    let mut failing = limited();
    let settings = [("MEMCUDA_STATS", "off"), ("MEMCUDA_LIMIT", "8MiB")];
    failing.envs(settings).env("MOST", "100");
    failing.env("MEMCUDA_OOM_REPORT", reports.path());
    let output = failing.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let written = String::from_utf8(output.stderr).unwrap();
    assert!(written.contains("no report can be written"), "{written}");
    assert_eq!(fs::read_dir(reports.path()).unwrap().count(), 0);
}

#[test]
fn a_report_that_finds_no_room_when_it_is_closed_is_none() {
    let late = compile("closed.c", "libclosed.so", &["-shared", "-fPIC"]);
    let reports = tempfile::tempdir().unwrap();
    let mut failing = preloaded(program("whose.c", "whose"), &[shim(), late]);
    failing.env("MEMCUDA_LIMIT", "8MiB");
    failing.env("MEMCUDA_OOM_REPORT", reports.path());
    let output = failing.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let written = String::from_utf8(output.stderr).unwrap();
    let why = "no report can be written there: Disk quota exceeded";
    assert!(written.contains(why), "{written}");
    assert_eq!(fs::read_dir(reports.path()).unwrap().count(), 0);
}

#[test]
fn a_log_that_nobody_reads_ends_no_program() {
    let (unread, log) = std::io::pipe().unwrap();
    drop(unread);
    let mut command = whose();
    command.env("MEMCUDA_LOG", "debug").stderr(log);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, ON_THE_POOL.as_bytes());
}

#[test]
fn a_program_that_gets_no_more_host_memory_goes_on_with_the_driver() {
    let (out, log) = said(&mut preloaded(program("starved.c", "starved"), &[shim()]));
    let line = "memcuda: error: no host memory, new memory now comes from the plain driver\n";
    assert_eq!((out.as_str(), log.as_str()), ("some pooled\n", line));
}

#[test]
fn a_program_with_few_addresses_keeps_most_of_them() {
    let program = program("few_addresses.c", "few_addresses");
    let (out, log) = said(&mut preloaded(program, &[shim()]));
    assert_eq!(out, "60 GiB more: yes\nthen: yes, pooled\n", "{log}");
}

/// A daemon closes what it was given, and opens files of its own.
#[test]
fn lines_are_written_to_standard_error_and_to_nothing_else_that_has_its_number() {
    let program = program("second.c", "second");
    let run = |words: &[&str]| {
        let file = scratch().join(format!("second-{}", words.len()));
        let mut command = preloaded(&program, &[shim()]);
        let (stand_in, own) = std::os::unix::net::UnixStream::pair().unwrap();
        command.env("MEMCUDA_DEBUG", "canary").arg(file).args(words);
        command.stderr(std::os::fd::OwnedFd::from(own));
        let output = command.output().unwrap();
        drop(command);
        let log = std::io::read_to_string(stand_in).unwrap();
        assert!(output.status.success(), "{output:?} {log}");
        (String::from_utf8(output.stdout).unwrap(), log)
    };
    let (out, log) = run(&[]);
    let expected = "a data file: nothing\none that no other program gets: nothing\n\
                    a connection: nothing\na file that is written: a line\n\
                    a file that grows: a line\na pipe: a line\na terminal: a line\n";
    assert_eq!(out, expected, "{log}");
    // A connection, too, but one that was there.
    assert_eq!(log.matches("guard words").count(), 1, "{log}");
    assert_eq!(
        run(&["there before CUDA starts"]).0,
        "there before CUDA starts: nothing\n"
    );
    // As of a test, whose output is kept.
    assert_eq!(run(&["nameless"]).0, "nameless: a line\n");
}

#[test]
fn what_is_written_behind_an_allocation_is_a_line_when_it_is_freed() {
    let mut command = preloaded(program("overrun.c", "overrun"), &[shim()]);
    let (_, log) = said(command.env("MEMCUDA_DEBUG", "canary"));
    let lines: Vec<_> = log.lines().collect();
    assert!(
        lines.len() == 2
            && lines[0].contains("2000 bytes at 0x")
            && lines[1].contains("3000 bytes at 0x")
            && lines.iter().all(|line| line.contains("guard words")),
        "{log}"
    );
}

#[test]
fn poisoned_memory_holds_no_number_when_it_is_lent() {
    let mut command = preloaded(program("poison.c", "poison"), &[shim()]);
    said(command.env("MEMCUDA_DEBUG", "poison"));
}

#[test]
fn after_a_crashed_kernel_memory_answers_its_error() {
    said(&mut preloaded(program("crash.c", "crash"), &[shim()]));
}

/// Panics are planted in debug builds only.
#[cfg(debug_assertions)]
#[test]
fn a_panic_is_one_line_and_the_program_runs_on() {
    for (place, expected) in [
        ("start", ON_THE_DRIVER),
        ("cuMemAlloc_v2", ON_THE_DRIVER),
        ("cuMemFree: found", "pool\ndriver\n"),
        ("cuMemFreeAsync: found", ON_THE_POOL),
    ] {
        let (out, log) = said(whose().env("MEMCUDA_PANIC_IN", place));
        assert_eq!(out, expected, "{place}");
        assert_eq!(log.lines().count(), 1, "{place}: {log}");
        assert!(log.contains("internal error"), "{log}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn after_a_panic_idle_memory_goes_back_to_the_driver() {
    said(&mut preloaded(program("stopped.c", "stopped"), &[shim()]));
}

#[test]
fn another_device_reaches_pooled_memory_once_it_was_given_access() {
    let run = |how: &str| {
        let mut command = preloaded(program("peers.c", "peers"), &[shim()]);
        command.arg(how).env("MEMCUDA_SIM_DEVICES", "2");
        command
    };
    said(&mut run("context"));
    said(&mut run("pool"));
    // The first two are the pool's own: as it learns what can be opened, and as it makes the memory.
    for how in ["context-refused", "pool-refused"] {
        said(run(how).env("MEMCUDA_SIM_FAIL", "cuMemSetAccess@3=999"));
    }
    // Where nothing is lent there is no pool that could fail.
    let mut tracked = run("context");
    tracked.env("MEMCUDA_POLICY", "track");
    said(tracked.env("MEMCUDA_SIM_FAIL", "cuMemSetAccess@2=999"));
    for how in ["", "pool-closed"] {
        let without = run(how).output().expect("the program starts");
        let words = String::from_utf8_lossy(&without.stderr);
        assert!(
            !without.status.success() && words.contains("no such access"),
            "{how}: {words}"
        );
    }
}
