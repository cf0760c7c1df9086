//! The queue of commands, as its clients see it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, ToRedisArgs};
use serde_json::{Value, json};

use crate::clients::{answer, ask, connect, push};
use crate::files::{Keeper, Place};
use crate::redis_server::Redis;
use crate::waiting::LONG;
use crate::{until, within};

struct Stage {
    keeper: Keeper,
    redis: Connection,
    server: Redis,
    directory: tempfile::TempDir,
}

fn stage(namespace: &str) -> Stage {
    patient(namespace, LONG)
}

/// The same; its keeper waits so long for memory to be made.
fn patient(namespace: &str, patience: Duration) -> Stage {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let place = Place::of(&server, namespace, 1, directory.path());
    let keeper = Keeper::patient(&place, patience);
    Stage {
        keeper,
        redis: connect(server.socket()),
        server,
        directory,
    }
}

impl Stage {
    fn push(&mut self, queue: &str, command: impl ToRedisArgs) {
        push(&mut self.redis, queue, command);
    }

    fn answer(&mut self, list: &str) -> Value {
        answer(&mut self.redis, list)
    }

    fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        ask(&mut self.redis, words)
    }

    /// Sends a command and takes its answer.
    fn call(&mut self, mut command: Value) -> Value {
        command["reply"] = json!("me");
        self.push("tensor:cmd", command.to_string());
        self.answer("me")
    }

    fn names(&self) -> &Path {
        self.directory.path()
    }
}

#[test]
fn create_get_and_delete_by_a_client_that_knows_redis_alone() {
    let mut stage = stage("");
    let create =
        json!({"op": "create", "name": "w", "dtype": "f32", "shape": [2, 3], "device": 1, "id": 1});
    let made = stage.call(create.clone());
    assert_eq!(
        (&made["status"], &made["id"]),
        (&json!("ok"), &json!(1)),
        "{made}"
    );
    assert_eq!(made["entry"]["bytes"], 24);
    until("published", || stage.server.has("tensor:w"));
    let hash: HashMap<String, String> = stage.ask(&["HGETALL", "tensor:w"]);
    assert_eq!(made["entry"]["generation"], json!(hash["generation"]));
    assert_eq!(made["entry"]["ipc_handle"], json!(hash["ipc_handle"]));

    assert_eq!(stage.call(create)["error"]["code"], "EXISTS");
    let got = stage.call(json!({"op": "get", "name": "w", "id": "x"}));
    assert_eq!((&got["entry"], &got["id"]), (&made["entry"], &json!("x")));
    let gone = stage.call(json!({"op": "delete", "name": "w"}));
    assert_eq!(gone, json!({"op": "delete", "name": "w", "status": "ok"}));
    until("gone", || !stage.server.has("tensor:w"));
    for op in ["get", "delete"] {
        let missing = stage.call(json!({"op": op, "name": "w"}));
        assert_eq!(missing["error"]["code"], "NOT_FOUND");
    }

    // Without any reply list, as the first design has it: the hash tells.
    let silent = r#"{"op":"create","name":"quiet","dtype":"f32","shape":[2,3],"device":0}"#;
    stage.push("tensor_lifecycle", silent);
    until("published", || stage.server.has("tensor:quiet"));
    until("done", || {
        !stage.server.has("memcuda:making:tensor_lifecycle")
    });
    let ttl: i64 = {
        stage.push(
            "tensor:cmd",
            r#"{"op":"get","name":"quiet","reply":"left"}"#,
        );
        until("answered", || stage.server.ask("LLEN left") == ":1");
        stage.ask(&["TTL", "left"])
    };
    assert!(
        (3500..=3600).contains(&ttl),
        "an answer that nobody takes goes: {ttl}"
    );
}

/// As random numbers of 128 bits are, which no number of the keeper's holds.
#[test]
fn long_numbers_come_back_as_they_were_written() {
    let mut stage = stage("");
    let long = "340282366920938463463374607431768211457";
    for id in [long, "1.50", "[1, 18446744073709551616]"] {
        let get = format!(r#"{{"op":"get","name":"w","reply":"me","id":{id}}}"#);
        stage.push("tensor:cmd", get);
        let got: (String, String) = stage.ask(&["BLPOP", "me", "30"]);
        assert!(got.1.contains(&format!(r#""id":{id},"#)), "{}", got.1);
    }
    let old = format!(r#"{{"op":"gettensor","key":"w","vtid":{long},"pc":{long}}}"#);
    stage.push("tensor:cmd", old);
    let got: (String, String) = stage.ask(&["BLPOP", &format!("done:{long}"), "30"]);
    assert!(got.1.contains(&format!(r#""pc":{long},"#)), "{}", got.1);
}

#[test]
fn the_second_protocol_is_answered_in_its_own_way() {
    let mut stage = stage("");
    let send = |stage: &mut Stage, queue: &str, command: Value| {
        let _: u64 = stage.ask(&["RPUSH", queue, &command.to_string()]);
    };
    let new = json!({"vtid": "9", "pc": "[0,0]", "op": "newtensor", "key": "/models/w",
        "dtype": "f32", "shape": "[2,3]", "device": "gpu1"});
    send(&mut stage, "cmd:heap-cuda:0", new);
    assert_eq!(
        stage.answer("done:9"),
        json!({"pc": "[0,0]", "status": "ok"})
    );
    until("at its path", || stage.server.has("/models/w"));
    let text: String = stage.ask(&["GET", "/models/w"]);
    let text: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&text["byte_size"], &text["shape"]),
        (&json!(24), &json!([2, 3]))
    );
    assert_eq!(text["address"]["type"], "memcuda");
    assert!(stage.server.has("tensor:/models/w"));
    // It comes back as well.
    stage.ask::<()>(&["FLUSHALL"]);
    until("at its path", || stage.server.has("/models/w"));

    // A path that is somebody else's stays theirs.
    stage.ask::<()>(&["SET", "/models/theirs", "mine"]);
    let new = json!({"vtid": 10, "pc": 3, "op": "newtensor", "key": "/models/theirs",
        "dtype": "f32", "shape": [2, 3]});
    send(&mut stage, "/sys/ipc/cmd/heap/cuda/0", new);
    assert_eq!(stage.answer("done:10"), json!({"pc": 3, "status": "ok"}));
    until("published", || stage.server.has("tensor:/models/theirs"));
    assert_eq!(stage.ask::<String>(&["GET", "/models/theirs"]), "mine");

    let copy = json!({"vtid": 11, "op": "clonetensor", "src": "/models/w", "dst": "/models/c", "device": "gpu1"});
    send(&mut stage, "cmd:heap-cuda:0", copy);
    assert_eq!(stage.answer("done:11")["status"], "ok");
    let gone = json!({"vtid": 12, "op": "deltensor", "key": "/models/w"});
    send(&mut stage, "cmd:heap-cuda:0", gone.clone());
    assert_eq!(stage.answer("done:12")["status"], "ok");
    until("gone", || {
        stage.server.ask("EXISTS /models/w tensor:/models/w") == ":0"
    });
    send(&mut stage, "cmd:heap-cuda:0", gone);
    assert_eq!(stage.answer("done:12")["error"]["code"], "NOT_FOUND");
}

#[test]
fn bad_commands_are_refused_and_stop_nobody() {
    let mut stage = stage("");
    let refused = |stage: &mut Stage, text: &str| {
        stage.push("tensor:cmd", text);
        stage.answer("me")["error"]["code"].clone()
    };
    for (code, text) in [
        ("UNKNOWN_OP", r#"{"reply":"me","op":"drop"}"#),
        ("INVALID", r#"{"reply":"me","op":"get","name":"a\u0007"}"#),
        (
            "INVALID",
            r#"{"reply":"me","op":"create","name":"w","dtype":"f32","shape":[-1]}"#,
        ),
        (
            "INVALID",
            r#"{"reply":"me","op":"create","name":"w","dtype":"q4","shape":[1]}"#,
        ),
    ] {
        assert_eq!(refused(&mut stage, text), code, "{text}");
    }
    // What names no list is set aside with why, and its bytes do no harm there.
    stage.push("tensor:cmd", b"\xff\x00 no json");
    until("set aside", || {
        stage.server.ask("LLEN memcuda:aside") == ":1"
    });
    let record: String = stage.ask(&["LINDEX", "memcuda:aside", "0"]);
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(
        (&record["code"], &record["queue"]),
        (&json!("MALFORMED"), &json!("tensor:cmd"))
    );

    // An answer that cannot be pushed, and one into a key of the protocol.
    stage.ask::<()>(&["SET", "text", "mine"]);
    stage.push("tensor:cmd", r#"{"op":"get","name":"w","reply":"text"}"#);
    stage.push(
        "tensor:cmd",
        r#"{"op":"get","name":"w","reply":"tensor:cmd"}"#,
    );
    until("set aside", || {
        stage.server.ask("LLEN memcuda:aside") == ":3"
    });
    assert_eq!(stage.ask::<String>(&["GET", "text"]), "mine");

    // 10 MiB: who sent them is told, and they are not kept.
    let long = format!(
        r#"{{"op":"get","name":"{}","reply":"me"}}"#,
        "x".repeat(10 << 20)
    );
    for _ in 0..3 {
        assert_eq!(refused(&mut stage, &long), "TOO_LONG");
    }
    until("done", || !stage.server.has("memcuda:taken:tensor:cmd"));

    let good = stage.call(json!({"op": "create", "name": "w", "bytes": 24}));
    assert_eq!(good["status"], "ok");
}

#[test]
fn commands_that_take_long_hold_no_other_name_up_and_their_own_in_order() {
    let mut stage = stage("");
    let held = stage.names().join("names/.held");
    fs::write(&held, "").unwrap();
    for n in 0..8 {
        let create = json!({"op": "create", "name": format!("s{n}"), "bytes": 24, "reply": "slow"});
        stage.push("tensor:cmd", create.to_string());
    }
    // Behind its creation, in the same queue.
    let get = json!({"op": "get", "name": "s7", "reply": "behind"});
    stage.push("tensor:cmd", get.to_string());
    let missing = stage.call(json!({"op": "get", "name": "other"}));
    assert_eq!(missing["error"]["code"], "NOT_FOUND");
    assert_eq!(stage.server.ask("EXISTS slow behind"), ":0");
    fs::remove_file(&held).unwrap();
    for _ in 0..8 {
        assert_eq!(stage.answer("slow")["status"], "ok");
    }
    assert_eq!(stage.answer("behind")["status"], "ok");
    fs::write(stage.names().join("names/.full"), "").unwrap();
    let full = stage.call(json!({"op": "create", "name": "full", "bytes": 24}));
    assert_eq!(
        full["error"],
        json!({"code": "GPU_OOM", "message": "cuMemCreate: OUT_OF_MEMORY"})
    );
}

#[test]
fn a_command_that_never_ends_is_ended() {
    let mut stage = patient("", Duration::from_secs(3));
    fs::write(stage.names().join("names/.held"), "").unwrap();
    let stuck = stage.call(json!({"op": "create", "name": "stuck", "bytes": 24}));
    assert_eq!(stuck["error"]["code"], "TIMEOUT");
}

#[test]
fn a_flood_is_answered_and_slows_no_publishing() {
    let mut stage = stage("");
    let mut pipeline = redis::pipe();
    for n in 0..20_000 {
        let bad = format!(r#"{{"op":"get","name":"w{n}","reply":"flood"}}"#);
        let text = if n % 2 == 0 { "{" } else { bad.as_str() };
        pipeline.cmd("LPUSH").arg("tensor:cmd").arg(text).ignore();
    }
    pipeline.query::<()>(&mut stage.redis).unwrap();
    let begun = Instant::now();
    stage.keeper.add(["meanwhile"]);
    until("published", || stage.server.has("tensor:meanwhile"));
    println!(
        "published {} ms into the flood",
        begun.elapsed().as_millis()
    );
    // Another queue has its own thread.
    let other = json!({"op": "get", "name": "meanwhile", "reply": "me"});
    stage.push("tensor_lifecycle", other.to_string());
    assert_eq!(stage.answer("me")["status"], "ok");
    println!(
        "another queue {} ms into the flood",
        begun.elapsed().as_millis()
    );
    within(Duration::from_secs(300), "all answered", || {
        stage.server.ask("LLEN flood") == ":10000"
    });
    until("all taken", || {
        stage
            .server
            .ask("EXISTS tensor:cmd memcuda:taken:tensor:cmd")
            == ":0"
    });
    println!("{:.0} commands/s", 20_000.0 / begun.elapsed().as_secs_f64());
    assert_eq!(
        stage.server.ask("LLEN memcuda:aside"),
        ":1000",
        "and no more are kept"
    );
}

#[test]
fn a_namespace_has_its_own_queue_and_answers_within_it() {
    let mut stage = stage("a");
    stage.push("tensor:cmd", r#"{"op":"get","name":"w","reply":"a:me"}"#);
    stage.push("a:tensor:cmd", r#"{"op":"get","name":"w","reply":"me"}"#);
    stage.push("a:tensor:cmd", r#"{"op":"get","name":"w","reply":"a:me"}"#);
    assert_eq!(stage.answer("a:me")["error"]["code"], "NOT_FOUND");
    until("set aside", || {
        stage.server.ask("LLEN a:memcuda:aside") == ":1"
    });
    assert_eq!(stage.server.ask("LLEN tensor:cmd"), ":1");
    assert!(!stage.server.has("me"));
}

#[test]
fn a_command_under_way_is_answered_though_redis_was_emptied() {
    let mut stage = stage("");
    let held = stage.names().join("names/.held");
    for round in 0..3 {
        fs::write(&held, "").unwrap();
        let create =
            json!({"op": "create", "name": format!("w{round}"), "bytes": 24, "reply": "me"});
        stage.push("tensor:cmd", create.to_string());
        until("begun", || stage.server.has("memcuda:notes"));
        let command = ["FLUSHALL", "SCRIPT", "FLUSHDB"][round];
        match command {
            "SCRIPT" => stage.ask::<()>(&["SCRIPT", "FLUSH"]),
            command => stage.ask::<()>(&[command]),
        }
        fs::remove_file(&held).unwrap();
        assert_eq!(stage.answer("me")["status"], "ok", "{command}");
        let name = format!("EXISTS tensor:w{round}");
        until("published", || stage.server.ask(&name) == ":1");
    }
    assert!(!stage.server.has("me"), "no answer comes twice");
}
