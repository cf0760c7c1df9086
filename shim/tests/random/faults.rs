//! A failure injected into every kind of driver call that the pool makes: a
//! call of the program answers that error, or nothing is to be seen. Never
//! misuse, a hang, a crash, or a free that fails for the pool's own reasons.

use super::{Done, number, program, support};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

/// Calls of the pool that can fail.
const CALLS: [&str; 12] = [
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuEventCreate",
    "cuEventRecord",
    "cuCtxRecordEvent",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
];

/// The code of a failure: out of memory, or one that nobody expects.
const CODES: [u32; 2] = [2, 999];

/// The program with a failure; `timeout` ends what hangs.
fn with_failure(seed: u64, operations: u64, fault: &str, code: u32, strict: bool) -> Output {
    let mut command = support::preloaded("timeout", &[support::shim()]);
    command
        .arg("60")
        .arg(program())
        .args([seed, operations, 2].map(|n| n.to_string()))
        .env("MEMCUDA_SIM_DEVICES", "2")
        .env("MEMCUDA_SIM_FAIL", format!("{fault}={code}"))
        .env("RANDOM_ALLOW", format!(",{code},"))
        .env("RANDOM_FREES", if strict { "" } else { "1" })
        .env("RANDOM_SHORT", "1")
        .env("RANDOM_KEEPS", "1");
    command.output().unwrap()
}

fn check(done: &mut Done, output: &Output, fault: &str, code: u32) {
    let log = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        status.success(),
        "{fault}={code}: {} (124: it hung; signal {:?})\n{log}",
        status,
        status.signal()
    );
    done.add(&String::from_utf8_lossy(&output.stdout));
}

/// One failure in the first, second, ... call, further and further apart, as long as there
/// is a call in that place.
#[test]
fn one_failure_anywhere_is_survived() {
    let operations = number("MEMCUDA_RANDOM_OPS", 1500);
    let mut done = Done::default();
    for call in CALLS {
        for code in CODES {
            for at in [1, 2, 3, 5, 8, 13, 29, 61, 127, 255, 509] {
                let (fault, before) = (format!("{call}@{at}"), done.failures);
                let output = with_failure(at, operations, &fault, code, true);
                check(&mut done, &output, &fault, code);
                if done.failures == before {
                    break;
                }
            }
        }
    }
    assert!(done.failures >= 50, "{} failures", done.failures);
    done.say("one failure in each kind of call");
}

/// Failures again and again.
#[test]
fn repeated_failures_are_survived() {
    let operations = number("MEMCUDA_RANDOM_OPS", 1500);
    let mut done = Done::default();
    for call in CALLS {
        for code in CODES {
            for each in [7, 31] {
                let fault = format!("{call}%{each}");
                let output = with_failure(each, operations, &fault, code, true);
                check(&mut done, &output, &fault, code);
            }
        }
    }
    assert!(done.refused > 0, "no failure reached the program");
    done.say("repeated failures in each kind of call");
}

/// Failures in whatever call it hits, those that the program makes included.
#[test]
fn failures_in_all_calls_are_survived() {
    let operations = number("MEMCUDA_RANDOM_OPS", 1500);
    let mut done = Done::default();
    for each in [211, 487, 977, 1999] {
        for code in CODES {
            let fault = format!("*%{each}");
            let output = with_failure(each, operations, &fault, code, false);
            check(&mut done, &output, &fault, code);
        }
    }
    assert!(done.refused > 0, "no failure reached the program");
    done.say("failures in all calls");
}
