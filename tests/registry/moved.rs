//! The server is another one, serves otherwise than it did, or was another keeper's for
//! a while: what becomes of the commands that are under way.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use redis::Connection;
use serde_json::json;

use crate::clients::{address, answer, ask, connect, push};
use crate::files::{Keeper, Place, put};
use crate::redis_server::Redis;
use crate::rights::give_documented;
use crate::served::Served;
use crate::until;

const LIBRARY: &str = include_str!("../../src/keeper/redis/memcuda.lua");

/// Lets nothing be made until it is taken away.
fn held(directory: &Path) -> PathBuf {
    let held = directory.join("names/.held");
    fs::write(&held, "").unwrap();
    held
}

/// Orders memory, whose answer goes to a list of the same name.
fn order(redis: &mut Connection, name: &str) {
    let create = json!({"op": "create", "name": name, "dtype": "f32", "shape": [2, 3],
        "reply": format!("reply:{name}")});
    push(redis, "tensor:cmd", create.to_string());
}

/// As behind an address that leads to whichever is the master.
#[test]
fn the_server_that_takes_over_has_the_answers() {
    let (former, next) = (Redis::start(), Redis::start());
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("redis.sock");
    symlink(former.socket(), &link).unwrap();
    let _keeper = Keeper::start(&Place {
        address: address(link.clone()),
        namespace: "",
        node: 1,
        directory: directory.path(),
    });
    let held = held(directory.path());
    let mut redis = connect(former.socket());
    order(&mut redis, "noted");
    until("noted", || former.has("memcuda:notes"));
    former.ask("ACL SETUSER default -hsetnx");
    order(&mut redis, "unnoted");
    let both = "LLEN memcuda:making:tensor:cmd";
    until("both are under way", || former.ask(both) == ":2");

    // As its replica has it.
    let list = "memcuda:making:tensor:cmd";
    let commands: Vec<String> = ask(&mut redis, &["LRANGE", list, "0", "-1"]);
    for command in commands {
        ask::<()>(&mut connect(next.socket()), &["RPUSH", list, &command]);
    }
    fs::remove_file(&link).unwrap();
    symlink(next.socket(), &link).unwrap();
    assert_eq!(former.ask("REPLICAOF 127.0.0.1 1"), "+OK");
    until("claimed", || next.has("memcuda:owner"));
    fs::remove_file(held).unwrap();
    let mut redis = connect(next.socket());
    for name in ["noted", "unnoted"] {
        let made = answer(&mut redis, &format!("reply:{name}"));
        assert_eq!(made["status"], "ok", "{made}");
    }
    // Each queue is served there.
    for queue in ["tensor:cmd", "tensor_lifecycle"] {
        let get = json!({"op": "get", "name": "noted", "reply": "reply:get"});
        push(&mut redis, queue, get.to_string());
        assert_eq!(answer(&mut redis, "reply:get")["status"], "ok");
    }
    assert!(!next.has("memcuda:aside"));
}

/// Who may run scripts goes on with these, who may not once there are functions again.
#[test]
fn functions_that_are_gone_cost_no_answer() {
    for user in ["keeper", "keeper-functions"] {
        let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
        let mut admin = connect(server.socket());
        give_documented(&mut admin, user, "");
        ask::<String>(&mut admin, &["FUNCTION", "LOAD", LIBRARY]);
        let mut place = Place::bare(&server, directory.path());
        place.address += &format!("?user={user}&pass=secret");
        let _keeper = Keeper::start(&place);
        let held = held(directory.path());
        order(&mut admin, "noted");
        until("noted", || server.has("memcuda:notes"));
        ask::<()>(&mut admin, &["FUNCTION", "FLUSH"]);
        fs::remove_file(held).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(600));
        if user == "keeper-functions" {
            ask::<String>(&mut admin, &["FUNCTION", "LOAD", LIBRARY]);
        }
        let made = answer(&mut admin, "reply:noted");
        assert_eq!(made["status"], "ok", "{made}");
        assert!(!server.has("memcuda:aside"), "{user}");
    }
}

/// Names are published all the same, and that says nothing of commands.
#[test]
fn a_command_that_cannot_be_finished_is_told_of() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    fs::create_dir(directory.path().join("names")).unwrap();
    put(&directory.path().join("names/a"), &format!("{:032x}", 7));
    server.ask("ACL SETUSER default -ltrim");
    let served = Served::start(&address(server.socket()), directory.path());
    until("published", || server.has("tensor:a"));
    let mut redis = connect(server.socket());
    push(&mut redis, "tensor:cmd", "no json");
    until("a line", || {
        let log = served.log();
        log.contains("commands in tensor:cmd are held up") && log.contains("run this command")
    });
    assert_eq!(served.log().matches("WARN").count(), 1, "{}", served.log());
    server.ask("ACL SETUSER default +ltrim");
    let get = json!({"op": "get", "name": "a", "reply": "reply:1"});
    push(&mut redis, "tensor:cmd", get.to_string());
    assert_eq!(answer(&mut redis, "reply:1")["status"], "ok");
    until("said", || {
        served.log().contains("commands in tensor:cmd go on again")
    });
}

/// The other one took it up, as all that was under way.
#[test]
fn what_another_keeper_answered_is_not_answered_again() {
    for is_answered in [true, false] {
        let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
        let keeper = Keeper::start(&Place::bare(&server, directory.path()));
        let held = held(directory.path());
        let mut redis = connect(server.socket());
        order(&mut redis, "w");
        until("noted", || server.has("memcuda:notes"));

        let other = "HSET memcuda:owner keeper other started 1 term 1 host h socket s";
        server.ask(other);
        until("lost", || keeper.state().contains("belong to the keeper s"));
        if is_answered {
            server.ask("DEL memcuda:making:tensor:cmd memcuda:notes");
            push(&mut redis, "reply:w", r#"{"status":"ok"}"#);
        }
        server.ask("DEL memcuda:owner");
        until("ours again", || keeper.state().ends_with("published"));
        fs::remove_file(held).unwrap();
        until("made", || keeper.names() == ["w"]);
        let made = answer(&mut redis, "reply:w");
        assert_eq!(made["status"], "ok", "{made}");
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!server.has("reply:w"), "it was answered twice");
        let left =
            "EXISTS tensor:cmd memcuda:taken:tensor:cmd memcuda:making:tensor:cmd memcuda:notes";
        assert_eq!(server.ask(left), ":0");
    }
}
