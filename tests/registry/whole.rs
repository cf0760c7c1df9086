//! The whole keeper, with its standby, over a real redis-server and the
//! simulated GPU. Needs the simulated libraries in `sim` beside the command.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memcuda::names::{Dtype, Name};
use memcuda::share::client::Client;
use memcuda::share::protocol::{Backend, DeviceId, Entry, Mode, Reply, Request, Spec, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clients::{address, answer, answers, ask, connect, push};
use crate::redis_server::Redis;
use crate::waiting::{until, wait_for, within};

/// A keeper and all that it needs; ended when it is dropped.
pub struct Keeper {
    pub socket: PathBuf,
    pub server: Redis,
    directory: tempfile::TempDir,
}

pub fn program() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_memcuda"));
    let simulation = program.parent().unwrap().join("sim");
    let library = simulation.join("libcuda.so.1");
    assert!(
        library.exists(),
        "no {}: make test-build",
        library.display()
    );
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", simulation);
    command
}

impl Keeper {
    pub fn start() -> Self {
        Self::start_by(&["env"])
    }

    /// The same, started by the program of these words.
    pub fn start_by(starter: &[&str]) -> Self {
        let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
        let socket = directory.path().join("of-the-keeper/keeper.sock");
        let starts = program();
        let mut keeper = Command::new(starter[0]);
        let variables = starts
            .get_envs()
            .flat_map(|(name, value)| Some((name, value?)));
        keeper
            .args(&starter[1..])
            .arg(starts.get_program())
            .envs(variables)
            .args(["keeper", "--idle", "600", "--socket"])
            .arg(&socket)
            .env("MEMCUDA_REDIS", address(server.socket()))
            .env("MEMCUDA_SIM_SHARED", directory.path().join("gpu"))
            .env("MEMCUDA_SIM_MEMORY", "1GiB")
            .env("MEMCUDA_LOG_FILE", directory.path().join("log"));
        assert!(keeper.status().unwrap().success());
        Self {
            socket,
            server,
            directory,
        }
    }

    /// A connection; waits for a keeper that is being started anew.
    pub fn client(&self) -> Client {
        let connect = || Client::connect(&self.socket, std::process::id(), "test", &[]);
        wait_for("a keeper", || connect().ok()).0
    }

    pub fn status(&self) -> Status {
        match self.client().call(Request::Status, &[]) {
            Ok((Reply::Status(status), _)) => status,
            other => panic!("{:?}", other.map(|(reply, _)| reply)),
        }
    }

    pub fn names(&self) -> BTreeSet<String> {
        let (mut client, mut names, mut after) = (self.client(), BTreeSet::new(), None);
        loop {
            let request = Request::List { after, all: false };
            let Ok((Reply::Entries { entries, next }, _)) = client.call(request, &[]) else {
                panic!("no list")
            };
            names.extend(entries.iter().map(|e| e.name.as_ref().unwrap().to_string()));
            match next {
                Some(place) => after = Some(place),
                None => return names,
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let status = program()
            .args(["keeper", "stop", "--force", "--socket"])
            .arg(&self.socket)
            .stderr(Stdio::null())
            .status();
        if !std::thread::panicking() {
            assert!(status.unwrap().success());
        }
    }
}

pub fn attach(client: &mut Client, name: &str) -> (Entry, usize) {
    let spec = Spec {
        bytes: 0,
        dtype: Some(Dtype::F32),
        shape: Vec::new(),
        device: DeviceId([0; 16]),
        ordinal: 0,
        backend: Backend::Vmm,
    };
    let request = Request::Open {
        name: Name::new(name).unwrap(),
        mode: Mode::Attach,
        spec,
        write: true,
        hidden: false,
    };
    match client.call(request, &[]) {
        Ok((Reply::Memory { entry, .. }, parts)) => (entry, parts.len()),
        other => panic!("{:?}", other.map(|(reply, _)| reply)),
    }
}

/// Queues a command and waits for its answer.
pub fn caller(keeper: &Keeper) -> impl FnMut(Value) -> Value {
    let mut redis = connect(keeper.server.socket());
    move |mut command| {
        command["reply"] = json!("me");
        push(&mut redis, "tensor:cmd", command.to_string());
        answer(&mut redis, "me")
    }
}

#[test]
fn commands_make_memory_that_any_process_opens() {
    let keeper = Keeper::start();
    let mut call = caller(&keeper);
    let create =
        json!({"op": "create", "name": "w", "dtype": "f32", "shape": [1024, 1024], "zero": true});
    let made = call(create.clone());
    assert_eq!(made["status"], "ok", "{made}");
    assert_eq!(
        (&made["entry"]["bytes"], &made["entry"]["refcount"]),
        (&json!(4 << 20), &json!(0))
    );
    let again = call(create);
    assert_eq!(again["error"]["code"], "EXISTS");
    for (command, code) in [
        (
            json!({"op": "create", "name": "much", "bytes": 2_u64 << 30}),
            "GPU_OOM",
        ),
        (
            json!({"op": "create", "name": "far", "bytes": 24, "device": 5}),
            "INVALID",
        ),
        (
            json!({"op": "clone", "src": "nothing", "dst": "copy"}),
            "NOT_FOUND",
        ),
    ] {
        assert_eq!(call(command)["error"]["code"], code);
    }
    assert_eq!(
        call(json!({"op": "clone", "src": "w", "dst": "copy"}))["status"],
        "ok"
    );
    assert_eq!(
        keeper.names(),
        BTreeSet::from(["copy".to_owned(), "w".to_owned()])
    );

    // A holder is seen, and keeps the memory of a name that is deleted.
    let mut client = keeper.client();
    let (entry, parts) = attach(&mut client, "w");
    assert_eq!((entry.spec.bytes, parts), (4 << 20, 1));
    let got = || -> HashMap<String, String> {
        ask(
            &mut connect(keeper.server.socket()),
            &["HGETALL", "tensor:w"],
        )
    };
    until("held", || {
        let pid = format!("\"pid\":{},", std::process::id());
        got()
            .get("holders")
            .is_some_and(|holders| holders.contains(&pid))
    });
    let hash = got();
    assert_eq!(hash["generation"], entry.generation.to_string());
    let holders: Value = serde_json::from_str(&hash["holders"]).unwrap();
    assert_eq!(holders[0]["pid"], std::process::id());
    assert_eq!(call(json!({"op": "delete", "name": "w"}))["status"], "ok");
    until("hidden", || got().is_empty());
    assert_eq!(keeper.status().dying, 1);
    drop(client);
    until("freed", || keeper.status().dying == 0);
    assert_eq!(keeper.status().bytes, 4 << 20, "of the copy alone");
}

/// `MEMCUDA_TEST_KILLS` is how often.
#[test]
fn a_keeper_killed_under_load_answers_every_command_once() {
    let kills = std::env::var("MEMCUDA_TEST_KILLS").map_or(15, |text| text.parse().unwrap());
    let keeper = Keeper::start();
    let mut redis = connect(keeper.server.socket());
    let (mut pushed, begun) = (0_u64, Instant::now());
    for kill in 0..kills {
        let pid = keeper.status().pid;
        let moment = Instant::now() + Duration::from_millis(60 + kill * 7919 % 140);
        while Instant::now() < moment {
            if pushed - ask::<u64>(&mut redis, &["LLEN", "answers"]) > 30 {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            let (id, name) = (pushed, format!("w{}", pushed / 3));
            let mut command = match id % 3 {
                0 => json!({"op": "create", "name": name, "dtype": "f32", "shape": [16]}),
                1 => json!({"op": "get", "name": name}),
                // Every other name stays.
                _ if id % 2 == 0 => json!({"op": "delete", "name": name}),
                _ => json!({"op": "get", "name": name}),
            };
            command["id"] = json!(id);
            command["reply"] = json!("answers");
            push(&mut redis, "tensor:cmd", command.to_string());
            pushed += 1;
        }
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        until("started anew", || keeper.status().pid != pid);
    }
    let queue = "tensor:cmd memcuda:taken:tensor:cmd memcuda:making:tensor:cmd";
    within(Duration::from_secs(60), "all answered", || {
        keeper.server.ask(&format!("EXISTS {queue}")) == ":0"
    });
    let answers = answers(&mut redis, "answers");
    let (mut wanted, mut poisoned) = (BTreeSet::new(), BTreeSet::new());
    for id in 0..pushed {
        let [answer] = &answers.get(&id).map_or(&[][..], |all| &all[..]) else {
            panic!("command {id}: {:?}\n{}", answers.get(&id), keeper.log());
        };
        let code = answer["error"]["code"].as_str();
        let made = answers[&(id - id % 3)][0]["status"] == "ok";
        assert!(
            code.is_none() || code == Some("POISONED") || !made,
            "{answer}\n{}",
            keeper.log()
        );
        let name = format!("w{}", id / 3);
        if code == Some("POISONED") {
            poisoned.insert(name.clone());
        }
        match (id % 3, answer["op"].as_str(), code) {
            (0, _, None) => drop(wanted.insert(name)),
            (2, Some("delete"), None) => drop(wanted.remove(&name)),
            _ => {}
        }
    }
    println!(
        "{kills} kills of the keeper, {pushed} commands, each answered once, {} of them set aside; {:.1} s",
        poisoned.len(),
        begun.elapsed().as_secs_f64()
    );
    // What was set aside may be done or not.
    let names: BTreeSet<_> = &keeper.names() - &poisoned;
    let wanted = &wanted - &poisoned;
    let other: Vec<_> = names.symmetric_difference(&wanted).collect();
    let of = |name: &String| {
        let number: u64 = name[1..].parse().unwrap();
        [0, 1, 2].map(|n| answers.get(&(number * 3 + n)).cloned())
    };
    let told: Vec<_> = other.iter().map(|name| of(name)).collect();
    assert_eq!(names, wanted, "{other:?} {told:#?} {}", keeper.log());
    until("published", || {
        let keys: BTreeSet<String> = ask(&mut redis, &["KEYS", "tensor:*"]);
        keys == keeper
            .names()
            .iter()
            .map(|name| format!("tensor:{name}"))
            .collect()
    });
    let status = keeper.status();
    assert_eq!((status.references, status.restarts), (0, kills as u32));
    assert_eq!(status.bytes, keeper.names().len() as u64 * (2 << 20));
    assert!(pushed > 3 * kills as u64, "hardly any load: {pushed}");
}

/// Also where one of that name has just gone.
#[test]
fn what_the_second_protocol_makes_has_its_text_at_its_path() {
    let keeper = Keeper::start();
    let mut redis = connect(keeper.server.socket());
    let mut send = |command: Value| {
        let words = ["RPUSH", "cmd:heap-cuda:0", &command.to_string()];
        let _: u64 = ask(&mut redis, &words);
        assert_eq!(answer(&mut redis, "done:7")["status"], "ok", "{command}");
    };
    let new = json!({"op": "newtensor", "key": "/w", "dtype": "f32", "shape": [2], "vtid": "7"});
    for _ in 0..10 {
        send(new.clone());
        until("at its path", || keeper.server.has("/w"));
        send(json!({"op": "deltensor", "key": "/w", "vtid": "7"}));
    }
    until("gone", || !keeper.server.has("/w"));
}

/// Whoever takes it up after that death sees no name, and could not say who deleted it.
#[test]
fn nothing_is_deleted_before_it_is_noted_for_a_keeper_after_this_one() {
    let keeper = Keeper::start();
    let mut redis = connect(keeper.server.socket());
    let command = |op: &str| json!({"op": op, "name": "w", "bytes": 24, "reply": op}).to_string();
    push(&mut redis, "tensor:cmd", command("create"));
    assert_eq!(answer(&mut redis, "create")["status"], "ok");
    // It can neither note nor answer anything, as where Redis is full.
    keeper.server.ask("ACL SETUSER default -hsetnx -rpush");
    push(&mut redis, "tensor:cmd", command("delete"));
    // Into the second list where who made the name is not back for others yet.
    let is_in = |list| {
        keeper
            .server
            .ask(&format!("LLEN memcuda:{list}:tensor:cmd"))
            == ":1"
    };
    until("taken", || ["taken", "making"].into_iter().any(is_in));
    std::thread::sleep(Duration::from_millis(300));
    let pid = keeper.status().pid;
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    until("started anew", || keeper.status().pid != pid);
    keeper.server.ask("ACL SETUSER default +hsetnx +rpush");
    let answer = answer(&mut redis, "delete");
    assert_eq!(answer["status"], "ok", "{answer}");
    assert_eq!(keeper.names(), BTreeSet::new());
}

/// Publishing one tells nobody but who looks at the page.
#[test]
fn a_published_version_reaches_redis() {
    let keeper = Keeper::start();
    let mut redis = connect(keeper.server.socket());
    let command =
        json!({"op": "create", "name": "v", "dtype": "f32", "shape": [4], "reply": "reply:v"});
    push(&mut redis, "tensor:cmd", command.to_string());
    assert_eq!(answer(&mut redis, "reply:v")["status"], "ok");
    let mut client = keeper.client();
    let (entry, _) = attach(&mut client, "v");
    let timeline = Request::Timeline {
        generation: entry.generation,
    };
    let (_, page) = client.call(timeline, &[]).unwrap();
    for version in [1_u64, 7, 8] {
        rustix::io::pwrite(&page[0], &version.to_ne_bytes(), 0).unwrap();
        until("the version in Redis", || {
            let hash: Option<String> = ask(&mut redis, &["HGET", "tensor:v", "version"]);
            hash == Some(version.to_string())
        });
    }
}
