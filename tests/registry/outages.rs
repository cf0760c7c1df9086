//! Redis absent, slow, full, read-only, with another password, behind another
//! protocol, with few rights: names are the keeper's and go on, one line says
//! so, and all is published when it is well again.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use memcuda::keeper::redis::{Server, nodes};
use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::clients::{address, answer, ask, connect, connect_to, push};
use crate::files::{Keeper, Place, put};
use crate::redis_server::Redis;
use crate::rights::give_documented;
use crate::served::Served;
use crate::until;
use crate::waiting::LONG;

/// Makes a name in a served directory.
fn make(directory: &Path, name: &str) {
    let names = directory.join("names");
    fs::create_dir_all(&names).unwrap();
    put(&names.join(name), &format!("{:032x}", 7));
}

/// A served directory with one name that is published.
fn published(server: &Redis) -> (tempfile::TempDir, Served) {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), "a");
    let served = Served::start(&address(server.socket()), directory.path());
    until("published", || server.has("tensor:a"));
    (directory, served)
}

/// An outage of some kind: one line says why, whatever is tried meanwhile, and
/// what was made in it is published afterwards.
fn outage(
    why: &str,
    server: &mut Redis,
    begin: impl FnOnce(&mut Redis),
    end: impl FnOnce(&mut Redis),
) {
    let (directory, served) = published(server);
    begin(server);
    make(directory.path(), "meanwhile");
    until("a line", || served.log().contains(why));
    std::thread::sleep(Duration::from_millis(2500));
    let log = served.log();
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    assert!(!log.contains("panicked"), "{log}");
    end(server);
    let begun = Instant::now();
    until("published", || server.has("tensor:meanwhile"));
    println!(
        "{why}: published {} ms after it was over",
        begun.elapsed().as_millis()
    );
    until("said", || served.log().contains("again"));
}

#[test]
fn a_server_that_is_full() {
    outage(
        "OOM",
        &mut Redis::start(),
        |server| {
            let _: () = ask(
                &mut connect(server.socket()),
                &["SET", "filler", &"x".repeat(4 << 20)],
            );
            assert_eq!(server.ask("CONFIG SET maxmemory 2mb"), "+OK");
        },
        |server| assert_eq!(server.ask("DEL filler"), ":1"),
    );
}

#[test]
fn a_server_that_becomes_a_replica() {
    outage(
        "READONLY",
        &mut Redis::start(),
        |server| assert_eq!(server.ask("REPLICAOF 127.0.0.1 1"), "+OK"),
        |server| assert_eq!(server.ask("REPLICAOF NO ONE"), "+OK"),
    );
}

#[test]
fn a_server_that_asks_for_a_password() {
    let mut server = Redis::start();
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(server.ask("CONFIG SET requirepass right"), "+OK");
    make(directory.path(), "a");
    let wrong = address(server.socket()) + "?pass=wrong";
    let served = Served::start(&wrong, directory.path());
    until("a line", || served.log().contains("WARN"));
    std::thread::sleep(Duration::from_millis(2500));
    let log = served.log();
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    assert!(
        !log.contains("wrong"),
        "the password is nobody's to see: {log}"
    );
    let mut admin = connect_to(address(server.socket()) + "?pass=right");
    ask::<()>(&mut admin, &["CONFIG", "SET", "requirepass", "wrong"]);
    until("published", || ask(&mut admin, &["EXISTS", "tensor:a"]));
    server.kill();
}

#[test]
fn a_server_that_stands_still() {
    let pid = |server: &Redis| Pid::from_raw(server.pid() as i32).unwrap();
    outage(
        "no answer within",
        &mut Redis::start(),
        |server| kill_process(pid(server), Signal::STOP).unwrap(),
        |server| kill_process(pid(server), Signal::CONT).unwrap(),
    );
}

/// Which is not the same as that there is none.
#[test]
fn a_server_that_has_not_answered_yet() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let keeper = Keeper::start(&Place {
        address: address(socket),
        namespace: "",
        node: 1,
        directory: directory.path(),
    });
    let state = keeper.state();
    assert!(state.contains("silent.sock: connecting"), "{state}");
    keeper.stop();
}

#[test]
fn a_server_that_comes_later() {
    let mut server = Redis::start();
    server.kill();
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), "a");
    let served = Served::start(&address(server.socket()), directory.path());
    until("a line", || served.log().contains("WARN"));
    server.start_again();
    until("published", || server.has("tensor:a"));
}

#[test]
fn the_keeper_waits_for_no_server() {
    let server = Redis::start();
    let directory = tempfile::tempdir().unwrap();
    let keeper = Keeper::start(&Place::bare(&server, directory.path()));
    keeper.add(["a"]);
    until("published", || server.has("tensor:a"));
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let mut longest = Duration::ZERO;
    for n in 0..200 {
        let begun = Instant::now();
        keeper.add([format!("w{n}").as_str()]);
        longest = longest.max(begun.elapsed());
    }
    println!("the longest of 200 names took {} ms", longest.as_millis());
    // Who waits for one does it for three seconds.
    assert!(longest < Duration::from_secs(3));
    // Nor does its end.
    let begun = Instant::now();
    keeper.stop();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn an_address_that_is_none_is_one_line_without_the_password() {
    for wrong in [
        "nonsense",
        "http://:secret@h/",
        "redis://user:secret@h:port/",
        "",
    ] {
        let said = Server::new(wrong).err().unwrap().to_string();
        assert!(said.contains("accepted: redis://"), "{said}");
        assert!(!said.contains("secret") && !said.contains('\n'), "{said}");
    }
    let server = Server::new("rediss://:secret@127.0.0.1:1/").unwrap();
    let said = nodes(&server).unwrap_err();
    assert!(!said.to_string().contains("secret"), "{said}");
}

/// Nor is anybody told by it where the answer would have to be written over something.
#[test]
fn an_answer_to_a_list_of_others_holds_nobody_up() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut admin = connect(server.socket());
    give_documented(&mut admin, "keeper", "");
    let mut place = Place::bare(&server, directory.path());
    place.address += "?user=keeper&pass=secret";
    let keeper = Keeper::start(&place);
    keeper.add(["w"]);
    // What else the keeper keeps in Redis does not hold it up either.
    for key in ["memcuda:tries", "memcuda:notes"] {
        ask::<()>(&mut admin, &["SET", key, "somebody's"]);
    }
    for reply in ["answers:1", "reply:1", "answers:2", "reply:2"] {
        let get = json!({"op": "get", "name": "w", "reply": reply});
        push(&mut admin, "tensor:cmd", get.to_string());
    }
    for reply in ["reply:1", "reply:2"] {
        assert_eq!(answer(&mut admin, reply)["status"], "ok");
        assert!(!server.has(reply), "it was answered twice");
    }
    assert_eq!(server.ask("LLEN memcuda:aside"), ":2");
    let record: String = ask(&mut admin, &["LINDEX", "memcuda:aside", "0"]);
    assert!(
        record.contains("answers:2") && record.contains("NOPERM"),
        "{record}"
    );
    assert_eq!(server.ask("LLEN memcuda:taken:tensor:cmd"), ":0");
}

/// It answers at once then, and would be asked again at once.
#[test]
fn a_queue_that_is_no_list_is_not_asked_all_the_time() {
    let server = Redis::start();
    let (directory, served) = published(&server);
    let mut admin = connect(server.socket());
    ask::<()>(&mut admin, &["SET", "tensor:cmd", "somebody's"]);
    until("a line", || served.log().contains("commands in tensor:cmd"));
    let calls = |admin: &mut Connection| {
        let stats: String = ask(admin, &["INFO", "stats"]);
        let of = |line: &str| line.strip_prefix("total_commands_processed:")?.parse().ok();
        let calls: u64 = stats.lines().find_map(of).unwrap();
        calls
    };
    let (begun, before) = (Instant::now(), calls(&mut admin));
    std::thread::sleep(Duration::from_millis(300));
    let (asked, time) = (calls(&mut admin) - before, begun.elapsed());
    assert!(
        u128::from(asked) < time.as_millis() / 3,
        "{asked} in {time:?}"
    );
    let log = served.log();
    assert!(log.contains("is no list but a string"), "{log}");
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    ask::<()>(&mut admin, &["DEL", "tensor:cmd"]);
    let get = json!({"op": "get", "name": "a", "reply": "reply:1"});
    push(&mut admin, "tensor:cmd", get.to_string());
    assert_eq!(answer(&mut admin, "reply:1")["status"], "ok");
    drop((directory, served));
}

/// Names are published all the same, and that says nothing of commands.
#[test]
fn a_queue_that_may_not_be_listened_to_is_told_of() {
    let server = Redis::start();
    server.ask("ACL SETUSER default -client|reply");
    let (directory, served) = published(&server);
    let line = "commands in tensor:cmd are not taken for now";
    until("a line", || served.log().contains(line));
    let log = served.log();
    assert!(log.contains("NOPERM"), "{log}");
    server.ask("ACL SETUSER default +client|reply");
    let get = json!({"op": "get", "name": "a", "reply": "reply:1"});
    let mut admin = connect(server.socket());
    push(&mut admin, "tensor:cmd", get.to_string());
    assert_eq!(answer(&mut admin, "reply:1")["status"], "ok");
    until("said", || {
        let log = served.log();
        log.contains("commands in tensor:cmd are taken again")
    });
    drop((directory, served));
}
