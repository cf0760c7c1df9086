//! A program that calls every hook (`every.c`): a panic in any of them, and a
//! failure of any driver call, leaves it with the answers of the bare driver.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{preloaded, run, said, shim};
use crate::{bare, cancelling_driver, program};

fn every() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program("every.c", &[])).clone()
}

fn expected() -> &'static str {
    static LINES: OnceLock<String> = OnceLock::new();
    LINES.get_or_init(|| said(bare(&every()).env("MEMCUDA_SIM_DEVICES", "2")).0)
}

/// Every hook, as `shim/exports.txt` has it; the library's own interface and what
/// is torch's are no driver's (`shim/tests/names`, `shim/tests/torch`).
fn exported() -> impl Iterator<Item = &'static str> {
    let exports = include_str!("../../exports.txt").lines();
    exports.filter(|name| !name.starts_with("memcuda_") && !name.starts_with("_ZN3c10"))
}

/// What the program never reached: this driver has no such call.
fn absent() -> BTreeSet<&'static str> {
    let lines = expected().lines();
    lines
        .filter_map(|line| line.strip_suffix(": absent"))
        .collect()
}

#[test]
fn the_program_calls_every_hook_that_the_driver_has() {
    let called: BTreeSet<_> = expected()
        .lines()
        .filter_map(|line| line.split([':', '(']).next())
        .collect();
    // The loader's are called by all of them.
    let loaders = ["dlsym", "dlopen", "dlmopen"];
    let missing: Vec<_> = exported()
        .filter(|name| !called.contains(name) && !loaders.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn nothing_is_to_be_seen_of_the_library() {
    let mut command = preloaded(every(), &[shim()]);
    let (out, log) = said(command.env("MEMCUDA_SIM_DEVICES", "2"));
    assert_eq!((out.as_str(), log.as_str()), (expected(), ""));
}

/// A forced unwinding through this library would end the process. Each call is made with the
/// library's lines of the log, which are written, and without.
#[test]
fn a_thread_that_is_cancelled_ends_in_no_call() {
    let ends_in = Some(cancelling_driver());
    for (driver, level, debug) in [
        (None, "warn", ""),
        (None, "debug", ""),
        (ends_in, "warn", ""),
        (ends_in, "warn", "poison"),
        (ends_in, "warn", "canary"),
    ] {
        let mut command = preloaded(every(), &[shim()]);
        command.envs(driver.map(|driver| ("LD_LIBRARY_PATH", driver)));
        command.arg("cancelled").env("MEMCUDA_LOG", level);
        command.env("MEMCUDA_DEBUG", debug);
        let (out, log) = said(command.env("MEMCUDA_SIM_DEVICES", "2"));
        assert_eq!(
            (out.as_str(), log.is_empty()),
            (expected(), level == "warn")
        );
    }
}

/// After a panic in one of these the pool does not know that the context
/// ended: it still takes its memory back, or hears of the end by that.
const ENDS_A_CONTEXT: [&str; 6] = [
    "cuCtxDestroy",
    "cuCtxDestroy_v2",
    "cuCtxDetach",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxReset_v2",
];

/// The driver refuses these for mapped memory; a panic leaves that answer.
const COMPLETED: [&str; 4] = [
    "cuGraphAddMemsetNode",
    "cuGraphAddNode",
    "cuGraphAddNode_v2",
    "cuGraphAddNode_v3",
];

/// Panics before the settings are known are not said; what they lead to is.
const SAYS_NOTHING: [&str; 3] = ["dlsym", "dlopen", "dlmopen"];

/// Panics are planted in debug builds only.
#[cfg(debug_assertions)]
#[test]
fn a_panic_in_any_hook_is_one_line_and_the_drivers_answer() {
    let absent = absent();
    let mut planted = 0;
    for name in exported().filter(|name| !absent.contains(name)) {
        for place in [name.to_owned(), format!("{name}:behind")] {
            let mut command = preloaded(every(), &[shim()]);
            command.env("MEMCUDA_SIM_DEVICES", "2");
            let (out, log) = said(command.env("MEMCUDA_PANIC_IN", &place));
            let forgiven = ENDS_A_CONTEXT.contains(&name) && place == name;
            let same = out.lines().zip(expected().lines()).all(|(line, wanted)| {
                let kept = ["cuMemFree_v2: 0", "cuMemFree_v2: 709"].contains(&line);
                let kept = kept && wanted == "cuMemFree_v2: 1";
                let refused = COMPLETED.contains(&name)
                    && *wanted == format!("{name}: 0")
                    && *line == format!("{name}: 1");
                line == wanted || (forgiven && kept) || (place == name && refused)
            });
            assert!(
                same && out.lines().count() == expected().lines().count(),
                "{place}:\n{out}"
            );
            let said = log
                .lines()
                .filter(|line| {
                    // One inside dlsym is told by the next call of a hook.
                    line.contains("planted in") || line.contains("internal error in a lookup")
                })
                .count();
            assert_eq!(log.lines().count(), said, "{place}: {log}");
            assert!(said <= 1, "{place}: {log}");
            // Entries that are no driver calls have no end of their own.
            let whole = place != name || SAYS_NOTHING.contains(&name);
            assert!(said == 1 || whole, "{place}: the panic did not happen");
            planted += said;
        }
    }
    println!(
        "{planted} panics planted, {} hooks that this driver lacks",
        absent.len()
    );
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_in_dlsym_leaves_the_program_on_the_driver() {
    let lends = |place: &str| {
        let mut command = preloaded(every(), &[shim()]);
        command
            .env("MEMCUDA_SIM_DEVICES", "2")
            .env("MEMCUDA_LOG", "debug");
        let (out, log) = said(command.env("MEMCUDA_PANIC_IN", place));
        assert_eq!(out, expected());
        log.contains("bytes, not torch's own")
    };
    assert!(lends("nowhere") && !lends("dlsym"));
}

/// One failure in the first, second, ... of all driver calls, the library's own
/// included. A call of the program that answers it is made once more, and from
/// there on everything is as if nothing had failed.
#[test]
fn a_failure_of_any_driver_call_is_the_programs_or_nobodys() {
    const CALLS: u32 = 900;
    let (next, repeated) = (AtomicU32::new(1), AtomicU32::new(0));
    let (program, shim, expected) = (every(), shim(), expected());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at > CALLS {
                break;
            }
            let code = if at % 4 == 0 { "2" } else { "999" };
            let fault = format!("*@{at}={code}");
            let mut command = preloaded(&program, std::slice::from_ref(&shim));
            command
                .arg(code)
                .env("MEMCUDA_SIM_DEVICES", "2")
                .env("MEMCUDA_SIM_FAIL", &fault);
            let output = run(&mut command);
            let out = String::from_utf8_lossy(&output.stdout);
            assert_eq!(out, expected, "{fault}");
            let log = String::from_utf8_lossy(&output.stderr);
            repeated.fetch_add(u32::from(!log.contains("repeated 0")), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let repeated = repeated.into_inner();
    println!("{CALLS} runs, in {repeated} a call of the program answered the failure");
    assert!(repeated > 100, "{repeated}");
}
