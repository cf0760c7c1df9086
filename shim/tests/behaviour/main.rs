//! libmemcuda.so under LD_PRELOAD, over the simulated GPU, by what programs see.

mod faults;
mod inert;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{compile, preloaded, program, run, said, scratch, shim, simulator};

#[test]
fn every_door_leads_to_the_hooks() {
    let program = program("routes.c", "routes");
    run(&mut preloaded(program, &[shim()]));
}

#[test]
fn nothing_is_logged_from_inside_dlsym() {
    let program = compile(
        "lookups.c",
        "lookups",
        &[
            "-rdynamic",
            &format!("-L{}", simulator().display()),
            "-l:libcuda.so.1",
            "-ldl",
        ],
    );
    let (out, log) = said(preloaded(&program, &[shim()]).env("MEMCUDA_LOG", "debug"));
    assert_eq!(out, "1 told\n", "of cuInit, once CUDA was started");
    for symbol in ["cuMemAlloc_v2", "cuMemFreeAsync"] {
        let route = format!("route: {symbol} by dlsym from the program itself");
        assert_eq!(log.matches(&route).count(), 1, "{log}");
    }
    // Not even what went wrong in there.
    #[cfg(debug_assertions)]
    {
        let mut command = preloaded(&program, &[shim()]);
        command
            .env("MEMCUDA_LOG", "debug")
            .env("MEMCUDA_PANIC_IN", "dlsym");
        let (_, log) = said(&mut command);
        let lines = log.lines().filter(|line| line.contains("internal error"));
        assert_eq!(lines.count(), 1, "{log}");
    }
}

#[test]
fn a_thread_without_a_context_copies_what_lies_on_several_handles() {
    let program = program("nowhere.c", "nowhere");
    run(&mut preloaded(program, &[shim()]));
}

#[test]
fn memory_of_another_device_is_copied_filled_and_told_of_as_the_drivers_own() {
    let program = program("elsewhere.c", "elsewhere");
    let two = |mut command: Command| run(command.env("MEMCUDA_SIM_DEVICES", "2"));
    two(preloaded(program.clone(), &[]));
    two(preloaded(program, &[shim()]));
}

#[test]
fn pooled_memory_answers_as_the_drivers_own() {
    let program = program("memory.c", "memory");
    let (_, log) = said(&mut preloaded(program, &[shim()]));
    let of_ipc = log
        .lines()
        .filter(|line| line.contains("MEMCUDA_KEEPER=off"));
    assert_eq!(of_ipc.count(), 1, "{log}");
}

#[test]
fn who_has_marked_memory_has_the_flag_for_it() {
    run(&mut preloaded(program("marks.c", "marks"), &[shim()]));
}

/// As before CUDA 12.1.
#[test]
fn a_mark_is_refused_where_no_context_can_have_the_flag_for_it() {
    let (name, none) = (b"cuCtxSetFlags", b"noCtxSetFlags");
    let mut driver = std::fs::read(simulator().join("libcuda.so.1")).unwrap();
    while let Some(at) = driver.windows(name.len()).position(|w| w == name) {
        driver[at..at + none.len()].copy_from_slice(none);
    }
    let directory = scratch().join("no-flags");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("libcuda.so.1"), driver).unwrap();
    let search = std::env::join_paths([directory, simulator()]).unwrap();
    let unresolved = "-Wl,--unresolved-symbols=ignore-all";
    let linked = [unresolved, &format!("-L{}", simulator().display())];
    let libraries = ["-l:libcuda.so.1", "-Wl,-z,lazy"];
    let program = compile("marks.c", "marks-refused", &[linked, libraries].concat());
    let mut command = preloaded(program, &[shim()]);
    let (_, log) = said(command.arg("refused").env("LD_LIBRARY_PATH", search));
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("SYNC_MEMOPS is refused"), "{log}");
}

/// The first question whether it has reached an event is answered as a device that has not.
#[test]
fn a_trim_gives_back_what_the_program_has_waited_for() {
    let program = program("trimmed.c", "trimmed");
    let mut command = preloaded(program, &[shim()]);
    run(command.env("MEMCUDA_SIM_FAIL", "cuEventQuery@1=600"));
}

/// Holes between blocks, in which nothing large fits, are not told to be free.
#[test]
fn what_is_told_to_be_free_can_be_had() {
    let program = program("fragmented.c", "fragmented");
    for library in [None, Some(shim())] {
        let mut command = preloaded(&program, library.as_slice());
        run(command.env("MEMCUDA_SIM_MEMORY", "512MiB"));
    }
}

#[test]
fn memory_is_pooled_again_once_the_current_memory_pool_was_destroyed() {
    let program = program("own_pool.c", "own_pool");
    run(&mut preloaded(program, &[shim()]));
}

#[test]
fn a_free_waits_for_the_device_unless_it_is_told_not_to() {
    let program = program("waits.c", "waits");
    for (how, expected) in [
        ("auto", "waited"),
        ("sync", "waited"),
        ("ordered", "at once"),
    ] {
        let (out, _) = said(preloaded(&program, &[shim()]).env("MEMCUDA_FREE", how));
        assert_eq!(out.trim_end(), expected, "{how}");
    }
}

#[test]
fn a_first_allocation_of_rows_waits_for_nothing() {
    let program = program("first_rows.c", "first_rows");
    run(&mut preloaded(program, &[shim()]));
}

/// Many times: on few cores it is seldom that two threads ask at one moment.
#[test]
fn what_first_rows_cost_is_given_back_whoever_asks_at_once() {
    let program = program("first_rows.c", "rows_at_once");
    for _ in 0..20 {
        let mut command = preloaded(&program, &[shim()]);
        run(command.arg("at-once").env("MEMCUDA_SIM_DEVICES", "8"));
    }
}

#[test]
fn what_first_rows_cost_ends_with_its_context() {
    let program = program("first_rows.c", "rows_over_a_reset");
    run(preloaded(program, &[shim()]).arg("over-a-reset"));
}

#[test]
fn threads_allocate_at_once() {
    let program = program("threads.c", "threads");
    run(&mut preloaded(program, &[shim()]));
}

/// As under WSL2: what network cards may reach is made and mapped, and not opened.
#[test]
fn memory_is_pooled_where_handles_for_network_cards_cannot_be_opened() {
    let mut command = preloaded(program("waits.c", "closed"), &[shim()]);
    command.env("MEMCUDA_SIM_LACKS", "rdma-access");
    let (_, log) = said(&mut command);
    assert!(!log.contains("plain driver"), "{log}");
    // What is tried before the first finds a full device: it is not known yet then.
    said(command.env("MEMCUDA_SIM_FAIL", "cuMemCreate@1=2"));
}

#[test]
fn each_caller_reaches_its_own_runtime() {
    // A second runtime: the same code under another name of the same length.
    let first = simulator().join("libcudart.so.13");
    let mut bytes = std::fs::read(first).unwrap();
    let (old, new) = (b"libcudart.so.13", b"libcudart.so.98");
    while let Some(at) = bytes.windows(old.len()).position(|w| w == old) {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    std::fs::write(scratch().join("libcudart.so.98"), bytes).unwrap();
    let user = |runtime: &str, directory: &str, name: &str| {
        let directory = format!("-L{directory}");
        let runtime = format!("-l:{runtime}");
        compile(
            "runtime_user.c",
            name,
            &["-shared", "-fPIC", &directory, &runtime],
        )
    };
    let one = user(
        "libcudart.so.13",
        simulator().to_str().unwrap(),
        "libone.so",
    );
    let two = user("libcudart.so.98", scratch().to_str().unwrap(), "libtwo.so");
    let loose = compile(
        "runtime_user.c",
        "libloose.so",
        &["-shared", "-fPIC", "-Wl,-z,lazy"],
    );
    let program = compile("runtimes.c", "runtimes", &["-ldl"]);
    let search = std::env::join_paths([simulator(), scratch().to_owned()]).unwrap();
    let mut command = preloaded(program, &[shim()]);
    command
        .env("LD_LIBRARY_PATH", search)
        .args([one, two, loose]);
    let (_, log) = said(command.env("MEMCUDA_LOG", "debug"));
    for runtime in ["libcudart.so.13", "libcudart.so.98"] {
        let route = format!("route: cuMemAlloc_v2 by cuGetProcAddress from {runtime}");
        assert!(log.contains(&route), "{log}");
    }
}

/// So many that not every one can have an entry point of its own.
#[test]
fn each_of_many_callers_reaches_its_own_runtime() {
    let renamed = |from: &Path, number: usize, to: &Path| {
        let (old, new) = (b"libcudart.so.13", format!("libcudart.so.{number}"));
        let mut bytes = std::fs::read(from).unwrap();
        while let Some(at) = bytes.windows(old.len()).position(|w| w == old) {
            bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
        }
        std::fs::write(to, bytes).unwrap();
    };
    let directory = format!("-L{}", simulator().display());
    let runtime = ["-shared", "-fPIC", &directory, "-l:libcudart.so.13"];
    let user = compile("runtime_user.c", "libuser.so", &runtime);
    let numbers = 40..80;
    let users: Vec<PathBuf> = numbers
        .map(|number| {
            let own = scratch().join(format!("libcudart.so.{number}"));
            renamed(&simulator().join("libcudart.so.13"), number, &own);
            let its = scratch().join(format!("libuser{number}.so"));
            renamed(&user, number, &its);
            its
        })
        .collect();
    let program = compile("many.c", "many", &[&directory, "-l:libcuda.so.1", "-ldl"]);
    let search = std::env::join_paths([simulator(), scratch().to_owned()]).unwrap();
    let mut command = preloaded(program, &[shim()]);
    command.env("LD_LIBRARY_PATH", search).args(users);
    let (out, log) = said(&mut command);
    assert_eq!((out.as_str(), log.as_str()), ("", ""));
}

#[test]
fn other_preloaded_libraries_work_before_and_after() {
    let program = program("interposed.c", "interposed");
    let hooks = compile("interposer.c", "libhooks.so", &["-shared", "-fPIC", "-ldl"]);
    run(preloaded(&program, &[shim(), hooks.clone()]).arg("first"));
    run(preloaded(&program, &[hooks, shim()]).arg("first"));
}

#[test]
fn a_librarys_calls_reach_other_preloaded_libraries_before_and_after() {
    let directory = format!("-L{}", simulator().display());
    let runtime = ["-shared", "-fPIC", &directory, "-l:libcudart.so.13"];
    let user = compile("runtime_user.c", "libthrough.so", &runtime);
    let program = compile("through.c", "through", &["-ldl"]);
    let hooks = compile(
        "interposer.c",
        "libbetween.so",
        &["-shared", "-fPIC", "-ldl"],
    );
    for libraries in [
        vec![hooks.clone()],
        vec![shim(), hooks.clone()],
        vec![hooks, shim()],
    ] {
        let (out, log) = said(preloaded(&program, &libraries).arg(&user));
        assert_eq!((out.as_str(), log.as_str()), ("1\n", ""), "{libraries:?}");
    }
}

#[test]
fn a_sanitizer_that_begins_is_asked_for_nothing() {
    let program = program("whose.c", "whose-late");
    let late = compile("late.c", "liblate.so", &["-shared", "-fPIC", "-ldl"]);
    for order in [[shim(), late.clone()], [late, shim()]] {
        let (out, log) = said(&mut preloaded(&program, &order));
        assert_eq!((out.as_str(), log.as_str()), ("pool\npool\n", ""));
    }
}

#[test]
fn a_leak_checker_knows_the_librarys_thread() {
    let directory = format!("-L{}", simulator().display());
    let libraries = ["-l:libcudart.so.13", "-l:libcuda.so.1", "-ldl"];
    let checked = ["-fsanitize=address", &directory];
    let program = compile(
        "whose.c",
        "whose-checked",
        &[&checked[..], &libraries].concat(),
    );
    let runtime = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output();
    let runtime = String::from_utf8(runtime.unwrap().stdout).unwrap();
    let both = [PathBuf::from(runtime.trim_end()), shim()];
    let (out, log) = said(&mut preloaded(&program, &both));
    assert_eq!((out.as_str(), log.as_str()), ("pool\npool\n", ""));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn other_dlsym_interposers_work_before_and_after() {
    let program = program("interposed.c", "interposed-dlsym");
    let arguments = ["-shared", "-fPIC", "-DWITH_DLSYM", "-ldl"];
    let hooks = compile("interposer.c", "libdlsym.so", &arguments);
    run(preloaded(&program, &[shim(), hooks.clone()]).arg("first"));
    run(preloaded(&program, &[hooks, shim()]).arg("past"));
}

#[test]
fn a_fork_before_and_after_the_start_harms_nobody() {
    let program = program("fork.c", "fork");
    run(&mut preloaded(program, &[shim()]));
}

/// The old driver, in a directory of its own, and the program linked to it. What is in
/// `before` of that directory is found before the system's own.
fn on_an_old_driver(name: &str, defined: &[&str]) -> (String, String) {
    let directory = scratch().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let soname = "-Wl,-soname,libcuda.so.1";
    let arguments = [&["-shared", "-fPIC", soname], defined].concat();
    compile("old_driver.c", &format!("{name}/libcuda.so.1"), &arguments);
    let search = format!("-L{}", directory.display());
    let arguments = [
        "-Wl,--unresolved-symbols=ignore-all",
        &search,
        "-l:libcuda.so.1",
        "-ldl",
    ];
    let program = compile("on_old_driver.c", &format!("{name}/old"), &arguments);
    let search = std::env::join_paths([directory.join("before"), directory]).unwrap();
    said(preloaded(program, &[shim()]).env("LD_LIBRARY_PATH", search))
}

/// What a panic needs is asked for first.
#[test]
fn without_what_a_panic_needs_everything_is_the_drivers() {
    let before = scratch().join("broken-unwinder/before");
    std::fs::create_dir_all(&before).unwrap();
    std::fs::write(before.join("libgcc_s.so.1"), "no library").unwrap();
    let (out, log) = on_an_old_driver("broken-unwinder", &[]);
    assert_eq!(out, "even\n");
    let line = "memcuda: error: libgcc_s.so.1 cannot be loaded; running on the plain driver\n";
    assert_eq!(log, line);
}

#[test]
fn an_old_driver_is_said_once_and_left_alone() {
    let (out, log) = on_an_old_driver("old-driver", &[]);
    assert_eq!(out, "even\n");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.contains("this driver has no cu") && log.contains("plain driver"),
        "{log}"
    );
}

#[test]
fn a_driver_that_finds_the_librarys_functions_for_its_own_is_known_by_them() {
    let (out, _) = on_an_old_driver("open-driver", &["-DOPEN"]);
    assert_eq!(out, "even\n");
}

/// As one that passes on to another driver's.
#[test]
fn a_driver_that_looks_its_own_functions_up_while_it_starts_is_not_called_for_that() {
    let (out, _) = on_an_old_driver("starting-driver", &["-DSTARTS"]);
    assert_eq!(out, "even\n");
}

#[test]
fn a_driver_whose_lookups_differ_is_served_by_name() {
    let (out, _) = on_an_old_driver("odd-driver", &["-DODD"]);
    assert_eq!(out, "odd\n");
}

#[test]
fn without_a_driver_none_is_found() {
    let program = compile("no_driver.c", "no_driver", &["-ldl", "-rdynamic"]);
    let mut command = preloaded(program, &[shim()]);
    let (out, log) = said(command.env_remove("LD_LIBRARY_PATH"));
    assert_eq!((out.as_str(), log.as_str()), ("", ""));
}
