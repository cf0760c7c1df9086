//! The process that serves the queue is killed at any moment: every command is
//! answered once or set aside, and what was answered is so.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clients::{address, answer, answers, ask, connect, push};
use crate::files::put;
use crate::redis_server::Redis;
use crate::served::Served;
use crate::waiting::LONG;
use crate::{until, within};

#[test]
fn every_command_is_answered_once_or_set_aside_over_100_kills() {
    const KILLS: u64 = 100;
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let names = directory.path().join("names");
    std::fs::create_dir(&names).unwrap();
    let file = |name: &str| names.join(name);
    let make = |name: &str| {
        let generation = format!("{:032x}", u128::from(name.len() as u64) + 1);
        put(&file(name), &generation);
    };
    make("fixed");
    let answered = |redis: &mut _| ask::<u64>(redis, &["LLEN", "answers"]);
    let (mut pushed, mut kills) = (0_u64, 0);
    let begun = Instant::now();
    while kills < KILLS {
        let served = Served::start(&address(server.socket()), directory.path());
        // At any moment: of every other one while it starts, of the rest while it takes
        // up, makes, answers, however slow the machine is.
        let moment = Duration::from_millis(20 + kills * 7919 % 130);
        let (begun, before) = (Instant::now(), answered(&mut redis));
        let mut until = (kills % 2 == 0).then_some(begun + moment);
        while until.is_none_or(|until| Instant::now() < until) {
            assert!(begun.elapsed() < LONG, "no answer");
            let answered = answered(&mut redis);
            if until.is_none() && answered > before + 10 {
                until = Some(Instant::now() + moment);
            }
            if pushed - answered > 60 {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            let id = pushed;
            let mut command = match id % 5 {
                0 => {
                    json!({"op": "create", "name": format!("c{id}"), "dtype": "f32", "shape": [2, 3]})
                }
                1 => json!({"op": "get", "name": "fixed"}),
                2 => json!({"op": "get", "name": format!("missing{id}")}),
                3 => {
                    make(&format!("d{id}"));
                    json!({"op": "delete", "name": format!("d{id}")})
                }
                _ => json!({"op": "create", "name": "no name", "bytes": -1}),
            };
            command["id"] = json!(id);
            command["reply"] = json!("answers");
            let queue = ["tensor:cmd", "tensor_lifecycle"][(id % 2) as usize];
            push(&mut redis, queue, command.to_string());
            pushed += 1;
        }
        drop(served);
        kills += 1;
    }
    let _served = Served::start(&address(server.socket()), directory.path());
    within(Duration::from_secs(60), "all answered", || {
        let keys = ["tensor:cmd", "tensor_lifecycle"]
            .map(|q| format!("{q} memcuda:taken:{q} memcuda:making:{q}"));
        server.ask(&format!("EXISTS {}", keys.join(" "))) == ":0"
    });
    let answers = answers(&mut redis, "answers");
    let aside: u64 = ask(&mut redis, &["LLEN", "memcuda:aside"]);
    let mut poisoned = 0;
    for id in 0..pushed {
        let [answer] = &answers.get(&id).map_or(&[][..], |all| &all[..]) else {
            panic!("command {id}: {:?}", answers.get(&id));
        };
        let code = answer["error"]["code"].as_str();
        if code == Some("POISONED") {
            poisoned += 1;
            continue;
        }
        match id % 5 {
            0 => {
                assert_eq!(code, None, "{answer}");
                assert!(file(&format!("c{id}")).exists(), "{answer}");
            }
            1 => assert_eq!(code, None, "{answer}"),
            2 => assert_eq!(code, Some("NOT_FOUND")),
            3 => {
                assert_eq!(code, None, "{answer}");
                assert!(!file(&format!("d{id}")).exists(), "{answer}");
            }
            _ => assert_eq!(code, Some("INVALID")),
        }
    }
    assert_eq!(aside, poisoned);
    for left in ["memcuda:tries", "memcuda:notes"] {
        assert_eq!(server.ask(&format!("EXISTS {left}")), ":0", "{left}");
    }
    println!(
        "{kills} kills, {pushed} commands, each answered once, {poisoned} of them set aside; {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    assert!(pushed > 500, "hardly any load: {pushed}");
}

/// Where there is no room for a thread's stack it waits for room, and not for others to come.
#[test]
fn what_no_thread_could_be_started_for_is_made_once_there_can_be_one() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let served = Served::start(&address(server.socket()), directory.path());
    let asked =
        |op, name| json!({"op": op, "name": name, "dtype": "f32", "shape": [2, 3], "reply": "me"});
    push(&mut redis, "tensor:cmd", asked("get", "w").to_string());
    until("answered", || server.ask("LLEN me") == ":1");
    served.addresses(Some(1 << 20));
    push(&mut redis, "tensor:cmd", asked("create", "w").to_string());
    let making = || server.ask("EXISTS memcuda:making:tensor:cmd") == ":1";
    until("put off", making);
    std::thread::sleep(Duration::from_millis(500));
    assert!(making(), "there was room: {}", served.log());
    served.addresses(None);
    until("made", || server.ask("LLEN me") == ":2");
}

#[test]
fn messages_of_10_mib_are_not_taken_in() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let served = Served::start(&address(server.socket()), directory.path());
    let small = r#"{"op":"get","name":"w","reply":"me"}"#;
    push(&mut redis, "tensor:cmd", small);
    until("answered", || server.ask("LLEN me") == ":1");
    let before = served.peak_bytes();
    let long = format!(
        r#"{{"op":"get","name":"{}","reply":"me"}}"#,
        "x".repeat(10 << 20)
    );
    for n in 0..4 {
        push(&mut redis, "tensor:cmd", &long);
        until("answered", || {
            server.ask("LLEN me") == format!(":{}", n + 2)
        });
    }
    let grown = served.peak_bytes() - before;
    println!(
        "{} KiB at most, {} KiB more than before",
        served.peak_bytes() >> 10,
        grown >> 10
    );
    assert!(grown < 2 << 20, "{grown} bytes were taken in");
}

#[test]
fn a_command_that_nobody_survives_is_set_aside() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let names = directory.path().join("names");
    std::fs::create_dir(&names).unwrap();
    std::fs::write(names.join(".held"), "").unwrap();
    let deadly = r#"{"op":"create","name":"w","dtype":"f32","shape":[2,3],"reply":"me"}"#;
    push(&mut redis, "tensor:cmd", deadly);
    for tries in 0..3 {
        let served = Served::start(&address(server.socket()), directory.path());
        until("begun", || {
            // What the one before left stands until this one has counted it: that first.
            ask::<Vec<u64>>(&mut redis, &["HVALS", "memcuda:tries"])
                .iter()
                .sum::<u64>()
                == tries
                && server.ask("LLEN memcuda:making:tensor:cmd") == ":1"
                && server.ask("HLEN memcuda:notes") == ":1"
        });
        drop(served);
    }
    let _served = Served::start(&address(server.socket()), directory.path());
    assert_eq!(answer(&mut redis, "me")["error"]["code"], "POISONED");
    let record: String = ask(&mut redis, &["LINDEX", "memcuda:aside", "0"]);
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["message"], deadly);
    assert_eq!(
        server.ask("EXISTS memcuda:making:tensor:cmd memcuda:tries"),
        ":0"
    );
}

/// What is counted is how often each was tried, not how often it was sent.
#[test]
fn a_command_that_was_sent_several_times_is_tried_as_often_as_another() {
    let (server, directory) = (Redis::start(), tempfile::tempdir().unwrap());
    let mut redis = connect(server.socket());
    let names = directory.path().join("names");
    std::fs::create_dir(&names).unwrap();
    std::fs::write(names.join(".held"), "").unwrap();
    let command = r#"{"op":"create","name":"w","dtype":"f32","shape":[2,3],"reply":"me"}"#;
    for _ in 0..3 {
        push(&mut redis, "tensor:cmd", command);
    }
    let served = Served::start(&address(server.socket()), directory.path());
    until("begun", || {
        server.ask("LLEN memcuda:making:tensor:cmd") == ":3"
            && server.ask("HLEN memcuda:notes") == ":1"
    });
    drop(served);
    std::fs::remove_file(names.join(".held")).unwrap();
    let _served = Served::start(&address(server.socket()), directory.path());
    for _ in 0..3 {
        let answer = answer(&mut redis, "me");
        assert_ne!(answer["error"]["code"], "POISONED", "{answer}");
    }
}
