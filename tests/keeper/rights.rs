//! Other users at the socket. Threads of this test become them, which only root
//! can do.

use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use memcuda::share::client::{Client, Error};
use memcuda::share::protocol::{Code, Generation, Mode, Packet, Persist, Request};
use memcuda::share::wire;
use rustix::process::{Gid, Resource, Rlimit, Signal, Uid, getrlimit, setrlimit};

use crate::faults::introduced_with;
use crate::requests::*;
use crate::support::*;

pub const READER: u32 = 42001;
pub const MAKER: u32 = 42002;
const STRANGER: u32 = 42003;
pub const GROUP: u32 = 42100;
const OTHER_GROUP: u32 = 42101;

pub const RULES: &str = r#"
[[access]]
names = "weights/*"
users = [42001]
groups = [42101]
allow = ["open"]

[[access]]
names = "tmp/*"
users = [42002]
allow = ["open", "write", "create"]
quota = "8KiB"
"#;

/// Does this as another user, in a thread that ends with it. All of them are in
/// the socket's group.
pub fn as_user<T: Send>(uid: u32, gid: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid, group) = (Uid::from_raw(uid), Gid::from_raw(gid), Gid::from_raw(GROUP));
            rustix::thread::set_thread_groups(&[group]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

/// Can this test be several users? Where it can, a keeper of it has a limit of open files
/// that a test reaches.
pub fn can_be_several() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_possible_or_left_out(is_root, "to be several users") {
        return false;
    }
    have_many_files();
    true
}

/// Lets this test, and a keeper of it, have many files open, and not so many that none
/// reaches the limit.
pub fn have_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let few = limit.maximum.map_or(20_000, |most| most.min(20_000));
    let maximum = Some(few);
    let current = maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// A keeper that the group comes to; `None`, said aloud, where a person wants
/// these tests left out.
pub fn keeper(rules: &str) -> Option<(Keeper, PathBuf)> {
    keeper_by(&[], rules)
}

/// Puts words in front of a command.
pub fn start_by(starter: &[&str], command: &mut Command) {
    let [program, arguments @ ..] = starter else {
        return;
    };
    let mut started = Command::new(program);
    started.args(arguments).arg(command.get_program());
    started.args(command.get_args()).stdin(Stdio::null());
    for (variable, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
        started.env_remove(variable);
    }
    *command = started;
}

/// The same, started by these words.
pub fn keeper_by(starter: &[&str], rules: &str) -> Option<(Keeper, PathBuf)> {
    if !can_be_several() {
        return None;
    }
    let keeper = Keeper::run(|command, directory| {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = directory.join("rules.toml");
        std::fs::write(&file, rules).unwrap();
        command.args(["--group", &GROUP.to_string(), "--rules"]);
        start_by(starter, command.arg(file));
    });
    let rules = keeper.directory.path().join("rules.toml");
    Some((keeper, rules))
}

fn message<T>(result: Result<T, Error>) -> (Code, String) {
    match result {
        Err(Error::Refused(code, message)) => (code, message),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn the_socket_is_the_groups_and_a_stranger_learns_nothing() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let it = std::fs::metadata(&socket).unwrap();
    assert_eq!((it.mode() & 0o777, it.gid()), (0o660, GROUP));
    let directory = std::fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!((directory.mode() & 0o777, directory.gid()), (0o750, GROUP));
    let mut own = keeper.client();
    let generation = make(&mut own, "weights/a", b"").unwrap();
    let leases = [lease(generation, 1)];
    let refused = as_user(STRANGER, STRANGER, || {
        message(Client::connect(&socket, 1, "stranger", &leases).map(drop))
    });
    assert_eq!(refused.0, Code::Denied);
    assert!(!refused.1.contains("weights"), "{}", refused.1);
    keeper.settle("a stranger holds something", |status| {
        status.references == 1
    });
}

#[test]
fn a_name_without_a_right_to_it_is_not_there() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let mut own = keeper.client();
    let secret = make(&mut own, "secret", b"").unwrap();
    let weights = make(&mut own, "weights/a", b"open").unwrap();
    let exported = Generation([5; 16]);
    export(&mut own, exported);
    let look = || {
        let mut client = client(&socket);
        has(&mut client, "weights/a", b"open");
        // Who may only open it ends nobody's writing.
        let seal = Request::Seal {
            generation: weights,
        };
        assert_eq!(code(client.call(seal, &[])), Code::Denied);
        release(&mut client, weights);
        // It is there, and not there: the same answer.
        let there = message(attach(&mut client, "secret"));
        let not = message(attach(&mut client, "terces"));
        assert_eq!(there.0, Code::NotFound);
        assert_eq!(there.1.replace("secret", "terces"), not.1);
        for generation in [secret, exported, Generation([6; 16])] {
            for request in [
                Request::Import { generation },
                Request::Timeline { generation },
                Request::Parts {
                    generation,
                    from: 0,
                },
                Request::Seal { generation },
            ] {
                assert_eq!(code(client.call(request, &[])), Code::NotFound);
            }
        }
        for mode in [Mode::Create, Mode::CreateOrAttach] {
            let mut make = |name| message(client.call(open(name, mode, 4096), &[]).map(drop));
            let (there, not) = (make("secret"), make("terces"));
            assert_eq!(there.0, Code::Denied);
            assert_eq!(there.1.replace("secret", "terces"), not.1);
        }
        for (request, refused) in [
            (
                Request::Show {
                    name: name("secret"),
                },
                Code::NotFound,
            ),
            (delete("secret"), Code::NotFound),
            (
                Request::Persist {
                    name: name("weights/a"),
                    persist: Persist::Yes,
                },
                Code::Denied,
            ),
            (delete("weights/a"), Code::Denied),
            (
                Request::Open {
                    name: name("weights/a"),
                    mode: Mode::Attach,
                    spec: spec(0),
                    write: true,
                    hidden: false,
                },
                Code::Denied,
            ),
            // A handle is memory to be written.
            (
                Request::Import {
                    generation: weights,
                },
                Code::Denied,
            ),
            (open("weights/b", Mode::Create, 1), Code::Denied),
            (Request::Status, Code::Denied),
            (Request::Stop { force: true }, Code::Denied),
            (Request::Restart, Code::Denied),
            (
                Request::Collect {
                    dry: false,
                    kept: true,
                },
                Code::Denied,
            ),
        ] {
            assert_eq!(code(client.call(request, &[])), refused);
        }
        let listed = list(&mut client, true);
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name, Some(name("weights/a")));
        // Leases that it never had are not to be had by claiming them.
        let claimed = [secret, exported].map(|generation| lease(generation, 1));
        let (_client, lost) = connect(&socket, &claimed).unwrap();
        assert_eq!(lost, [secret, exported]);
    };
    as_user(READER, READER, look);
    // By its group, not by its user.
    as_user(STRANGER, OTHER_GROUP, look);
    // Sealed, it is read by its handle, too.
    let seal = Request::Seal {
        generation: weights,
    };
    own.call(seal, &[]).unwrap();
    as_user(READER, READER, || {
        let import = Request::Import {
            generation: weights,
        };
        client(&socket).call(import, &[]).unwrap();
    });
}

/// Nobody holds it: what lets it go sooner frees it.
#[test]
fn what_somebody_else_made_lives_no_shorter_without_a_right_to_delete() {
    let Some((keeper, rules)) = keeper(RULES) else {
        return;
    };
    let mut own = keeper.client();
    let held = make(&mut own, "tmp/a", b"").unwrap();
    persist(&mut own, "tmp/a", Persist::Yes);
    release(&mut own, held);
    let socket = keeper.socket();
    let far = u64::MAX - 1;
    let with = |persist| {
        let name = name("tmp/a");
        Request::Persist { name, persist }
    };
    as_user(MAKER, MAKER, || {
        let mut client = client(&socket);
        for shorter in [Persist::No, Persist::Until(1), Persist::Until(far)] {
            assert_eq!(code(client.call(with(shorter), &[])), Code::Denied);
        }
        client.call(with(Persist::Yes), &[]).unwrap();
        // Its own is its own.
        make(&mut client, "tmp/b", b"").unwrap();
        persist(&mut client, "tmp/b", Persist::Yes);
        persist(&mut client, "tmp/b", Persist::No);
    });
    persist(&mut own, "tmp/a", Persist::Until(far));
    as_user(MAKER, MAKER, || {
        let mut client = client(&socket);
        let shorter = with(Persist::Until(far - 1));
        assert_eq!(code(client.call(shorter, &[])), Code::Denied);
        client.call(with(Persist::Yes), &[]).unwrap();
    });
    std::fs::write(&rules, RULES.replace(r#""write", "create""#, r#""delete""#)).unwrap();
    signal(keeper.status().pid, Signal::HUP);
    as_user(MAKER, MAKER, || {
        let mut client = client(&socket);
        until("the rules are read", || {
            client.call(with(Persist::No), &[]).is_ok()
        });
    });
    assert_eq!(keeper.status().names, 0);
}

#[test]
fn a_quota_counts_what_a_user_made_until_it_is_gone() {
    let Some((keeper, rules)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    as_user(MAKER, MAKER, || {
        let mut client = client(&socket);
        let first = make(&mut client, "tmp/a", b"").unwrap();
        make(&mut client, "tmp/b", b"").unwrap();
        let (refused, message) = message(make(&mut client, "tmp/c", b""));
        assert_eq!(refused, Code::Quota);
        assert!(message.contains("8.0 KiB"), "{message}");
        release(&mut client, first);
        let generation = begin(&mut client, "tmp/c").unwrap();
        // What is physically there counts, not what was asked for.
        let (much, file) = (commit_of(generation, 8192), memory(b"", 8192));
        assert_eq!(code(client.call(much, &[file.as_fd()])), Code::Quota);
        commit(&mut client, generation, b"").unwrap();
        // Said again, after an answer was lost, it counts once.
        commit(&mut client, generation, b"").unwrap();
        // Its own it may delete, without a right to delete.
        client.call(delete("tmp/c"), &[]).unwrap();
        persist(&mut client, "tmp/b", Persist::Yes);
    });
    // It counts after a restart of the keeper, too, and the rules are read anew.
    keeper.kill(keeper.status().pid);
    keeper.settle("references stay", |status| status.references == 0);
    as_user(MAKER, MAKER, || {
        let mut client = client(&socket);
        make(&mut client, "tmp/d", b"").unwrap();
        assert_eq!(code(make(&mut client, "tmp/e", b"")), Code::Quota);
    });
    // With rules that are none it goes on, for its own user; then for all again.
    std::fs::write(&rules, "nonsense").unwrap();
    keeper.kill(keeper.status().pid);
    let refused = as_user(MAKER, MAKER, || {
        wait_for("a keeper", || {
            match Client::connect(&socket, 1, "test", &[]) {
                Err(Error::Refused(code, _)) => Some(code),
                Err(_) => None,
                Ok(_) => panic!("let in without a rule"),
            }
        })
    });
    assert_eq!(refused, Code::Denied);
    assert_eq!(keeper.status().names, 1);
    std::fs::write(rules, RULES.replace("8KiB", "12KiB")).unwrap();
    signal(keeper.status().pid, Signal::HUP);
    as_user(MAKER, MAKER, || {
        let (mut client, _) = wait_for("the new rules", || connect(&socket, &[]));
        make(&mut client, "tmp/d", b"").unwrap();
        wait_for("room", || make(&mut client, "tmp/e", b"").ok());
        assert_eq!(code(make(&mut client, "tmp/f", b"")), Code::Quota);
    });
}

#[test]
fn what_goes_while_the_rules_are_read_again_is_not_taken_off_twice() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let socket = keeper.socket();
    let mut maker = as_user(MAKER, MAKER, || client(&socket));
    let first = make(&mut maker, "tmp/a", b"").unwrap();
    make(&mut maker, "tmp/b", b"").unwrap();
    let leases = [lease(first, 1)];
    // A raw one says something without waiting for the answer.
    let other = as_user(MAKER, MAKER, || introduced_with(&keeper, &leases));
    release(&mut maker, first);
    let pid = keeper.status().pid;
    // It hears of both in one turn.
    stop(pid);
    let body = Request::Release { generation: first };
    wire::send(&other, &Packet { number: 2, body }, &[]).unwrap();
    signal(pid, Signal::HUP);
    signal(pid, Signal::CONT);
    keeper.settle("it is not released", |status| status.references == 1);
    make(&mut maker, "tmp/c", b"").unwrap();
    assert_eq!(code(make(&mut maker, "tmp/d", b"")), Code::Quota);
}

#[test]
fn what_somebody_made_it_may_delete_when_it_has_no_right_any_more() {
    let Some((keeper, rules)) = keeper(RULES) else {
        return;
    };
    let mut maker = as_user(MAKER, MAKER, || client(&keeper.socket()));
    make(&mut maker, "tmp/a", b"").unwrap();
    persist(&mut maker, "tmp/a", Persist::Yes);
    std::fs::write(rules, RULES.replace("tmp/*", "else/*")).unwrap();
    signal(keeper.status().pid, Signal::HUP);
    until("the rules are read", || begin(&mut maker, "tmp/b").is_err());
    maker.call(delete("tmp/a"), &[]).unwrap();
}
