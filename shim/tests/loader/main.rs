//! How programs load libraries, under LD_PRELOAD and over the simulated GPU;
//! and which glibc can load this one.

mod hears;
mod many;
#[path = "../support/mod.rs"]
mod support;
mod ucx;
mod writes;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{compile, preloaded, run, said, scratch, shim, simulator};

const LIBRARY: [&str; 3] = ["-shared", "-fPIC", "-ldl"];

/// The program that loads plugins, and the plugin, under a name of the test's.
fn plugin(test: &str) -> (PathBuf, PathBuf) {
    let directory = format!("-L{}", simulator().display());
    let driver = [directory.as_str(), "-l:libcuda.so.1"];
    let plugin = compile(
        "plugin.c",
        &format!("lib{test}.so"),
        &[&LIBRARY[..], &driver].concat(),
    );
    let program = compile("loads.c", test, &["-ldl", "-rdynamic"]);
    (program, plugin)
}

/// What the program said, with these libraries preloaded.
fn loads(test: &str, ways: &[&str], settings: &[(&str, &str)]) -> (String, String) {
    let (program, plugin) = plugin(test);
    let mut command = preloaded(program, &[shim()]);
    command.arg(plugin).args(ways);
    said(command.envs(settings.iter().copied()))
}

#[test]
fn libraries_are_served_however_they_are_loaded() {
    let ways = ["local", "global", "deepbind", "base"];
    let (out, log) = loads("every-way", &ways, &[]);
    assert_eq!(
        (out.matches("linked 1, looked up 1").count(), log.as_str()),
        (ways.len(), ""),
        "{out}"
    );
}

#[test]
fn a_library_between_the_segments_of_another_one_is_not_taken_for_that() {
    let (_, plugin) = plugin("within");
    let far_apart = [&LIBRARY[..], &["-Wl,-z,max-page-size=0x10000000"]].concat();
    let wide = compile("hole.c", "libwide.so", &far_apart);
    let program = compile("hole.c", "hole", &["-DPROGRAM", "-ldl"]);
    let mut command = preloaded(program, &[shim()]);
    let (out, log) = said(command.args([wide, plugin]));
    let served = "within 1, linked 1, looked up 1\n";
    assert_eq!((out.as_str(), log.as_str()), (served, ""));
}

#[test]
fn deepbind_is_taken_out_and_said_once() {
    // Before CUDA is started, and after it.
    for (first, value) in [("deepbind", " strip "), ("local", "")] {
        let ways = [first, "deepbind", "base"];
        let settings = [("MEMCUDA_LOG", "info"), ("MEMCUDA_DEEPBIND", value)];
        let (out, log) = loads("deep", &ways, &settings);
        assert_eq!(out.matches("linked 1, looked up 1\n").count(), 3, "{out}");
        assert_eq!(log.matches("RTLD_DEEPBIND").count(), 1, "{log}");
    }
}

#[test]
fn deepbind_is_kept_where_that_is_asked_for() {
    for setting in [("MEMCUDA_DEEPBIND", "keep"), ("MEMCUDA_DISABLE", "1")] {
        let (out, log) = loads("kept", &["deepbind", "base"], &[setting]);
        let past = "linked 0, looked up 0, past it\n";
        assert_eq!(
            (out.matches(past).count(), log.as_str()),
            (2, ""),
            "{setting:?}: {out}"
        );
    }
}

/// Of the pool it would see nothing, and some of the driver's functions before its own start.
#[test]
fn who_stands_in_for_the_driver_behind_the_library_keeps_its_limit() {
    let program = support::program("limited.c", "limited");
    let limiter = compile("limiter.c", "liblimiter.so", &LIBRARY);
    for (libraries, count, lines) in [
        (vec![shim()], "16\n", 0),
        (vec![limiter.clone()], "4\n", 0),
        (vec![shim(), limiter.clone()], "4\n", 1),
        (vec![limiter, shim()], "4\n", 0),
    ] {
        for way in ["linked", "runtime"] {
            let mut command = preloaded(&program, &libraries);
            command.env("MEMCUDA_SIM_MEMORY", "4GiB").arg(way);
            let (out, log) = said(&mut command);
            let told = log
                .matches("liblimiter.so stands in for the driver behind this library; running on that and the plain driver")
                .count();
            let case = format!("{libraries:?} {way}: {log}");
            assert_eq!(
                (out.as_str(), told, log.lines().count()),
                (count, lines, lines),
                "{case}"
            );
        }
    }
}

/// Half of its memory would be the pool's, and the other half's functions would not know it.
#[test]
fn a_program_of_which_another_librarys_dlsym_leads_half_past_the_library_is_left_alone() {
    let program = support::program("both.c", "both");
    let past = compile("past.c", "libpast.so", &LIBRARY);
    for (libraries, lines) in [
        (vec![past.clone()], 0),
        (vec![past.clone(), shim()], 1),
        (vec![shim(), past.clone()], 0),
    ] {
        let (out, log) = said(&mut preloaded(&program, &libraries));
        let told = log
            .matches("libpast.so comes before this library, and its dlsym leads past it; running on the plain driver")
            .count();
        let case = format!("{libraries:?}: {log}");
        assert_eq!(
            (out.as_str(), told, log.lines().count()),
            ("same\n", lines, lines),
            "{case}"
        );
    }
}

/// UCX redirects references by name where it is told to: the library's own would make it hand
/// out UCX's functions, which call what it hands out.
#[test]
fn no_reference_of_the_library_to_its_own_functions_can_be_redirected() {
    let list = Command::new("readelf").arg("-rW").arg(shim()).output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    assert!(list.contains("R_"), "{list}");
    let exported = include_str!("../../exports.txt").lines();
    let named: Vec<_> = exported
        .filter(|name| list.split_whitespace().any(|word| word == *name))
        .collect();
    assert!(named.is_empty(), "{named:?}");
}

#[test]
fn a_namespace_of_its_own_is_out_of_reach_and_said_once() {
    for ways in [
        ["namespace", "namespace", "local"],
        ["local", "namespace", "namespace"],
    ] {
        let (out, log) = loads("namespace", &ways, &[]);
        let times = |line: &str| out.matches(line).count();
        assert_eq!(times("namespace: linked 0, looked up 0"), 2, "{out}");
        assert_eq!(times("local: linked 1, looked up 1"), 1, "{out}");
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(
            log.contains("dlmopen") && log.contains("libnamespace.so"),
            "{log}"
        );
    }
    // Where CUDA is started nowhere else, nothing is said.
    assert_eq!(loads("namespace", &["namespace"], &[]).1, "");
}

/// The loader holds its lock while a constructor or a destructor runs.
#[test]
fn threads_that_constructors_and_destructors_wait_for_get_memory() {
    let directory = format!("-L{}", simulator().display());
    let runtime = [directory.as_str(), "-l:libcudart.so.13"];
    let build = |name: &str, arguments: &[&[&str]]| {
        let driver = ["-l:libcuda.so.1", "-ldl", "-lpthread"];
        let all = [arguments.concat().as_slice(), &runtime[..1], &driver].concat();
        compile("joining.c", name, &all)
    };
    let needed = ["-Wl,--no-as-needed"];
    let middle = build(
        "libmiddle.so",
        &[&LIBRARY, &["-DMIDDLE"], &needed, &runtime],
    );
    // It has no name but its path.
    let middle = [middle.to_str().unwrap()];
    for (number, needs) in [&runtime[..], &middle].into_iter().enumerate() {
        let name = format!("libjoining{number}.so");
        let library = build(&name, &[&LIBRARY, &needed, needs]);
        let with_it = if number == 0 { &runtime[..] } else { &[] };
        let program = build("joining", &[&["-DPROGRAM"], with_it]);
        let mut bare = preloaded(&program, &[]);
        let (bare, _) = said(bare.env_remove("LD_PRELOAD").arg(&library));
        let recording = scratch().join("joining.trace");
        for stacks in ["none", "c"] {
            let mut command = preloaded(&program, &[shim()]);
            command.env("MEMCUDA_TRACE", &recording);
            let (out, log) = said(command.env("MEMCUDA_TRACE_STACKS", stacks).arg(&library));
            let expected = (bare.as_str(), "");
            assert_eq!(
                (out.as_str(), log.as_str()),
                expected,
                "{needs:?}, {stacks}"
            );
        }
    }
}

/// The first question for a variable that the process has.
#[test]
fn a_thread_that_a_constructor_waits_for_is_told_a_variable() {
    let library = compile("asking.c", "libasking.so", &LIBRARY);
    let program = compile("asking.c", "asking", &["-DPROGRAM", "-ldl"]);
    let (out, log) = said(preloaded(program, &[shim()]).arg(library));
    assert_eq!((out.as_str(), log.as_str()), ("told\n", ""));
}

/// As TensorFlow: its own functions of the driver's names would load it, without a driver
/// they answer in their own way.
#[test]
fn a_library_that_loads_the_driver_when_it_is_called_does() {
    let library = compile("lazy.c", "liblazy.so", &LIBRARY);
    let program = compile("calls.c", "calls", &[library.to_str().unwrap()]);
    let (out, log) = said(
        preloaded(&program, &[shim()])
            .env("MEMCUDA_LOG", "debug")
            .env("MEMCUDA_POLICY", "direct"),
    );
    assert_eq!(out, "0 0 0 0\n", "{log}");
    assert!(log.contains("cuMemAlloc"), "{log}");
    let (out, _) = said(preloaded(&program, &[shim()]).env("LD_LIBRARY_PATH", scratch()));
    assert_eq!(out, "303 303 303 303\n");
}

/// Where a module brings a function along that stands in for a runtime's.
#[test]
fn what_stands_in_for_a_runtime_is_reached_where_nobody_has_one() {
    let build = |name: &str, arguments: &[&str]| {
        compile("standing_in.c", name, &[&LIBRARY, arguments].concat())
    };
    let program = compile("standing_in.c", "standing_in", &["-ldl"]);
    // What it compares with what it finds is what everybody finds, or its own.
    for bound in ["-Wl,-z,lazy", "-Wl,-Bsymbolic", "-Wl,--hash-style=sysv"] {
        let stub = build("libcudart_stub.so", &["-DSTUB", "-O0", bound]);
        let user = build("libuser.so", &["-DUSER", stub.to_str().unwrap()]);
        for runtime in ["first", "later", "none"] {
            let mut bare = preloaded(&program, &[]);
            let bare = said(bare.env_remove("LD_PRELOAD").arg(&user).arg(runtime));
            let with = said(preloaded(&program, &[shim()]).arg(&user).arg(runtime));
            assert_eq!(with, bare, "{bound} {runtime}");
            let stubbed = ("999\n".to_owned(), "the stub\n".to_owned());
            assert_eq!(bare == stubbed, runtime == "none", "{runtime}: {bare:?}");
        }
    }
}

#[test]
fn torchs_functions_are_found_in_libraries_of_other_names() {
    let library = [&LIBRARY[..], &["-DLIBRARY"]].concat();
    let library = compile("renamed.c", "librenamed.so", &library);
    let program = compile("renamed.c", "renamed", &[library.to_str().unwrap()]);
    let (out, log) = said(&mut preloaded(&program, &[shim()]));
    assert_eq!((out.as_str(), log.as_str()), ("711 1\n", ""));
}

/// One that was built for another torch, and is not loaded without the library.
#[test]
fn a_function_of_torchs_that_nobody_has_is_told_of() {
    let built_for = [&LIBRARY[..], &["-DLIBRARY", "-Wl,-soname,libold.so.1"]].concat();
    let library = compile("renamed.c", "libfor.so", &built_for);
    let program = compile("renamed.c", "newer", &[library.to_str().unwrap()]);
    compile("neighbour.c", "libold.so.1", &LIBRARY);
    let mut command = preloaded(&program, &[shim()]);
    let output = command.env("LD_LIBRARY_PATH", scratch()).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(127), "{log}");
    assert!(
        log.contains("undefined symbol: _ZN3c1013MessageLogger"),
        "{log}"
    );
}

#[test]
fn other_dlopen_interposers_work_before_and_after() {
    let (program, plugin) = plugin("opened");
    let opener = compile("opener.c", "libopener.so", &LIBRARY);
    for libraries in [[shim(), opener.clone()], [opener, shim()]] {
        let mut command = preloaded(&program, &libraries);
        let (out, _) = said(command.arg(&plugin).args(["local", "deepbind"]));
        assert_eq!(
            out,
            "local: linked 1, looked up 1\ndeepbind: linked 1, looked up 1\n1 opened\n"
        );
    }
}

/// A program and libraries that find each other by RPATH or RUNPATH.
fn neighbours(name: &str, tags: &str) -> PathBuf {
    let at = |file: &str| format!("{name}/{file}");
    for folder in ["near", "far/deps"] {
        std::fs::create_dir_all(scratch().join(name).join(folder)).unwrap();
    }
    let path = |path: &str| format!("-Wl,{tags},-rpath,$ORIGIN/{path}");
    compile("neighbour.c", &at("near/libnear.so"), &LIBRARY);
    compile("neighbour.c", &at("far/deps/libdeep.so"), &LIBRARY);
    let deps = path("deps");
    let far = [&LIBRARY[..], &[&deps]].concat();
    compile("neighbour.c", &at("far/libfar.so"), &far);
    compile("search.c", &at("search"), &["-ldl", &path("near")])
}

#[test]
fn the_loader_answers_as_without_the_library() {
    for tags in ["--enable-new-dtags", "--disable-new-dtags"] {
        let program = neighbours(&format!("search{tags}"), tags);
        for flags in ["plain", "deepbind"] {
            let mut bare = preloaded(&program, &[]);
            let (bare, _) = said(bare.env_remove("LD_PRELOAD").arg(flags));
            let found = |what: &str| bare.contains(&format!("{what}: found, no error"));
            assert!(
                found("by the program's path") && found("its neighbour by its path"),
                "{bare}"
            );
            let (with, log) = said(preloaded(&program, &[shim()]).arg(flags));
            assert_eq!((with, log), (bare, String::new()), "{tags} {flags}");
        }
    }
}

#[test]
fn the_library_exports_what_the_list_says() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("check-exports.sh");
    run(Command::new(&check).arg(shim()));
    // The check can fail: this library exports something else.
    let other = compile("neighbour.c", "libother.so", &LIBRARY);
    let refused = Command::new(check).arg(other).output().unwrap();
    assert!(!refused.status.success());
}

#[test]
fn an_old_glibc_is_enough() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("check-floor.sh");
    run(Command::new(&check)
        .arg(shim())
        .arg(simulator().join("libcuda.so.1")));
    // The check can fail: this program asks for a function of glibc 2.34.
    let new = compile("neighbour.c", "libnew.so", &LIBRARY);
    assert!(!Command::new(check).arg(new).status().unwrap().success());
}

/// Libc answers such a question by then, with no value: it has not started itself.
#[test]
fn a_library_that_chooses_by_a_variable_before_all_is_relocated_gets_libcs_answer() {
    let now = [&LIBRARY[..], &["-Wl,-z,now"]].concat();
    let library = compile("chooses.c", "libchooses.so", &now);
    let library = library.to_str().unwrap();
    let program = compile("chooses.c", "chooses", &["-DPROGRAM", library]);
    let [bare, with] = [vec![], vec![shim()]]
        .map(|libraries| said(preloaded(&program, &libraries).env("CHOICE", "special")));
    assert_eq!(with, bare);
}
