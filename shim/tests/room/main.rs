//! Idle memory of the pool makes nobody run out: not the calls beside it in its
//! own process, not other processes on the device.

mod clock;
#[path = "../support/counters.rs"]
mod counters;
mod own_thread;
mod processes;
mod resident;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// A test program, compiled once.
fn program(name: &'static str) -> PathBuf {
    static MADE: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap();
    if !made.contains(&name) {
        support::program(&format!("{name}.c"), name);
        made.push(name);
    }
    support::scratch().join(name)
}

fn room(case: &str) -> Command {
    let mut command = support::preloaded(program("room"), &[support::shim()]);
    command.arg(case).env("MEMCUDA_SIM_MEMORY", "1GiB");
    command
}

#[test]
fn idle_memory_makes_no_call_beside_the_pool_run_out() {
    let mut command = support::preloaded(program("beside"), &[support::shim()]);
    support::said(command.env("MEMCUDA_SIM_MEMORY", "1GiB"));
}

#[test]
fn every_call_that_takes_memory_finds_room_on_a_full_device() {
    support::said(&mut room("full"));
}

#[test]
fn a_call_that_is_out_of_memory_is_made_again() {
    for (call, number) in [
        ("cuMemAllocPitch", 1),
        // Two are the pool's: it learns what can be opened, and has memory.
        ("cuMemSetAccess", 3),
        ("cuModuleGetFunction", 1),
        ("cuFuncLoad", 1),
        ("cuLibraryLoadData", 1),
        ("cuCtxCreate", 1),
        ("cuCtxCreate_v2", 1),
        ("cuCtxCreate_v3", 1),
        ("cuCtxCreate_v4", 1),
        // The second is the pool's: it asks which context is the primary one.
        ("cuDevicePrimaryCtxRetain", 3),
        ("cuCtxSetLimit", 1),
        ("cuStreamCreate", 1),
        ("cuStreamCreateWithPriority", 1),
        ("cuGreenCtxCreate", 1),
        ("cuGreenCtxStreamCreate", 1),
        ("cuGraphInstantiate_v2", 1),
        ("cuGraphInstantiateWithFlags", 1),
        ("cuGraphInstantiateWithParams", 1),
        ("cuGraphUpload", 1),
        ("cuGraphUpload_ptsz", 1),
        ("cuGraphLaunch", 1),
        ("cuGraphLaunch_ptsz", 1),
    ] {
        let fault = format!("{call}@{number}=2");
        support::said(room(call).env("MEMCUDA_SIM_FAIL", fault));
    }
    // The first asks for the pitch, which is not known then: the program's own is made.
    let faults = "cuMemAllocPitch@1=999,cuMemAllocPitch@2=2";
    support::said(room("its plain one").env("MEMCUDA_SIM_FAIL", faults));
}

#[test]
fn room_is_made_where_it_lacks_whichever_device_is_current() {
    for (call, number) in [
        // Two each are the pools'.
        ("cuMemSetAccess", 5),
        ("cuCtxCreate_v2", 1),
        ("cuCtxCreate_v4", 1),
        ("cuGreenCtxCreate", 1),
        ("cuGreenCtxStreamCreate", 1),
        ("cuMemAllocFromPoolAsync", 1),
        ("cuGraphUpload", 1),
        ("cuGraphUpload_ptsz", 1),
        ("cuGraphLaunch", 1),
        ("cuGraphLaunch_ptsz", 1),
    ] {
        let mut command = room(call);
        command.env("MEMCUDA_SIM_DEVICES", "2");
        command.env("ROOM_ELSEWHERE", "1");
        support::said(command.env("MEMCUDA_SIM_FAIL", format!("{call}@{number}=2")));
    }
}

/// Neither of the device nor of others: nothing is given back, nor waited for.
#[test]
fn no_room_is_made_for_what_could_never_be_served() {
    for (case, fail) in [
        ("limited", None),
        ("current", None),
        ("host", Some("cuMemAllocFromPoolAsync%1=2")),
        ("too much", None),
    ] {
        let mut command = support::preloaded(program("bounded"), &[support::shim()]);
        command.arg(case).env("MEMCUDA_SIM_DEVICES", "2");
        if let Some(fail) = fail {
            command.env("MEMCUDA_SIM_FAIL", fail);
        }
        support::said(&mut command);
    }
}

/// The driver's own call, then the opening of the pool's memory: before it two pools learned
/// what can be opened, and two handles were opened.
#[test]
fn access_from_another_device_finds_room() {
    for fault in ["cuCtxEnablePeerAccess@1=2", "cuMemSetAccess@5=2"] {
        let mut command = room("cuCtxEnablePeerAccess");
        command.env("MEMCUDA_SIM_DEVICES", "2");
        support::said(command.env("MEMCUDA_SIM_FAIL", fault));
    }
}

fn tables(case: &str) -> Command {
    let mut command = support::preloaded(program("tables"), &[support::shim()]);
    command.arg(case).env("MEMCUDA_SIM_MEMORY", "1GiB");
    command.env("MEMCUDA_SIM_DEVICES", "2");
    command.env("MEMCUDA_SIM_LACKS", "tables");
    command
}

#[test]
fn a_memory_pool_that_is_opened_to_a_full_device_finds_room_there() {
    support::said(&mut tables("set"));
    // The driver's own call.
    support::said(tables("set").env("MEMCUDA_SIM_FAIL", "cuMemPoolSetAccess@1=2"));
}

#[test]
fn memory_that_is_new_and_open_to_a_full_device_finds_room_there() {
    support::said(&mut tables("grow"));
}

#[test]
fn memory_that_a_captured_copy_opens_to_a_full_device_finds_room_there() {
    // What was refused once is no line: it was served.
    assert_eq!(support::said(&mut tables("copied")).1, "");
}

#[test]
fn no_room_is_made_of_what_is_in_use_nor_where_none_lacks() {
    support::said(&mut tables("live"));
    support::said(&mut tables("lender"));
}

#[test]
fn room_is_made_during_a_capture_which_survives() {
    support::said(&mut room("capture"));
}

#[test]
fn a_graph_finds_room_on_the_device_of_its_nodes() {
    let mut command = support::preloaded(program("graphs"), &[support::shim()]);
    let fail = "cuGraphInstantiateWithFlags@1=2,cuGraphLaunch@1=2";
    command.env("MEMCUDA_SIM_FAIL", fail);
    support::said(command.env("MEMCUDA_SIM_DEVICES", "2"));
}

#[test]
fn a_node_of_a_graph_is_asked_for_once() {
    support::said(room("node").env("MEMCUDA_SIM_FAIL", "cuMemAllocAsync@1=2"));
}

#[test]
fn a_free_that_cannot_wait_lends_nothing_that_is_in_use() {
    support::said(&mut room("waited"));
    support::said(room("unwaited").env("MEMCUDA_SIM_FAIL", "cuMemHostAlloc%1=2"));
}

#[test]
fn memory_in_use_is_waited_for_and_never_for_ever() {
    support::said(room("pending").env("MEMCUDA_SIM_CLOCK", "real"));
}

/// Whatever fails while room is made, the program gets the driver's answer.
#[test]
fn a_failure_while_room_is_made_is_out_of_memory_at_worst() {
    for call in [
        "cuMemUnmap",
        "cuMemRelease",
        "cuEventCreate",
        "cuThreadExchangeStreamCaptureMode",
        "cuDeviceGetUuid",
        "cuDeviceTotalMem",
        "cuMemGetInfo",
        "cuEventQuery",
        "cuEventRecord",
    ] {
        for number in 1..=3 {
            let fault = format!("{call}@{number}=2");
            let mut command = room("shaken");
            support::said(command.env("MEMCUDA_SIM_FAIL", fault));
        }
    }
}

fn thread(case: &str) -> Command {
    let mut command = support::preloaded(program("thread"), &[support::shim()]);
    command.arg(case);
    command
}

#[test]
fn the_thread_rests_whatever_becomes_of_its_descriptors() {
    support::said(&mut thread("closed"));
    support::said(&mut thread("full"));
    // Also where it is there for a recording alone.
    let trace = support::scratch().join("barred.trace");
    let mut recorded = thread("barred");
    recorded.env("MEMCUDA_TRACE", &trace);
    support::said(recorded.env("MEMCUDA_POLICY", "track"));
    std::fs::remove_file(trace).unwrap();
}

#[test]
fn a_call_of_the_thread_that_a_sandbox_traps_ends_no_program() {
    support::said(&mut thread("trapped"));
}

/// As one that is made of what the program calls without the library.
#[test]
fn a_sandbox_that_comes_later_meets_no_call_of_a_thread_that_nobody_asks() {
    support::said(&mut thread("unasked"));
}

#[test]
fn a_thread_that_may_not_sleep_is_there_still() {
    assert_eq!(support::said(&mut thread("sleepless")).1, "");
}

#[test]
fn a_thread_that_could_not_be_had_is_wanted_again() {
    support::said(thread("refused").env("MEMCUDA_SIM_DEVICES", "2"));
}

#[test]
fn a_context_ends_inside_the_loader_while_the_thread_looks_for_others() {
    let arguments = ["-shared", "-fPIC", "-DLIBRARY", "-ldl"];
    let library = support::compile("thread.c", "libthread.so", &arguments);
    let search = [support::simulator(), support::simulator().join("nvml")];
    let mut command = thread(library.to_str().unwrap());
    command.env("LD_LIBRARY_PATH", std::env::join_paths(search).unwrap());
    support::said(command.env("MEMCUDA_IDLE", "0"));
}
