//! What `include/memcuda.h` makes of programs: they start without the library, and
//! find it where it is there.

use std::process::Command;

use crate::actor::{Actor, Place, program};
use crate::{ABSENT, support};

#[test]
fn a_program_runs_without_the_library() {
    let place = Place::empty();
    let mut actor = Actor::start(&mut place.command(program(), &[]));
    assert_eq!(actor.say("version"), "0 0");
    for line in [
        "open w",
        "close 1",
        "next w 3",
        "delete w",
        "list",
        "publish 1 0",
        "seal 1",
    ] {
        assert_eq!(actor.code(line), ABSENT, "{line}");
    }
    let at = actor.malloc(4096);
    actor.free(&at);
    actor.end();
    assert_eq!(place.actor().say("version"), "1 1");
}

/// However its code is made: of a weak function that is not found while a program
/// is linked nothing is left for the loader in code that is not to be moved, unless
/// the header asks for it.
#[test]
fn it_is_found_in_c_and_in_c_plus_plus_position_independent_or_not() {
    for (language, standard) in [("c", "-std=c11"), ("c++", "-std=c++11")] {
        for moved in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
            let name = format!("present{}{}", language.len(), moved[1]);
            let program = support::scratch().join(name);
            support::run(
                Command::new("gcc")
                    .args(["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", standard])
                    .args(moved)
                    .args(["-x", language])
                    .arg(support::source("present.c"))
                    .arg("-o")
                    .arg(&program),
            );
            for (libraries, found) in [
                (vec![support::shim()], "1 unavailable\n"),
                (vec![], "0 absent\n"),
            ] {
                let (said, _) = support::said(&mut support::preloaded(&program, &libraries));
                assert_eq!(said, found, "{language} {moved:?}");
            }
        }
    }
}

/// Nothing helps there.
#[test]
fn code_of_the_large_model_is_warned_unless_it_is_position_independent() {
    for (moved, warned) in [("-fno-pie", true), ("-fPIE", false)] {
        let mut compile = Command::new("gcc");
        compile.args(["-mcmodel=large", moved, "-fsyntax-only"]);
        let done = compile.arg(support::source("present.c")).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        assert_eq!(said.contains("MEMCUDA_STRONG"), warned, "{said}");
    }
}

/// To linkers that leave out what nobody needs weak references are no need.
#[test]
fn who_links_it_needs_strong_references() {
    let beside = format!("-L{}", support::simulator().parent().unwrap().display());
    for (define, found) in [
        ("-DWEAK", "0 absent\n"),
        ("-DMEMCUDA_STRONG", "1 unavailable\n"),
    ] {
        let arguments = [define, "-Wl,--as-needed", &beside, "-lmemcuda"];
        let program = support::compile("present.c", &format!("linked{define}"), &arguments);
        let mut command = support::preloaded(program, &[]);
        command.env("LD_LIBRARY_PATH", support::shim().parent().unwrap());
        assert_eq!(support::said(&mut command).0, found, "{define}");
    }
}
