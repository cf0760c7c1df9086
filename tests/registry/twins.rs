//! Commands of the very same bytes, and many that wait for one name.

use std::fs;

use serde_json::json;

use crate::clients::{answer, ask, connect, push};
use crate::files::{Keeper, Place};
use crate::redis_server::Redis;
use crate::until;

const DELETE: &str = r#"{"op":"delete","name":"w","reply":"deleted"}"#;
/// A generation that no name has.
const FORMER: &str = "0123456789abcdef0123456789abcdef";

/// By what the keeper remembers a command.
fn digest(command: &str) -> String {
    redis::Script::new(command).get_hash().to_owned()
}

/// Which remembers its generation until it is answered.
#[test]
fn a_delete_beside_one_that_is_under_way_deletes() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    keeper.add(["w"]);
    ask::<()>(
        &mut redis,
        &["HSET", "memcuda:notes", &digest(DELETE), FORMER],
    );
    push(&mut redis, "tensor:cmd", DELETE);
    assert_eq!(answer(&mut redis, "deleted")["status"], "ok");
    assert!(keeper.names().is_empty());
}

/// The first of them is the one that it had taken up.
#[test]
fn a_delete_that_a_keeper_before_had_not_taken_up_deletes() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    fs::create_dir(directory.path().join("names")).unwrap();
    let held = directory.path().join("names/.held");
    fs::write(&held, "").unwrap();
    let field = digest(DELETE);
    ask::<()>(&mut redis, &["HSET", "memcuda:notes", &field, FORMER]);
    ask::<()>(&mut redis, &["HSET", "memcuda:tries", &field, "1"]);
    let create = r#"{"op":"create","name":"w","bytes":24}"#;
    for command in [create, DELETE, DELETE] {
        push(&mut redis, "tensor:cmd", command);
    }
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    until("all wait", || {
        server.ask("LLEN memcuda:making:tensor:cmd") == ":3"
    });
    fs::remove_file(held).unwrap();
    for _ in 0..2 {
        assert_eq!(answer(&mut redis, "deleted")["status"], "ok");
    }
    assert!(keeper.names().is_empty());
}

/// Nor do those that are many bytes stop the other queues.
#[test]
fn commands_that_wait_for_one_name_let_others_pass() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let _keeper = Keeper::start(&Place::bare(&server, directory.path()));
    let held = directory.path().join("names/.held");
    fs::write(&held, "").unwrap();
    let create = json!({"op": "create", "name": "w", "bytes": 24, "reply": "made"});
    push(&mut redis, "tensor:cmd", create.to_string());
    let get = |name: &str, reply: &str, filler: usize| {
        json!({"op": "get", "name": name, "reply": reply, "filler": "x".repeat(filler)}).to_string()
    };
    for _ in 0..100 {
        push(&mut redis, "tensor:cmd", get("w", "behind", 0));
    }
    for queue in ["tensor:cmd", "tensor_lifecycle"] {
        push(&mut redis, queue, get("other", "passed", 0));
        assert_eq!(answer(&mut redis, "passed")["error"]["code"], "NOT_FOUND");
    }
    // No more of them are held here than so much.
    for _ in 0..40 {
        push(&mut redis, "tensor:cmd", get("w", "behind", 60 << 10));
    }
    let waits = || ask::<u64>(&mut connect(server.socket()), &["LLEN", "tensor:cmd"]);
    until("some were taken", || waits() < 40);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(waits() > 20, "{}", waits());
    push(&mut redis, "tensor_lifecycle", get("other", "passed", 0));
    assert_eq!(answer(&mut redis, "passed")["error"]["code"], "NOT_FOUND");
    assert!(!server.has("made") && !server.has("behind"));
    fs::remove_file(held).unwrap();
    until("all answered", || server.ask("LLEN behind") == ":140");
}
