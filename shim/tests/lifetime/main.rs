//! Contexts, plugins, processes that fork and end: the program gets what the
//! driver alone would have given it, also where a hook panics or any of the
//! driver's calls fails.

#[path = "../support/driver.rs"]
mod driver;
mod entry_points;
mod every;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use driver::driver;
use support::{compile, preloaded, run, said, shim, simulator};

/// Compiles a program of this directory that links to the simulated driver and
/// runtime.
fn program(source: &str, more: &[&str]) -> PathBuf {
    let directory = format!("-L{}", simulator().display());
    let libraries = ["-l:libcudart.so.13", "-l:libcuda.so.1", "-ldl", "-pthread"];
    let arguments = [&[directory.as_str()], more, &libraries].concat();
    compile(source, &source.replace('.', "-"), &arguments)
}

/// The same command without the library.
fn bare(program: &Path) -> Command {
    let mut command = preloaded(program, &[]);
    command.env_remove("LD_PRELOAD");
    command
}

/// Runs a program without the library and with it: the lines are the same.
fn same(program: &Path, devices: &str) {
    let (expected, _) = said(bare(program).env("MEMCUDA_SIM_DEVICES", devices));
    let mut command = preloaded(program, &[shim()]);
    let (out, log) = said(command.env("MEMCUDA_SIM_DEVICES", devices));
    assert_eq!((out.as_str(), log.as_str()), (expected.as_str(), ""));
}

#[test]
fn a_context_takes_its_own_memory_with_it_and_nobody_elses() {
    same(&program("contexts.c", &[]), "1");
}

#[test]
fn a_free_waits_for_its_own_context_alone() {
    let program = program("beside.c", &[]);
    same(&program, "1");
    let (out, _) = said(bare(&program).arg("alone"));
    assert!(out.contains("cuStreamQuery(other->stream): 600"), "{out}");
}

#[test]
fn rows_that_were_asked_for_make_nobody_wait_for_their_context() {
    let program = program("beside.c", &[]);
    let [expected, with] = [bare(&program), preloaded(&program, &[shim()])]
        .map(|mut command| said(command.arg("rows")));
    assert_eq!(with, expected);
    assert!(expected.0.contains("cuStreamQuery(other->stream): 600"));
}

/// Nor does anybody use these bytes before that is over.
#[test]
fn what_work_in_other_contexts_uses_is_freed_without_a_wait() {
    run(preloaded(program("beside.c", &[]), &[shim()]).arg("shared"));
}

#[test]
fn a_capture_forbids_to_threads_without_a_context_what_it_forbids_to_others() {
    same(&program("capturing.c", &[]), "1");
}

#[test]
fn a_thread_that_is_cancelled_ends_in_no_question_for_captures() {
    let mut command = preloaded(program("capturing.c", &[]), &[shim()]);
    command.arg("cancelled");
    run(command.env("LD_LIBRARY_PATH", cancelling_driver()));
}

/// The old context's end must be noticed, and must take nothing of the new one's.
#[test]
fn a_context_that_begins_while_another_one_ends_is_not_taken_for_it() {
    let program = program("handover.c", &["-rdynamic"]);
    let pausing = pausing_driver();
    for way in ["ended", "asked", "destroy", "flags"] {
        let [expected, with] = [vec![], vec![shim()]].map(|libraries| {
            let mut command = preloaded(&program, &libraries);
            said(command.arg(way).env("LD_LIBRARY_PATH", pausing))
        });
        assert_eq!(with, expected, "{way}");
    }
}

#[test]
fn the_memory_pool_that_is_set_last_is_the_current_one() {
    let program = program("mem_pools.c", &["-rdynamic"]);
    let mut command = preloaded(program, &[shim()]);
    run(command.env("LD_LIBRARY_PATH", pausing_driver()));
}

#[test]
fn a_context_that_waits_for_its_work_while_it_ends_holds_up_no_other_one() {
    let program = program("apart.c", &["-rdynamic"]);
    let [expected, with] = [vec![], vec![shim()]].map(|libraries| {
        let mut command = preloaded(&program, &libraries);
        said(command.env("LD_LIBRARY_PATH", pausing_driver()))
    });
    assert_eq!(with, expected);
}

#[test]
fn copies_of_what_the_current_device_reaches_elsewhere_need_no_more_access() {
    let program = program("reached.c", &[]);
    let [expected, with] = [vec![], vec![shim()]].map(|libraries| {
        let mut command = preloaded(&program, &libraries);
        said(command.env("MEMCUDA_SIM_DEVICES", "3"))
    });
    assert_eq!(with, expected);
}

#[test]
fn a_stream_whose_handle_comes_back_while_its_context_ends_is_another_contexts() {
    let program = program("recycled.c", &["-rdynamic"]);
    let [expected, with] = [vec![], vec![shim()]].map(|libraries| {
        let mut command = preloaded(&program, &libraries);
        said(command.env("LD_LIBRARY_PATH", pausing_driver()))
    });
    assert_eq!(with, expected);
}

#[test]
fn a_tool_that_is_called_back_while_a_context_ends_waits_for_nobody_who_waits_for_that() {
    let program = program("called_back.c", &["-rdynamic"]);
    let mut command = preloaded(&program, &[shim()]);
    run(command.env("LD_LIBRARY_PATH", pausing_driver()));
}

#[test]
fn a_release_that_is_not_the_last_one_waits_for_nobodys_free() {
    let program = program("not_last.c", &["-rdynamic"]);
    let mut command = preloaded(&program, &[shim()]);
    run(command.env("LD_LIBRARY_PATH", pausing_driver()));
}

#[test]
fn each_try_to_load_a_module_may_write_as_long_a_log() {
    let program = program("logs.c", &[]);
    let driver = driver("logging");
    let mut command = preloaded(&program, &[shim()]);
    let (out, _) = said(command.env("LD_LIBRARY_PATH", driver));
    let tries = "of 2: a log of 100 bytes\n".repeat(3);
    assert_eq!(out, format!("{tries}its log has 7 bytes\n"));
}

/// The directory of a driver some calls of which end a thread that is cancelled.
fn cancelling_driver() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| driver("cancelling"))
}

/// The directory of a driver that tells the program of its calls.
fn pausing_driver() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| driver("pausing"))
}

/// As an H200 answered: what stands before the name that is refused is written.
#[test]
fn a_list_that_is_refused_has_answers_up_to_there() {
    same(&program("refused_lists.c", &[]), "1");
}

#[test]
fn what_a_capture_forbids_is_told_whatever_context_is_current() {
    same(&program("ended_current.c", &[]), "1");
}

#[test]
fn what_a_function_of_the_host_may_not_give_back_is_not_lost() {
    same(&program("host_function.c", &[]), "1");
}

#[test]
fn what_was_in_a_view_of_a_context_is_the_contexts_when_it_is_gone() {
    same(&program("views.c", &[]), "1");
}

#[test]
fn a_view_is_found_behind_its_stream_or_left_to_the_driver() {
    let program = program("views.c", &[]);
    // Before CUDA 13; and where the later form does not tell either.
    for fails in ["", "cuStreamGetCtx_v2%1=801"] {
        let [expected, with] =
            [bare(&program), preloaded(&program, &[shim()])].map(|mut command| {
                command.env("MEMCUDA_SIM_LACKS", "green-streams");
                said(command.env("MEMCUDA_SIM_FAIL", fails))
            });
        assert_eq!(with, expected, "{fails}");
    }
}

#[test]
fn a_context_whose_end_fails_goes_on() {
    let program = program("views.c", &[]);
    let [expected, with] = [bare(&program), preloaded(&program, &[shim()])].map(|mut command| {
        let faults = "cuCtxDestroy_v2@1=999,cuGreenCtxDestroy@1=999";
        said(command.arg("stay").env("MEMCUDA_SIM_FAIL", faults))
    });
    assert!(expected.0.contains("cuGreenCtxDestroy(v.green): 999"));
    assert_eq!(with, expected);
}

/// Panics are planted in debug builds only.
#[cfg(debug_assertions)]
#[test]
fn a_view_whose_end_was_not_heard_is_not_waited_for() {
    let program = program("views.c", &[]);
    let (expected, _) = said(bare(&program).arg("stop"));
    let mut command = preloaded(&program, &[shim()]);
    command.arg("stop");
    let (out, log) = said(command.env("MEMCUDA_PANIC_IN", "cuGreenCtxDestroy: leaves"));
    assert_eq!(out, expected);
    assert!(log.contains("internal error"), "{log}");
}

#[test]
fn access_between_devices_comes_and_goes() {
    let program = program("access.c", &[]);
    same(&program, "2");
    same(&program, "4");
}

/// Each device's pool hears of the end of a stream, whosever it is.
#[test]
fn memory_that_is_freed_across_devices_is_used_after_the_stream_that_ended() {
    let program = program("across.c", &[]);
    same(&program, "2");
}

#[test]
fn a_device_loses_the_access_that_nobody_wants_any_more() {
    let program = program("access.c", &[]);
    for how in ["after-disable", "after-destroy"] {
        for mut command in [bare(&program), preloaded(&program, &[shim()])] {
            let output = command.arg(how).env("MEMCUDA_SIM_DEVICES", "2").output();
            let words = String::from_utf8_lossy(&output.as_ref().unwrap().stderr).into_owned();
            assert!(words.contains("no such access"), "{how}: {words}");
        }
    }
}

#[test]
fn copies_of_another_devices_memory_need_no_access() {
    for source in ["copies.c", "carried.c"] {
        let program = program(source, &[]);
        same(&program, "2");
        // Of memory that is not there, the library makes none.
        let mut refused = preloaded(&program, &[shim()]);
        said(refused.arg("refused").env("MEMCUDA_SIM_DEVICES", "2"));
    }
}

#[test]
fn a_plugin_goes_when_it_is_closed_and_another_may_take_its_place() {
    let search = format!("-L{}", simulator().display());
    let plugin = |name: &str, more: &[&str]| {
        let define = format!("-DNAME=\"{name}\"");
        let arguments = [&["-shared", "-fPIC", &define, &search], more].concat();
        compile("plugin.c", &format!("lib{name}.so"), &arguments)
    };
    let one = plugin("plugin_one", &["-ldl"]);
    let two = plugin("plugin_two", &["-ldl"]);
    let shared = plugin("plugin_shared", &["-DSHARED", "-l:libcudart.so.13"]);
    let host = program("plugins.c", &[]);
    let (expected, _) = said(bare(&host).args([&one, &two, &shared]));
    let mut command = preloaded(&host, &[shim()]);
    let (out, log) = said(
        command
            .args([&one, &two, &shared])
            .env("MEMCUDA_LOG", "debug"),
    );
    assert_eq!(out, expected);
    assert!(out.contains("at the same place"), "{out}");
    for name in ["libplugin_one.so", "libplugin_two.so"] {
        let route = format!("route: cuMemAlloc_v2 by cuGetProcAddress from {name}");
        assert!(log.contains(&route), "{log}");
    }
    // Each has its number again.
    assert!(!log.contains("from some module"), "{log}");
}

#[test]
fn forked_and_executed_processes_are_left_alone() {
    same(&program("forks.c", &[]), "1");
}

#[test]
fn a_child_that_was_forked_while_others_are_in_the_runtime_loads_what_it_wants() {
    same(&program("loading.c", &[]), "1");
}

/// What a process said and how it ended, or that it hung; `timeout` is run as it is to be.
fn ended(mut timeout: Command, program: &Path, way: &str) -> Output {
    timeout.args(["-k", "1", "30"]).arg(program).arg(way);
    timeout.output().expect("timeout starts")
}

#[test]
fn a_process_ends_as_it_would() {
    let program = support::scratch().join("endings");
    run(Command::new("g++")
        .args(["-std=gnu++17", "-O1", "-Wall", "-Werror", "-o"])
        .args([&program, &support::source("endings.cc")])
        .arg(format!("-L{}", simulator().display()))
        .args(["-l:libcudart.so.13", "-l:libcuda.so.1", "-ldl", "-pthread"]));
    let ways = "return exit _exit quick_exit abort throw sigterm thread";
    for way in ways.split(' ') {
        let expected = ended(bare("timeout".as_ref()), &program, way);
        assert_ne!(expected.status.code(), Some(124), "{way}: it hung");
        for _ in 0..3 {
            let output = ended(preloaded("timeout", &[shim()]), &program, way);
            assert_eq!(output.status, expected.status, "{way}: {output:?}");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&output.stdout), text(&expected.stdout), "{way}");
            assert_eq!(text(&output.stderr), text(&expected.stderr), "{way}");
        }
    }
}
