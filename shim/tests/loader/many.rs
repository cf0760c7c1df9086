//! Processes with many libraries that use CUDA, as stacks of extensions and programs that load
//! what they have just compiled.

use crate::LIBRARY;
use crate::support::{compile, preloaded, run, scratch, shim, simulator};

/// What the program says of so many copies, and the log.
fn many(test: &str, how: &str) -> (String, String) {
    let directory = format!("-L{}", simulator().display());
    let runtime = ["-DLIBRARY", directory.as_str(), "-l:libcudart.so.13"];
    let library = compile(
        "many.c",
        &format!("libmany-{test}.so"),
        &[&LIBRARY[..], &runtime].concat(),
    );
    let linked = [
        "-rdynamic",
        "-ldl",
        directory.as_str(),
        "-l:libcudart.so.13",
    ];
    let program = compile("many.c", test, &linked);
    let folder = scratch().join(format!("{test}-copies"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = preloaded(program, &[shim()]);
    command.arg(library).arg(folder).arg(how);
    let output = command.env("MEMCUDA_LOG", "debug").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Whether something was unloaded is told with the first file, for the runtime's function and for
/// who calls it.
#[test]
fn a_call_of_the_48th_library_looks_at_no_more_files_than_one_of_the_first() {
    assert_eq!(many("stay", "stay").0, "2\n");
}

#[test]
fn a_library_is_known_after_48_that_are_gone() {
    let (_, log) = many("go", "go");
    let last = |line: &&str| line.contains("cuMemAlloc") && line.contains("libcopy48.so");
    assert!(log.lines().find(last).is_some(), "{log}");
}

/// Whose code and length are two: one lies where the other one did, and somewhere else.
#[test]
fn plugins_that_come_again_and_again_cost_nothing_more() {
    let directory = format!("-L{}", simulator().display());
    let runtime = [directory.as_str(), "-l:libcudart.so.13"];
    let program = compile("reload.c", "reload", &[&runtime[..], &["-ldl"]].concat());
    let plugins = [("libsmall.so", "16"), ("libwide-code.so", "100000")].map(|(name, room)| {
        let room = format!("-DROOM=\"{room}\"");
        compile(
            "reloaded.c",
            name,
            &[&LIBRARY[..], &[room.as_str()], &runtime].concat(),
        )
    });
    run(preloaded(program, &[shim()]).args(plugins));
}
