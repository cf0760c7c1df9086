//! Processes whose clock stands still, as under libfaketime.

use crate::resident::{Device, Process};
use crate::support::{compile, shim};

/// What will be idle soon never is there.
#[test]
fn nobody_waits_for_ever_where_the_clock_stands_still() {
    let still = compile("../support/still.c", "libstill.so", &["-shared", "-fPIC"]);
    let device = Device::without_management();
    let mut command = device.command();
    let both = std::env::join_paths([still, shim()]).unwrap();
    command.env("LD_PRELOAD", both);
    let (mut holder, mut starving) = (Process::start(&mut command), Process::start(&mut command));
    assert_eq!(holder.alloc("alloc 800").0, 0);
    assert_eq!(holder.say("free"), "0");
    assert_eq!(starving.alloc("alloc 500").0, 2);
}
