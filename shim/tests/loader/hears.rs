//! Libraries that the program is linked to and that hear of frees by functions of the driver's
//! and the runtime's names.

use std::path::{Path, PathBuf};

use super::{LIBRARY, compile, preloaded, said, shim, simulator};

/// The library or program, linked to these in this order.
fn build(name: &str, defined: &[&str], libraries: &[&str]) -> PathBuf {
    let simulator = simulator();
    let paths = ["-L", "-Wl,-rpath-link,"].map(|path| format!("{path}{}", simulator.display()));
    let links = ["-Wl,--no-as-needed", &paths[0], &paths[1]];
    let arguments = [defined, &links, libraries, &["-ldl"]].concat();
    compile("hears.c", name, &arguments)
}

fn library(name: &str, defined: &[&str], libraries: &[&str]) -> PathBuf {
    build(name, &[&LIBRARY[..2], defined].concat(), libraries)
}

const DRIVER: &str = "-l:libcuda.so.1";
const RUNTIME: &str = "-l:libcudart.so.13";
/// Of the program, what it is not linked to itself.
const UNRESOLVED: &str = "-Wl,--unresolved-symbols=ignore-all";

/// What the program says where who hears of frees does: of those by the name that it is linked
/// to and by what is found under it, not of those by what is found in the driver.
const HEARD: &str = "directly 0 1, heard 2, refused 1\nfound 0 1, heard 4, refused 2\n\
                     in the driver 0 1, heard 4, refused 2\n";

/// What the program says without the library, and with these preloaded around it.
fn both(program: &Path, others: [&[PathBuf]; 2]) -> [(String, String); 2] {
    let [before, after] = others;
    let bare = said(&mut preloaded(program, &[before, after].concat()));
    let all = [before, &[shim()], after].concat();
    [bare, said(preloaded(program, &all).arg("pooled"))]
}

#[test]
fn who_hears_of_direct_frees_does() {
    for way in ["-DDRIVER", "-DNEXT", "-DANY"] {
        let hears = library(&format!("libhears{way}.so"), &["-DHEARS", way], &[DRIVER]);
        let path = hears.to_str().unwrap();
        let middle = format!("libmiddle{way}.so");
        let middle = library(&middle, &["-DUSER"], &[path, DRIVER, RUNTIME]);
        let program = |order: &str, libraries: &[&str]| {
            build(
                &format!("{order}{way}"),
                &["-DPROGRAM", UNRESOLVED],
                libraries,
            )
        };
        let first = program("first", &[path, DRIVER]);
        let last = program("last", &[DRIVER, path]);
        let indirect = program("indirect", &[middle.to_str().unwrap()]);
        let plain = program("plain", &[DRIVER]);
        let preloaded_too = [hears];
        for (program, others, is_heard) in [
            (&first, [&[][..], &[]], true),
            (&indirect, [&[], &[]], true),
            (&last, [&[], &[]], false),
            (&plain, [&preloaded_too, &[]], true),
            (&plain, [&[], &preloaded_too], true),
        ] {
            let [bare, with] = both(program, others);
            assert_eq!(with, bare, "{program:?} {others:?}");
            let is_so = (bare.0.as_str(), bare.1.as_str()) == (HEARD, "");
            assert_eq!(is_so, is_heard, "{program:?} {others:?}: {bare:?}");
        }
        let (turned_off, _) = said(preloaded(&first, &[shim()]).env("MEMCUDA_DISABLE", "1"));
        assert_eq!(turned_off, HEARD);
    }
}

#[test]
fn of_several_that_hear_of_direct_frees_each_does() {
    let [one, other] = ["libone.so", "libother-one.so"]
        .map(|name| library(name, &["-DHEARS", "-DNEXT"], &[DRIVER]));
    let linked = [other.to_str().unwrap(), DRIVER];
    let program = build("several", &["-DPROGRAM", UNRESOLVED], &linked);
    for others in [
        [&[][..], std::slice::from_ref(&one)],
        [std::slice::from_ref(&one), &[]],
    ] {
        let [bare, with] = both(&program, others);
        assert_eq!(with, bare);
        let each = "directly 0 1, heard 4, refused 2\nfound 0 1, heard 8, refused 4\n";
        assert!(bare.0.starts_with(each), "{bare:?}");
    }
}

/// MPICH before 4.2.3 calls what the driver has for programs of CUDA 3.
#[test]
fn what_is_refused_to_who_hears_of_it_is_freed() {
    let hears = library("libhears-old.so", &["-DHEARS", "-DOLD"], &[DRIVER]);
    let program = build(
        "old",
        &["-DPROGRAM", UNRESOLVED],
        &[hears.to_str().unwrap(), DRIVER],
    );
    let [(bare, _), (with, log)] = both(&program, [&[], &[]]);
    assert!(
        bare.starts_with("directly 201 201, heard 2, refused 2\n"),
        "{bare}"
    );
    let freed = "directly 0 1, heard 2, refused 2\nfound 0 1, heard 4, refused 4\n";
    assert!(with.starts_with(freed), "{with}");
    assert_eq!(log, "");
}

#[test]
fn a_copy_of_the_driver_for_linking_is_not_called() {
    let copy = library(
        "libcopy.so",
        &["-DHEARS", "-DOLD", "-DALLOCATES"],
        &[DRIVER],
    );
    let program = build(
        "copied",
        &["-DPROGRAM", UNRESOLVED],
        &[copy.to_str().unwrap(), DRIVER],
    );
    let (with, log) = said(preloaded(program, &[shim()]).arg("pooled"));
    let served = "directly 0 1, heard 0, refused 0\nfound 0 1, heard 0, refused 0\n";
    assert!(with.starts_with(served), "{with}");
    assert_eq!(log, "");
}

/// The program needs neither it nor a runtime, and who calls needs a runtime alone.
#[test]
fn who_hears_of_the_runtimes_frees_does_where_others_need_it() {
    for way in ["-DDRIVER", "-DNEXT", "-DANY"] {
        let needs = [DRIVER, RUNTIME];
        let hears = library(&format!("libhears-free{way}.so"), &["-DHEARS", way], &needs);
        let needs = [hears.to_str().unwrap()];
        let first = library(&format!("libneeds-it{way}.so"), &[], &needs);
        let user = library("libneeds-runtime.so", &["-DUSER"], &[RUNTIME]);
        for (order, libraries, is_heard) in [
            ("it-first", [&first, &user], true),
            ("runtime-first", [&user, &first], false),
        ] {
            let libraries = libraries.map(|library| library.to_str().unwrap());
            let unresolved = ["-DPROGRAM", "-DWITH_RUNTIME", UNRESOLVED];
            let program = build(&format!("{order}{way}"), &unresolved, &libraries);
            let [bare, with] = both(&program, [&[], &[]]);
            assert_eq!(with, bare, "{order} {way}");
            let heard = bare.0.contains("by the runtime 0, heard 5\n");
            assert_eq!(heard, is_heard, "{order} {way}: {bare:?}");
        }
    }
}

/// The loader binds each file to what was loaded for everybody before.
#[test]
fn who_hears_of_the_runtimes_frees_does_where_it_was_loaded_for_everybody() {
    let program = build("loads-them", &["-DLOADS"], &[]);
    let user = library("libloaded-user.so", &["-DUSER"], &[DRIVER, RUNTIME]);
    let user = user.display();
    let runtime = "+libcudart.so.13";
    for way in ["-DDRIVER", "-DNEXT", "-DANY"] {
        let hears = format!("libloaded{way}.so");
        let hears = library(&hears, &["-DHEARS", way], &[DRIVER, RUNTIME]);
        let needs_it = format!("libneeds-loaded{way}.so");
        let needs_it = library(&needs_it, &[], &[hears.to_str().unwrap()]);
        let (hears, needs_it) = (hears.display(), needs_it.display());
        for (files, is_heard) in [
            (format!("+{hears} {user}"), true),
            (format!("+{needs_it} {user}"), true),
            (format!("{hears} +{hears} {user}"), true),
            (format!("{hears} {user}"), false),
            (format!("{runtime} +{hears} {user}"), false),
            (format!("{user} +{hears} {user}"), false),
        ] {
            let mut bare = preloaded(&program, &[]);
            let bare = said(bare.args(files.split(' ')));
            let mut with = preloaded(&program, &[shim()]);
            assert_eq!(said(with.args(files.split(' '))), bare, "{files}");
            let heard = format!("0, heard {}\n", u8::from(is_heard));
            assert_eq!(bare, (heard, String::new()), "{files}");
        }
    }
}
