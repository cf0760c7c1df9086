//! The verbs on names with real keepers: one alone, and two that publish in one
//! Redis. Instead of GPU memory they keep files in memory.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use memcuda::names::{Dtype, Name};
use memcuda::share::client::Client;
use memcuda::share::protocol::{Backend, DeviceId, Mode, Persist, Reply, Request, Spec};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::redis::Redis;
use crate::{check_units, code, failed, memcuda, objects, stderr, stdout, until};

const MIB: u64 = 1 << 20;

/// A keeper, ended with the test.
struct Keeper {
    folder: tempfile::TempDir,
}

impl Keeper {
    fn start(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Self { folder };
        let mut command = keeper.memcuda();
        command.args(["keeper", "--idle", "600"]);
        let output = command.envs(settings.iter().copied()).output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        keeper
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("keeper.sock")
    }

    fn memcuda(&self) -> Command {
        let mut command = memcuda();
        command.env("MEMCUDA_KEEPER", self.socket());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.memcuda().args(arguments).output().unwrap()
    }

    fn client(&self) -> Client {
        let pid = std::process::id();
        Client::connect(&self.socket(), pid, "test", &[]).unwrap().0
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.run(&["keeper", "stop", "--force"]);
    }
}

/// Makes a name of 1 MiB, which this client then holds.
fn make(client: &mut Client, name: &str) {
    let spec = Spec {
        bytes: MIB,
        dtype: Some(Dtype::F32),
        shape: vec![512, 512],
        device: DeviceId([7; 16]),
        ordinal: 0,
        backend: Backend::Vmm,
    };
    let open = Request::Open {
        name: Name::new(name).unwrap(),
        mode: Mode::Create,
        spec,
        write: true,
        hidden: false,
    };
    let (Reply::Make { generation }, _) = client.call(open, &[]).unwrap() else {
        panic!("{name} is there already");
    };
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 2 * MIB).unwrap();
    let commit = Request::Commit {
        generation,
        mapped: 2 * MIB,
        legacy: Vec::new(),
    };
    let (reply, _) = client.call(commit, &[memory.as_fd()]).unwrap();
    assert_eq!(reply, Reply::Done);
}

fn persist(client: &mut Client, name: &str) {
    let request = Request::Persist {
        name: Name::new(name).unwrap(),
        persist: Persist::Yes,
    };
    assert_eq!(client.call(request, &[]).unwrap().0, Reply::Done);
}

#[test]
fn names_are_listed_shown_deleted_and_collected() {
    let keeper = Keeper::start(&[]);
    assert_eq!(stdout(&keeper.run(&["ls"])), "no memory has a name\n");
    let mut holder = keeper.client();
    for name in ["held", "kept", "deleted"] {
        make(&mut holder, name);
    }
    persist(&mut holder, "kept");
    let listed = objects(&keeper.run(&["ls", "--json"]), "ls");
    let names: Vec<_> = listed.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["deleted", "held", "kept"]);
    assert_eq!(listed[0]["mapped_bytes"], 2 * MIB);
    assert_eq!(listed[0]["holders"][0]["pid"], std::process::id());

    let removed = keeper.run(&["rm", "deleted", "nowhere"]);
    assert_eq!(code(&removed), 1);
    assert!(stdout(&removed).starts_with("deleted: deleted; its 2.0 MiB go with the last holder"));
    // The same line by every verb, and of a pattern.
    let missing = |name: &str| format!("memcuda: {name}: there is no such name\n");
    assert_eq!(stderr(&removed), missing("nowhere"));
    for (verb, name) in [("show", "nowhere"), ("persist", "nowhere"), ("rm", "no*")] {
        failed(&keeper.run(&[verb, name]), 1, &missing(name));
    }
    assert_eq!(code(&keeper.run(&["show", "deleted"])), 1);
    let all = stdout(&keeper.run(&["ls", "--all"]));
    assert!(all.contains("\ndeleted "), "{all}");

    drop(holder);
    let shown = || stdout(&keeper.run(&["show", "kept"]));
    until("held by nobody", || shown().contains("held by     nobody"));
    for word in ["until it is deleted", "f32 512x512"] {
        assert!(shown().contains(word), "{}", shown());
    }
    let dry = stdout(&keeper.run(&["gc", "--dry-run"]));
    assert!(dry.starts_with("would free nothing\n"), "{dry}");
    let freed = stdout(&keeper.run(&["gc", "--kept"]));
    assert_eq!(freed, "freed 1 allocation, 2.0 MiB\n");
    assert_eq!(
        stdout(&keeper.run(&["ls", "--all"])),
        "no memory has a name\n"
    );
}

#[test]
fn names_are_persisted_for_good_for_a_time_and_not_any_more() {
    let keeper = Keeper::start(&[]);
    let mut holder = keeper.client();
    for name in ["kept/a", "kept/b", "timed"] {
        make(&mut holder, name);
    }
    let done = keeper.run(&["persist", "kept/*", "nowhere"]);
    assert_eq!(code(&done), 1);
    assert_eq!(
        stdout(&done),
        "kept/a: lives until it is deleted\nkept/b: lives until it is deleted\n"
    );
    assert!(stderr(&done).starts_with("memcuda: nowhere: "));
    assert_eq!(
        stdout(&keeper.run(&["persist", "timed", "--for", "600"])),
        "timed: lives for 10m more, then while held\n"
    );
    assert_eq!(
        stdout(&keeper.run(&["persist", "kept/b", "--not"])),
        "kept/b: lives while somebody holds it\n"
    );
    drop(holder);
    let left = |names: &[&str]| {
        let listed = objects(&keeper.run(&["ls", "--json"]), "ls");
        let listed = listed
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned());
        listed.eq(names.iter().copied())
    };
    until("what was not persisted is gone", || {
        left(&["kept/a", "timed"])
    });
    let begun = Instant::now();
    assert_eq!(
        stdout(&keeper.run(&["persist", "timed", "--for", "2"])),
        "timed: lives for 2s more, then while held\n"
    );
    until("what was persisted for a time is gone", || {
        left(&["kept/a"])
    });
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(
        stdout(&keeper.run(&["persist", "kept/a", "--not"])),
        "kept/a: nobody holds it; 2.0 MiB freed\n"
    );
    assert!(left(&[]));
    for wrong in [&["--for", "0"][..], &["--for", "1", "--not"]] {
        assert_eq!(
            code(&keeper.run(&[&["persist", "kept/a"], wrong].concat())),
            2
        );
    }
}

#[test]
fn all_nodes_are_those_that_publish_in_redis() {
    let redis = Redis::start();
    let address = format!("redis+unix://{}", redis.socket().display());
    let nodes = ["east", "west"].map(|namespace| {
        Keeper::start(&[
            ("MEMCUDA_REDIS", &address),
            ("MEMCUDA_NAMESPACE", namespace),
        ])
    });
    let mut clients = nodes.each_ref().map(Keeper::client);
    for (client, name) in clients.iter_mut().zip(["of/east", "of/west"]) {
        make(client, name);
    }
    let list = |arguments: &[&str]| {
        let mut command = memcuda();
        command.args(["ls", "--all-nodes"]).args(arguments);
        command.env("MEMCUDA_REDIS", &address).output().unwrap()
    };
    // It is published in a moment, not at once.
    let listed = || objects(&list(&["--json"]), "ls");
    until("both are published", || listed().len() == 2);
    let found = listed();
    let said: Vec<_> = found
        .iter()
        .map(|it| (it["namespace"].clone(), it["name"].clone()))
        .collect();
    let expected = [("east", "of/east"), ("west", "of/west")];
    assert_eq!(
        said,
        expected.map(|(namespace, name)| (namespace.into(), name.into()))
    );
    for object in &found {
        check_units(object, &["version", "device", "references", "owner_pid"]);
        assert_eq!(object["requested_bytes"], MIB);
        assert_eq!(object["shape"], serde_json::json!([512, 512]));
        assert_eq!(object["references"], 1);
    }
    let table = stdout(&list(&[]));
    for word in [
        ", namespace east\n",
        ", namespace west\n",
        "of/west",
        "f32 512x512",
    ] {
        assert!(table.contains(word), "{table}");
    }
}

#[test]
fn all_nodes_without_redis_says_so() {
    let mut command = memcuda();
    command.args(["ls", "--all-nodes"]);
    failed(&command.output().unwrap(), 2, "set MEMCUDA_REDIS");
    command.env("MEMCUDA_REDIS", "redis://host:99999");
    failed(&command.output().unwrap(), 2, "is not understood");
    command.env("MEMCUDA_REDIS", "redis+unix:///nowhere/redis.sock");
    failed(&command.output().unwrap(), 1, "/nowhere/redis.sock");
}

/// What others write into the same Redis hides no host, and is no command to a terminal.
#[test]
fn all_nodes_are_listed_whatever_else_is_there() {
    let redis = Redis::start();
    let address = format!("redis+unix://{}", redis.socket().display());
    let keeper = Keeper::start(&[("MEMCUDA_REDIS", &address)]);
    let mut client = keeper.client();
    make(&mut client, "weights");
    let list = |arguments: &[&str]| {
        let mut command = memcuda();
        command.args(["ls", "--all-nodes"]).args(arguments);
        command.env("MEMCUDA_REDIS", &address).output().unwrap()
    };
    until("it is published", || redis.has("tensor:weights"));
    for foreign in [
        r#"HSET tensor:weights thumbnail "\xff\xfe" dtype "f\x1b[31m""#,
        "SET theirs:memcuda:names text",
        "SADD others:memcuda:names one",
        "SET others:memcuda:owner text",
        "SET others:tensor:one text",
        r#"SADD "e\x1b[31m:memcuda:names" one"#,
    ] {
        let answer = redis.ask(foreign);
        assert!(!answer.starts_with('-'), "{foreign}: {answer}");
    }
    let found = objects(&list(&["--json"]), "ls");
    let names: Vec<_> = found.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["weights"]);
    let table = stdout(&list(&[]));
    assert!(table.contains("weights"), "{table}");
    assert!(!table.contains('\x1b'), "{table:?}");
}
