//! A system without descriptors of processes: an old kernel, or a filter of a container.
//! The keeper's processes have such a filter.

use crate::requests::*;
use crate::rights::start_by;
use crate::support::*;

/// Runs a program for which pidfd_open is no call of the system, nor SO_PEERPIDFD known.
const WITHOUT: &str = r#"
import ctypes, os, platform, struct, sys
getsockopt = {"x86_64": 55, "aarch64": 209}[platform.machine()]
number, third_argument, allow, fail = 0, 32, 0x7fff0000, 0x50000
program = b"".join(struct.pack("HBBI", *words) for words in [
    (0x20, 0, 0, number),
    (0x15, 0, 1, 434),
    (0x06, 0, 0, fail | 38),
    (0x15, 0, 3, getsockopt),
    (0x20, 0, 0, third_argument),
    (0x15, 0, 1, 77),
    (0x06, 0, 0, fail | 92),
    (0x06, 0, 0, allow),
])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("words", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
filtered = libc.prctl(38, 1, 0, 0, 0) == 0 and \
    libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)), 0, 0) == 0
assert filtered, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"#;

fn keeper() -> Keeper {
    Keeper::run(|command, _| start_by(&["python3", "-c", WITHOUT], command))
}

#[test]
fn who_lives_when_the_keeper_dies_is_not_taken_for_gone() {
    let keeper = keeper();
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    keeper.kill(keeper.status().pid);
    let (mut client, lost) = keeper.client_with(&[lease(held, 1)]);
    assert_eq!(lost, []);
    has(&mut client, "held", b"held");
}

#[test]
fn a_standby_that_hangs_is_replaced() {
    let keeper = keeper();
    let mut client = keeper.client();
    // The keeper's own child, then the parent of the next keeper.
    for _ in 0..2 {
        let before = keeper.status();
        stop(before.standby);
        make(&mut client, "a", b"").unwrap();
        client.call(delete("a"), &[]).unwrap();
        for entry in list(&mut client, true) {
            release(&mut client, entry.generation);
        }
        keeper.settle("no new standby", |status| {
            ![0, before.standby].contains(&status.standby)
        });
        until("the one that hangs to be killed", || {
            !is_alive(before.standby)
        });
        keeper.kill(keeper.status().pid);
        client = keeper.client();
    }
}
