//! A recording on a file system whose calls signals interrupt.

use crate::support;
use crate::{of, read, recorded};

#[test]
fn what_a_signal_interrupts_is_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let made = support::compile("interrupted.c", "libinterrupted.so", &["-shared", "-fPIC"]);
    for setting in ["ALL", "NONE"] {
        let trace = folder.path().join(setting);
        let mut command = recorded(&trace, &["pairs", "10"]);
        let both = format!("{}:{}", support::shim().display(), made.display());
        command.env("LD_PRELOAD", both).env(setting, "1");
        let (_, stderr) = support::said(&mut command);
        assert_eq!(stderr, "", "{setting}");
        assert_eq!(of(&read(&trace).0, "alloc"), 10, "{setting}");
    }
}
