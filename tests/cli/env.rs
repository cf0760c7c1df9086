//! `memcuda env`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::{code, memcuda, objects, run, stdout};

#[test]
fn a_shell_that_evaluates_the_lines_preloads_the_library_once() {
    let command = env!("CARGO_BIN_EXE_memcuda");
    let script = format!(
        "export LD_PRELOAD=; eval \"$({command} env)\"; eval \"$({command} env)\"; printf %s \"$LD_PRELOAD\""
    );
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    let value = stdout(&shell);
    assert!(
        value.starts_with('/') && value.ends_with("/libmemcuda.so"),
        "{value}"
    );
    assert!(!value.contains(':'));
}

/// A build, a tree that is unpacked, one of `make install`, and an environment with the wheel.
#[test]
fn the_library_is_found_from_where_the_command_lies() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path().canonicalize().unwrap();
    fs::create_dir(folder.join("bin")).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_memcuda"), folder.join("bin/memcuda")).unwrap();
    for place in ["libexec/memcuda", "lib/memcuda", "lib", "bin"] {
        fs::create_dir_all(folder.join(place)).unwrap();
        let library = folder.join(place).join("libmemcuda.so");
        fs::write(&library, "").unwrap();
        let asked = Command::new(folder.join("bin/memcuda")).arg("env").output();
        let expected = format!("export LD_PRELOAD='{}'\n", library.display());
        assert_eq!(stdout(&asked.unwrap()), expected);
    }
}

#[test]
fn every_line_is_one_assignment() {
    let output = memcuda()
        .arg("env")
        .env("LD_PRELOAD", "/a b/it's.so")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1);
    assert!(text.starts_with("export LD_PRELOAD='/"), "{text}");
    assert!(text.ends_with(":/a:b/it'\\''s.so'\n"), "{text}");
}

#[test]
fn json_has_the_same_value() {
    let output = run(&["env", "--json"]);
    assert_eq!(code(&output), 0);
    let objects = objects(&output, "env");
    assert_eq!(objects[0]["variable"], "LD_PRELOAD");
    let plain = stdout(&run(&["env"]));
    assert!(plain.contains(objects[0]["value"].as_str().unwrap()));
}

#[test]
fn json_has_no_other_value_where_it_cannot_have_that() {
    let mut command = memcuda();
    let odd = OsStr::from_bytes(b"/nowhere/\xff.so");
    command.args(["env", "--json"]).env("LD_PRELOAD", odd);
    let output = command.output().unwrap();
    // The loader names it byte for byte.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is no text, as JSON needs"), "{said}");
    assert_eq!((code(&output), stdout(&output)), (2, String::new()));
}
