//! Names in Redis: which fields, when they go, what brings them back, and whose
//! keys they are.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use base64::Engine;
use memcuda::keeper::redis::{Server, nodes};
use memcuda::share::handle::Handle;

use crate::clients::{address, ask, connect};
use crate::files::{Keeper, Place, SLOW, put};
use crate::redis_server::Redis;
use crate::until;

#[test]
fn a_name_is_a_hash_with_every_field_and_goes_with_it() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let keeper = Keeper::start(&Place::of(&server, "", 0x77, directory.path()));
    let mut redis = connect(server.socket());
    keeper.add(["layer/0"]);
    until("published", || {
        ask(&mut redis, &["EXISTS", "tensor:layer/0"])
    });
    let hash: HashMap<String, String> = ask(&mut redis, &["HGETALL", "tensor:layer/0"]);
    let wanted = [
        ("name", "layer/0"),
        ("dtype", "f32"),
        ("shape", "[2,3]"),
        ("device", "1"),
        ("bytes", "24"),
        ("owner_pid", "7"),
        ("refcount", "2"),
        ("ctime", "1700000000"),
        ("mtime", "1700000001"),
        ("node", "0000000000000077"),
        ("device_uuid", "GPU-abababab-abab-abab-abab-abababababab"),
        ("state", "ready"),
        ("version", "5"),
        ("read_only", "0"),
        (
            "holders",
            r#"[{"command":"maker","count":2,"pid":7,"started":70,"uid":0}]"#,
        ),
        ("persist", "yes"),
        ("backend", "vmm"),
        (
            "broker",
            &directory.path().join("keeper.sock").display().to_string(),
        ),
    ];
    for (field, value) in wanted {
        assert_eq!(hash[field], value, "{field}");
    }
    let handle = base64::engine::general_purpose::STANDARD.decode(&hash["ipc_handle"]);
    let handle = Handle::from_bytes(&handle.unwrap().try_into().unwrap()).unwrap();
    assert_eq!(handle.generation.to_string(), hash["generation"]);
    assert_eq!(
        (handle.node, handle.bytes, handle.mapped),
        (0x77, 24, 2 << 20)
    );
    assert_eq!(hash.len(), wanted.len() + 2);

    // Another generation under the same name is another hash.
    keeper.add(["layer/0"]);
    until("the next generation", || {
        let now: String = ask(&mut redis, &["HGET", "tensor:layer/0", "generation"]);
        now != hash["generation"]
    });
    keeper.remove(["layer/0"]);
    until("gone", || {
        !ask::<bool>(&mut redis, &["EXISTS", "tensor:layer/0"])
    });
    assert!(keeper.state().ends_with("published"), "{}", keeper.state());
}

/// Else they would end before all is published, and again.
#[test]
fn keys_are_kept_alive_while_everything_is_published() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let names = directory.path().join("names");
    std::fs::create_dir(&names).unwrap();
    std::fs::write(names.join(SLOW), "").unwrap();
    for n in 0..600 {
        put(&names.join(format!("w{n}")), &format!("{n:032x}"));
    }
    let _keeper = Keeper::start(&Place::bare(&server, directory.path()));
    let mut redis = connect(server.socket());
    let mut least = i64::MAX;
    until("a sign of life", || {
        let left: i64 = ask(&mut redis, &["PTTL", "memcuda:owner"]);
        let count: u64 = ask(&mut redis, &["SCARD", "memcuda:names"]);
        assert!(count < 600, "all is published, and none was seen");
        let is_owned = left >= 0;
        if is_owned {
            least = least.min(left);
        }
        is_owned && left > least + 100
    });
    until("all published", || {
        server.ask("SCARD memcuda:names") == ":600"
    });
}

#[test]
fn an_emptied_server_is_filled_again_while_names_come_and_go() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    let mut redis = connect(server.socket());
    let names: Vec<String> = (0..300).map(|n| format!("w{n}")).collect();
    keeper.add(names.iter().map(String::as_str));
    let published = |redis: &mut redis::Connection| -> BTreeSet<String> {
        ask::<BTreeSet<String>>(redis, &["KEYS", "tensor:*"])
    };
    until("all published", || published(&mut redis).len() == 300);
    for round in 0..10 {
        let command = ["FLUSHALL", "FLUSHDB", "SCRIPT"][round % 3];
        match command {
            "SCRIPT" => ask::<()>(&mut redis, &["SCRIPT", "FLUSH"]),
            command => ask::<()>(&mut redis, &[command]),
        }
        // Some go and some come while it is being filled.
        keeper.remove([names[round].as_str()]);
        let new = format!("new{round}");
        keeper.add([new.as_str()]);
        let wanted: BTreeSet<_> = keeper
            .names()
            .iter()
            .map(|n| format!("tensor:{n}"))
            .collect();
        until("filled again", || published(&mut redis) == wanted);
    }
    // One hash alone that somebody takes away comes back, too.
    ask::<()>(&mut redis, &["DEL", "tensor:w250"]);
    until("back", || ask(&mut redis, &["EXISTS", "tensor:w250"]));
}

/// Without it what goes from Redis would not be missed, nor go at the end.
#[test]
fn the_set_of_names_comes_back() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    keeper.add(["a", "b"]);
    until("published", || server.ask("SCARD memcuda:names") == ":2");
    server.ask("DEL memcuda:names tensor:a");
    until("back", || {
        server.ask("SCARD memcuda:names") == ":2" && server.has("tensor:a")
    });
    server.ask("DEL memcuda:names tensor:a");
    keeper.add(["c"]);
    until("back beside a new one", || {
        server.ask("SCARD memcuda:names") == ":3" && server.has("tensor:a")
    });
    keeper.stop();
    assert_eq!(server.ask("DBSIZE"), ":0");
}

#[test]
fn a_killed_server_is_filled_when_it_is_back() {
    let (mut server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    keeper.add(["a", "b"]);
    until("published", || server.has("tensor:b"));
    for round in 0..3 {
        server.kill();
        keeper.add([format!("while-away-{round}").as_str()]);
        until("noticed", || !keeper.state().ends_with("published"));
        server.start_again();
        let begun = Instant::now();
        until("back", || {
            server.ask(&format!("EXISTS tensor:while-away-{round}")) == ":1"
        });
        until("all", || {
            server.ask("SCARD memcuda:names") == format!(":{}", 3 + round)
        });
        println!("filled {} ms after its start", begun.elapsed().as_millis());
    }
}

#[test]
fn stale_names_go_at_the_start_and_all_keys_at_an_orderly_end() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let at = Place::bare(&server, directory.path());
    let keeper = Keeper::start(&at);
    keeper.add(["a", "b"]);
    until("published", || server.ask("SCARD memcuda:names") == ":2");
    // It ends without a word, and b with it.
    drop(keeper);
    std::fs::remove_file(directory.path().join("names/b")).unwrap();
    let keeper = Keeper::start(&at);
    until("stale", || !server.has("tensor:b"));
    assert!(server.has("tensor:a"));
    keeper.stop();
    assert_eq!(server.ask("DBSIZE"), ":0");
}

#[test]
fn bare_keys_belong_to_one_keeper_and_namespaces_do_not_meet() {
    let server = Redis::start();
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let first = Keeper::start(&Place::of(&server, "", 1, directories[0].path()));
    first.add(["w"]);
    until("published", || server.has("tensor:w"));
    let second = Keeper::start(&Place::of(&server, "", 2, directories[1].path()));
    second.add(["w", "other"]);
    until("refused", || second.state().contains("MEMCUDA_NAMESPACE"));
    let third = Keeper::start(&Place::of(&server, "b", 3, directories[2].path()));
    third.add(["w"]);
    until("published", || server.has("b:tensor:w"));
    let mut redis = connect(server.socket());
    let node =
        |redis: &mut redis::Connection, key: &str| -> String { ask(redis, &["HGET", key, "node"]) };
    assert_eq!(node(&mut redis, "tensor:w"), "0000000000000001");
    assert_eq!(node(&mut redis, "b:tensor:w"), "0000000000000003");
    assert!(!server.has("tensor:other"));

    let nodes = nodes(&Server::new(&address(server.socket())).unwrap()).unwrap();
    let seen: Vec<_> = nodes
        .iter()
        .map(|n| (n.namespace.as_str(), n.node.as_str(), n.entries.len()))
        .collect();
    assert_eq!(
        seen,
        [("", "0000000000000001", 1), ("b", "0000000000000003", 1)]
    );
    assert!(
        nodes
            .iter()
            .all(|n| !n.host.is_empty() && n.entries[0].bytes == 24)
    );

    // The bare keys are free when their keeper is gone.
    first.stop();
    until("taken over", || server.has("tensor:other"));
    assert_eq!(node(&mut redis, "tensor:w"), "0000000000000002");
    third.stop();
    assert!(server.has("tensor:w"));
}

#[test]
fn what_is_not_ours_is_left_alone_and_no_late_write_brings_a_ghost_back() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    ask::<()>(&mut redis, &["SET", "tensor:text", "mine"]);
    ask::<()>(&mut redis, &["HSET", "tensor:hash", "name", "mine"]);
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    keeper.add(["text", "hash", "w"]);
    until("published", || server.has("tensor:w"));
    assert_eq!(ask::<String>(&mut redis, &["GET", "tensor:text"]), "mine");
    assert_eq!(ask::<u64>(&mut redis, &["HLEN", "tensor:hash"]), 1);
    keeper.remove(["text", "hash"]);
    keeper.add(["after"]);
    until("heard", || server.has("tensor:after"));
    assert_eq!(server.ask("EXISTS tensor:text tensor:hash"), ":2");

    // Somebody else takes the keys: what we write now is late.
    let term = ask::<String>(&mut redis, &["HGET", "memcuda:owner", "term"]);
    ask::<()>(
        &mut redis,
        &["HSET", "memcuda:owner", "keeper", "another", "term", "1"],
    );
    keeper.remove(["w"]);
    keeper.add(["late"]);
    until("refused", || {
        keeper.state().contains("belong to the keeper")
    });
    assert!(!server.has("tensor:late"));
    assert!(server.has("tensor:w"));
    assert_ne!(term, "1");
    // When they are ours again, everything is as it should be.
    ask::<()>(&mut redis, &["DEL", "memcuda:owner"]);
    until("published", || server.has("tensor:late"));
    until("gone", || !server.has("tensor:w"));
}
