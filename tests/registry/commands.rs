//! The queue of commands, as its clients see it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use redis::Connection;
use serde_json::{Value, json};

use crate::clients::{address, answer, ask, connect, push};
use crate::files::{Keeper, Place};
use crate::redis_server::Redis;
use crate::{until, within};

struct Stage {
    keeper: Keeper,
    redis: Connection,
    server: Redis,
    directory: tempfile::TempDir,
}

fn stage(namespace: &str) -> Stage {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let keeper = Keeper::start(&Place {
        address: address(server.socket()),
        namespace,
        node: 1,
        directory: directory.path(),
    });
    Stage {
        keeper,
        redis: connect(server.socket()),
        server,
        directory,
    }
}

impl Stage {
    /// Sends a command and takes its answer.
    fn call(&mut self, mut command: Value) -> Value {
        command["reply"] = json!("me");
        push(
            &mut self.redis,
            "tensor:cmd",
            command.to_string().as_bytes(),
        );
        answer(&mut self.redis, "me")
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
    until("published", || stage.server.ask("EXISTS tensor:w") == ":1");
    let hash: HashMap<String, String> = ask(&mut stage.redis, &["HGETALL", "tensor:w"]);
    assert_eq!(made["entry"]["generation"], json!(hash["generation"]));
    assert_eq!(made["entry"]["ipc_handle"], json!(hash["ipc_handle"]));

    assert_eq!(stage.call(create)["error"]["code"], "EXISTS");
    let got = stage.call(json!({"op": "get", "name": "w", "id": "x"}));
    assert_eq!((&got["entry"], &got["id"]), (&made["entry"], &json!("x")));
    let gone = stage.call(json!({"op": "delete", "name": "w"}));
    assert_eq!(gone, json!({"op": "delete", "name": "w", "status": "ok"}));
    until("gone", || stage.server.ask("EXISTS tensor:w") == ":0");
    for op in ["get", "delete"] {
        let missing = stage.call(json!({"op": op, "name": "w"}));
        assert_eq!(missing["error"]["code"], "NOT_FOUND");
    }

    // Without any reply list, as the first design has it: the hash tells.
    let silent = br#"{"op":"create","name":"quiet","dtype":"f32","shape":[2,3],"device":0}"#;
    push(&mut stage.redis, "tensor_lifecycle", silent);
    until("published", || {
        stage.server.ask("EXISTS tensor:quiet") == ":1"
    });
    until("done", || {
        stage.server.ask("EXISTS memcuda:making:tensor_lifecycle") == ":0"
    });
    let ttl: i64 = {
        push(
            &mut stage.redis,
            "tensor:cmd",
            br#"{"op":"get","name":"quiet","reply":"left"}"#,
        );
        until("answered", || stage.server.ask("LLEN left") == ":1");
        ask(&mut stage.redis, &["TTL", "left"])
    };
    assert!(
        (3500..=3600).contains(&ttl),
        "an answer that nobody takes goes: {ttl}"
    );
}

#[test]
fn the_second_protocol_is_answered_in_its_own_way() {
    let mut stage = stage("");
    let send = |redis: &mut Connection, queue: &str, command: Value| {
        let _: u64 = ask(redis, &["RPUSH", queue, &command.to_string()]);
    };
    let new = json!({"vtid": "9", "pc": "[0,0]", "op": "newtensor", "key": "/models/w",
        "dtype": "f32", "shape": "[2,3]", "device": "gpu1"});
    send(&mut stage.redis, "cmd:heap-cuda:0", new);
    assert_eq!(
        answer(&mut stage.redis, "done:9"),
        json!({"pc": "[0,0]", "status": "ok"})
    );
    until("at its path", || {
        stage.server.ask("EXISTS /models/w") == ":1"
    });
    let text: String = ask(&mut stage.redis, &["GET", "/models/w"]);
    let text: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&text["byte_size"], &text["shape"]),
        (&json!(24), &json!([2, 3]))
    );
    assert_eq!(text["address"]["type"], "memcuda");
    assert_eq!(stage.server.ask("EXISTS tensor:/models/w"), ":1");
    // It comes back as well.
    ask::<()>(&mut stage.redis, &["FLUSHALL"]);
    until("at its path", || {
        stage.server.ask("EXISTS /models/w") == ":1"
    });

    // A path that is somebody else's stays theirs.
    ask::<()>(&mut stage.redis, &["SET", "/models/theirs", "mine"]);
    let new = json!({"vtid": 10, "pc": 3, "op": "newtensor", "key": "/models/theirs",
        "dtype": "f32", "shape": [2, 3]});
    send(&mut stage.redis, "/sys/ipc/cmd/heap/cuda/0", new);
    assert_eq!(
        answer(&mut stage.redis, "done:10"),
        json!({"pc": 3, "status": "ok"})
    );
    until("published", || {
        stage.server.ask("EXISTS tensor:/models/theirs") == ":1"
    });
    assert_eq!(
        ask::<String>(&mut stage.redis, &["GET", "/models/theirs"]),
        "mine"
    );

    let copy = json!({"vtid": 11, "op": "clonetensor", "src": "/models/w", "dst": "/models/c", "device": "gpu1"});
    send(&mut stage.redis, "cmd:heap-cuda:0", copy);
    assert_eq!(answer(&mut stage.redis, "done:11")["status"], "ok");
    let gone = json!({"vtid": 12, "op": "deltensor", "key": "/models/w"});
    send(&mut stage.redis, "cmd:heap-cuda:0", gone.clone());
    assert_eq!(answer(&mut stage.redis, "done:12")["status"], "ok");
    until("gone", || {
        stage.server.ask("EXISTS /models/w tensor:/models/w") == ":0"
    });
    send(&mut stage.redis, "cmd:heap-cuda:0", gone);
    assert_eq!(
        answer(&mut stage.redis, "done:12")["error"]["code"],
        "NOT_FOUND"
    );
}

#[test]
fn bad_commands_are_refused_and_stop_nobody() {
    let mut stage = stage("");
    let refused = |stage: &mut Stage, text: &str| {
        push(&mut stage.redis, "tensor:cmd", text.as_bytes());
        answer(&mut stage.redis, "me")["error"]["code"].clone()
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
    push(&mut stage.redis, "tensor:cmd", b"\xff\x00 no json");
    until("set aside", || {
        stage.server.ask("LLEN memcuda:aside") == ":1"
    });
    let record: String = ask(&mut stage.redis, &["LINDEX", "memcuda:aside", "0"]);
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(
        (&record["code"], &record["queue"]),
        (&json!("MALFORMED"), &json!("tensor:cmd"))
    );

    // An answer that cannot be pushed, and one into a key of the protocol.
    ask::<()>(&mut stage.redis, &["SET", "text", "mine"]);
    push(
        &mut stage.redis,
        "tensor:cmd",
        br#"{"op":"get","name":"w","reply":"text"}"#,
    );
    push(
        &mut stage.redis,
        "tensor:cmd",
        br#"{"op":"get","name":"w","reply":"tensor:cmd"}"#,
    );
    until("set aside", || {
        stage.server.ask("LLEN memcuda:aside") == ":3"
    });
    assert_eq!(ask::<String>(&mut stage.redis, &["GET", "text"]), "mine");

    // 10 MiB: who sent them is told, and they are not kept.
    let long = format!(
        r#"{{"op":"get","name":"{}","reply":"me"}}"#,
        "x".repeat(10 << 20)
    );
    for _ in 0..3 {
        assert_eq!(refused(&mut stage, &long), "TOO_LONG");
    }
    until("done", || {
        stage.server.ask("EXISTS memcuda:taken:tensor:cmd") == ":0"
    });

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
        push(
            &mut stage.redis,
            "tensor:cmd",
            create.to_string().as_bytes(),
        );
    }
    // Behind its creation, in the same queue.
    let get = json!({"op": "get", "name": "s7", "reply": "behind"});
    push(&mut stage.redis, "tensor:cmd", get.to_string().as_bytes());
    let missing = stage.call(json!({"op": "get", "name": "other"}));
    assert_eq!(missing["error"]["code"], "NOT_FOUND");
    assert_eq!(stage.server.ask("EXISTS slow behind"), ":0");
    fs::remove_file(&held).unwrap();
    for _ in 0..8 {
        assert_eq!(answer(&mut stage.redis, "slow")["status"], "ok");
    }
    assert_eq!(answer(&mut stage.redis, "behind")["status"], "ok");

    // One that never ends is ended.
    fs::write(&held, "").unwrap();
    let stuck = stage.call(json!({"op": "create", "name": "stuck", "bytes": 24}));
    assert_eq!(stuck["error"]["code"], "TIMEOUT");
    fs::remove_file(&held).unwrap();
    fs::write(stage.names().join("names/.full"), "").unwrap();
    let full = stage.call(json!({"op": "create", "name": "full", "bytes": 24}));
    assert_eq!(
        full["error"],
        json!({"code": "GPU_OOM", "message": "cuMemCreate: OUT_OF_MEMORY"})
    );
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
    until("published", || {
        stage.server.ask("EXISTS tensor:meanwhile") == ":1"
    });
    println!(
        "published {} ms into the flood",
        begun.elapsed().as_millis()
    );
    // Another queue has its own thread.
    let other = json!({"op": "get", "name": "meanwhile", "reply": "me"});
    push(
        &mut stage.redis,
        "tensor_lifecycle",
        other.to_string().as_bytes(),
    );
    assert_eq!(answer(&mut stage.redis, "me")["status"], "ok");
    println!(
        "another queue {} ms into the flood",
        begun.elapsed().as_millis()
    );
    within(Duration::from_secs(60), "all answered", || {
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
    push(
        &mut stage.redis,
        "tensor:cmd",
        br#"{"op":"get","name":"w","reply":"a:me"}"#,
    );
    push(
        &mut stage.redis,
        "a:tensor:cmd",
        br#"{"op":"get","name":"w","reply":"me"}"#,
    );
    push(
        &mut stage.redis,
        "a:tensor:cmd",
        br#"{"op":"get","name":"w","reply":"a:me"}"#,
    );
    assert_eq!(
        answer(&mut stage.redis, "a:me")["error"]["code"],
        "NOT_FOUND"
    );
    until("set aside", || {
        stage.server.ask("LLEN a:memcuda:aside") == ":1"
    });
    assert_eq!(stage.server.ask("LLEN tensor:cmd"), ":1");
    assert_eq!(stage.server.ask("EXISTS me"), ":0");
}

#[test]
fn a_command_under_way_is_answered_though_redis_was_emptied() {
    let mut stage = stage("");
    let held = stage.names().join("names/.held");
    for round in 0..3 {
        fs::write(&held, "").unwrap();
        let create =
            json!({"op": "create", "name": format!("w{round}"), "bytes": 24, "reply": "me"});
        push(
            &mut stage.redis,
            "tensor:cmd",
            create.to_string().as_bytes(),
        );
        until("begun", || stage.server.ask("EXISTS memcuda:notes") == ":1");
        let command = ["FLUSHALL", "SCRIPT", "FLUSHDB"][round];
        match command {
            "SCRIPT" => ask::<()>(&mut stage.redis, &["SCRIPT", "FLUSH"]),
            command => ask::<()>(&mut stage.redis, &[command]),
        }
        fs::remove_file(&held).unwrap();
        assert_eq!(answer(&mut stage.redis, "me")["status"], "ok", "{command}");
        let name = format!("EXISTS tensor:w{round}");
        until("published", || stage.server.ask(&name) == ":1");
    }
    assert_eq!(stage.server.ask("EXISTS me"), ":0", "no answer comes twice");
}
