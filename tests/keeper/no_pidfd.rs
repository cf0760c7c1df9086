//! A system without descriptors of processes, or with fewer ways to ask for them: an old
//! kernel, or a filter of a container. The keeper's processes have such a filter.

use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memcuda::share::client::Client;
use memcuda::share::protocol::{Generation, Reply, Request};

use crate::requests::*;
use crate::rights::start_by;
use crate::support::*;

/// Before Linux 5.3: `pidfd_open` is no call of the system.
const NONE: &str = "none";
/// As Linux 5.3: it knows no flags, and `waitid` no descriptors.
const FEW: &str = "few";

/// Runs a program on one of them. `SO_PEERPIDFD` is known by neither.
const FILTER: &str = r#"
import ctypes, os, platform, struct, sys
getsockopt, waitid = {"x86_64": (55, 247), "aarch64": (209, 95)}[platform.machine()]
number, arguments, allow, fail = 0, (16, 24, 32), 0x7fff0000, 0x50000
invalid, missing, unknown_option = 22, 38, 92
load = lambda what: (0x20, 0, 0, what)
skip_unless = lambda value, words: (0x15, 0, words, value)
skip_if = lambda value, words: (0x15, words, 0, value)
answer = lambda what: (0x06, 0, 0, what)
pidfd_open = {
    "none": [skip_unless(434, 1), answer(fail | missing)],
    "few": [skip_unless(434, 4), load(arguments[1]), skip_if(0, 1), answer(fail | invalid), answer(allow),
            skip_unless(waitid, 4), load(arguments[0]), skip_unless(3, 1), answer(fail | invalid), answer(allow)],
}[sys.argv[1]]
words = [load(number), *pidfd_open,
    skip_unless(getsockopt, 3), load(arguments[2]), skip_unless(77, 1), answer(fail | unknown_option), answer(allow)]
program = b"".join(struct.pack("HBBI", *each) for each in words)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("words", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
filtered = libc.prctl(38, 1, 0, 0, 0) == 0 and \
    libc.prctl(22, 2, ctypes.byref(Program(len(words), program)), 0, 0) == 0
assert filtered, os.strerror(ctypes.get_errno())
os.execv(sys.argv[2], sys.argv[2:])
"#;

fn keeper_on(kernel: &str) -> Keeper {
    Keeper::run(|command, _| start_by(&["python3", "-c", FILTER, kernel], command))
}

const SOCKET: &str = "MEMCUDA_TEST_READER";
const OPENED: Generation = Generation([5; 16]);
const CLOSED: &str = "closed";

/// A process that opens what was exported, and closes its connection.
struct Reader(Child);

impl Reader {
    fn start(socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "no_pidfd::reader"])
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.lines().any(|line| line.unwrap().ends_with(CLOSED)));
        Self(child)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "a process of other tests, not a test"]
fn reader() {
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("started by a test"));
    let mut reader = client(&socket);
    let generation = OPENED;
    reader.call(Request::Import { generation }, &[]).unwrap();
    drop(reader);
    println!("{CLOSED}");
    // Until it is killed, or the test is.
    let _ = stdin().read(&mut [0]);
}

fn withdraw(exporter: &mut Client) {
    let generation = OPENED;
    let (reply, _) = exporter
        .call(Request::Withdraw { generation }, &[])
        .unwrap();
    assert_eq!(reply, Reply::Held { references: 1 });
}

/// The kernel closes the sockets of a process that dies before its devices.
#[test]
fn what_was_opened_by_handle_is_held_until_its_process_has_ended() {
    for kernel in [NONE, FEW] {
        let keeper = keeper_on(kernel);
        let mut exporter = keeper.client();
        export(&mut exporter, OPENED);
        let mut reader = Reader::start(&keeper.socket());
        keeper.settle("its connection stays", |status| status.clients == 2);
        withdraw(&mut exporter);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(exporter.events().unwrap(), [], "{kernel}");
        // Nobody waits for it yet.
        reader.0.kill().unwrap();
        until("the event", || !exporter.events().unwrap().is_empty());
    }
}

#[test]
fn so_it_is_by_the_next_keeper() {
    const LONGER_THAN_THE_UNSEEN_HAVE: Duration = Duration::from_secs(6);
    let keeper = keeper_on(NONE);
    let mut exporter = keeper.client();
    export(&mut exporter, OPENED);
    let reader = Reader::start(&keeper.socket());
    withdraw(&mut exporter);
    keeper.kill(keeper.status().pid);
    let mut exporter = keeper.client();
    std::thread::sleep(LONGER_THAN_THE_UNSEEN_HAVE);
    withdraw(&mut exporter);
    drop(reader);
    until("the event", || !exporter.events().unwrap().is_empty());
}

#[test]
fn who_lives_when_the_keeper_dies_is_not_taken_for_gone() {
    let keeper = keeper_on(NONE);
    let mut client = keeper.client();
    let held = make(&mut client, "held", b"held").unwrap();
    keeper.kill(keeper.status().pid);
    let (mut client, lost) = keeper.client_with(&[lease(held, 1)]);
    assert_eq!(lost, []);
    has(&mut client, "held", b"held");
}

#[test]
fn a_standby_that_hangs_is_replaced() {
    for kernel in [NONE, FEW] {
        replace_standby(&keeper_on(kernel));
    }
}

fn replace_standby(keeper: &Keeper) {
    let mut client = keeper.client();
    // The keeper's own child, then the parent of the next keeper.
    for is_parent in [false, true] {
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
        until("it to be waited for", || {
            is_parent || !has_number(before.standby)
        });
        keeper.kill(keeper.status().pid);
        client = keeper.client();
    }
}
