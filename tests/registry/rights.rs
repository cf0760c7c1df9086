//! The rights that docs/redis.md gives: each user has enough, and no more.

use memcuda::keeper::redis::{Server, nodes};
use redis::Connection;
use serde_json::json;

use crate::clients::{address, answer, ask, connect, connect_to, push};
use crate::files::{Keeper, Place};
use crate::redis_server::Redis;
use crate::until;

/// Gives a user the rights of a recipe of docs/redis.md.
pub fn give_documented(admin: &mut Connection, user: &str, prefix: &str) {
    let begin = format!("ACL SETUSER {user} ");
    let document = include_str!("../../docs/redis.md");
    let recipe = document
        .lines()
        .find_map(|line| line.trim().strip_prefix(&begin));
    let recipe = recipe
        .unwrap()
        .replace("NAMESPACE:", prefix)
        .replace("PASSWORD", "secret");
    let words = recipe.split_ascii_whitespace();
    let words: Vec<&str> = ["ACL", "SETUSER", user].into_iter().chain(words).collect();
    ask::<()>(admin, &words);
}

#[test]
fn a_client_with_the_documented_rights_reads_and_orders_and_no_more() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut admin = connect(server.socket());
    give_documented(&mut admin, "client", "");
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    keeper.add(["w"]);
    until("published", || server.has("tensor:w"));
    let address = address(server.socket()) + "?user=client&pass=secret";
    let mut client = connect_to(address);
    let hash: std::collections::HashMap<String, String> =
        ask(&mut client, &["HGETALL", "tensor:w"]);
    assert_eq!(hash["bytes"], "24");
    push(
        &mut client,
        "tensor:cmd",
        r#"{"op":"get","name":"w","reply":"reply:1"}"#,
    );
    assert_eq!(answer(&mut client, "reply:1")["status"], "ok");
    for words in [
        &["DEL", "tensor:w"][..],
        &["HSET", "tensor:w", "bytes", "1"],
        &["LPUSH", "tensor:w", "x"],
        &["BLPOP", "tensor:cmd", "1"],
        &["LPUSH", "memcuda:aside", "x"],
        &["HGETALL", "memcuda:owner"],
        &["EVAL", "return 1", "0"],
    ] {
        let done = redis::cmd(words[0])
            .arg(&words[1..])
            .query::<redis::Value>(&mut client);
        assert_eq!(done.unwrap_err().code(), Some("NOPERM"), "{words:?}");
    }
}

/// The rights that docs/redis.md gives the keeper are enough, with scripts and
/// with functions; and with functions no script runs.
#[test]
fn the_documented_rights_are_enough() {
    for (namespace, functions) in [("", false), ("a", false), ("a", true)] {
        let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
        let mut admin = connect(server.socket());
        let prefix = if namespace.is_empty() { "" } else { "a:" };
        let user = ["keeper", "keeper-functions"][usize::from(functions)];
        give_documented(&mut admin, user, prefix);
        if functions {
            let library = include_str!("../../src/keeper/redis/memcuda.lua");
            ask::<String>(&mut admin, &["FUNCTION", "LOAD", "REPLACE", library]);
        }
        let mut place = Place::of(&server, namespace, 1, directory.path());
        place.address += &format!("?user={user}&pass=secret");
        let keeper = Keeper::start(&place);
        keeper.add(["w"]);
        let key = format!("{prefix}tensor:w");
        until(&format!("published: {}", keeper.state()), || {
            ask(&mut admin, &["EXISTS", &key])
        });
        let reply = format!("{prefix}reply:1");
        for op in ["create", "get", "delete"] {
            let command =
                json!({"op": op, "name": "n", "dtype": "f32", "shape": [2, 3], "reply": reply});
            push(
                &mut admin,
                &format!("{prefix}tensor:cmd"),
                command.to_string(),
            );
            assert_eq!(answer(&mut admin, &reply)["status"], "ok", "{op}");
        }
        let new =
            json!({"op": "newtensor", "key": "/p", "dtype": "f32", "shape": [2, 3], "vtid": 1});
        let queue = format!("{prefix}cmd:heap-cuda:0");
        push(&mut admin, &queue, new.to_string());
        assert_eq!(
            answer(&mut admin, &format!("{prefix}done:1"))["status"],
            "ok"
        );
        until("at its path", || {
            ask(&mut admin, &["EXISTS", &format!("{prefix}/p")])
        });
        ask::<()>(&mut admin, &["FLUSHALL"]);
        until("again", || ask(&mut admin, &["EXISTS", &key]));
        let stats: String = ask(&mut admin, &["INFO", "commandstats"]);
        assert_eq!(stats.contains("cmdstat_eval:"), !functions, "{stats}");
        drop(keeper);
    }
}

/// With `memcuda ls --all-nodes`, which goes through all keys.
#[test]
fn who_looks_with_the_documented_rights_sees_all_nodes() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut admin = connect(server.socket());
    give_documented(&mut admin, "viewer", "");
    let namespaces = ["", "a"];
    let _keepers = namespaces.map(|namespace| {
        let directory = directory.path().join(format!("of{namespace}"));
        let keeper = Keeper::start(&Place::of(&server, namespace, 1, &directory));
        keeper.add(["w"]);
        keeper
    });
    until("published", || {
        server.ask("EXISTS tensor:w a:tensor:w") == ":2"
    });
    let address = address(server.socket()) + "?user=viewer&pass=secret";
    let seen = nodes(&Server::new(&address).unwrap()).unwrap();
    let seen: Vec<_> = seen
        .iter()
        .map(|node| (&*node.namespace, node.entries.len()))
        .collect();
    assert_eq!(seen, [("", 1), ("a", 1)]);
    let mut viewer = connect_to(address);
    for words in [
        &["DEL", "tensor:w"][..],
        &["LPUSH", "tensor:cmd", "x"],
        &["GET", "other"],
    ] {
        let done = redis::cmd(words[0])
            .arg(&words[1..])
            .query::<redis::Value>(&mut viewer);
        assert_eq!(done.unwrap_err().code(), Some("NOPERM"), "{words:?}");
    }
}
