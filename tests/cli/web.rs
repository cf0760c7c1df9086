//! What `memcuda web` tells: processes, maps, names, metrics. Whom it tells is
//! in `web_access`; the page itself is looked at in `browser`.

use std::time::{Duration, Instant};

use memcuda::share::client::PATIENCE;
use memcuda::stats_page::{Counters, VERSION};
use serde_json::Value;

use crate::server::Server;
use crate::snapshot::{Holder, mixed};
use crate::stand_in::{StandIn, entry, holders, listening};
use crate::stat::{Shown, counters};
use crate::{NO_THREADS, UNLISTED, failed, library, memcuda, stdout, until};

#[test]
fn a_process_is_shown_with_its_counters_rates_and_history() {
    let shown = Shown::new(VERSION, &[counters()]);
    let server = Server::alone();
    let pool = server.pool(&shown.pid());
    assert_eq!(pool["live_bytes"], 3_u64 << 30);
    assert_eq!(
        (&pool["ordinal"], &pool["command"]),
        (&1.into(), &"sleep".into())
    );
    let name = pool["pool"].as_str().unwrap().to_owned();

    let mut more = counters();
    more.pool.requests += 5000;
    more.pool.physical_bytes += 1 << 30;
    more.pool.out_of_memory += 2;
    // A rate is of the last sample alone, and a busy machine may miss one: so the
    // process goes on working.
    until("there is a rate", || {
        more.pool.requests += 5000;
        shown.change(&[more]);
        let rate = server.pool(&shown.pid())["requests_rate"].as_f64();
        rate.is_some_and(|rate| rate >= 100.0)
    });
    let samples = server.json(&format!("/api/samples?pools={name}"));
    let physical = samples[0]["physical"].as_array().unwrap();
    assert_eq!(physical.first().unwrap(), 4_u64 << 30);
    assert_eq!(physical.last().unwrap(), 5_u64 << 30);
    let times = samples[0]["time_ms"].as_array().unwrap();
    let last = times.last().unwrap();
    let newer = server.json(&format!("/api/samples?pools={name}&after_ms={last}"));
    assert!(newer[0]["physical"].as_array().unwrap().len() < 10);
    let events = server.json("/api/events").to_string();
    let grew = format!("sleep {} grew 1.0 GiB", shown.pid());
    let failed = format!("sleep {}: 2 allocations failed", shown.pid());
    assert!(
        events.contains(&grew) && events.contains(&failed),
        "{events}"
    );

    // It shows no pool, and has none on its picture either.
    let (status, _, why) = server.get(&format!("/api/map?pool={name}"));
    assert_eq!(status, 200);
    let said = format!("{{\"why\":\"process {}", shown.pid());
    assert!(why.starts_with(&said), "{why}");
    let pid = shown.pid();
    drop(shown);
    let ended = format!("{pid} ended");
    let events = || server.json("/api/events").to_string();
    until("its end is told", || events().contains(&ended));
    // Whose pool it was is looked up anew, a moment after its end was told.
    let map = || server.json(&format!("/api/map?pool={name}"));
    until("its map is gone", || {
        map()["why"].as_str().unwrap().contains("has ended")
    });
}

#[test]
fn the_map_has_every_physical_byte() {
    let holder = Holder::start(&[], &mixed());
    let server = Server::alone();
    let pool = server.pool(&holder.pid());
    let map = server.json(&format!("/api/map?pool={}", pool["pool"].as_str().unwrap()));
    let chunks = map["chunks"].as_array().unwrap();
    let mut sums = [0; 5];
    for chunk in chunks {
        let parts = chunk["parts"].as_array().unwrap();
        let bytes: u64 = parts.iter().map(|part| part[0].as_u64().unwrap()).sum();
        assert_eq!(bytes, chunk["bytes"].as_u64().unwrap());
        for part in parts {
            sums[part[1].as_u64().unwrap() as usize] += part[0].as_u64().unwrap();
        }
    }
    assert_eq!(
        sums.iter().sum::<u64>(),
        pool["physical_bytes"].as_u64().unwrap()
    );
    assert_eq!(sums[0] + sums[1], map["live_bytes"].as_u64().unwrap());
    assert_eq!(sums[2] + sums[3], pool["idle_bytes"].as_u64().unwrap());
    assert!(sums[0] > 0 && map["idle_runs"].as_u64().unwrap() > 0);
    assert!(
        map["streams"].as_array().unwrap().len() > 1,
        "{}",
        map["streams"]
    );
    assert_eq!(map["name"], "memcuda simulated GPU");
}

#[test]
fn names_come_in_pages_filtered_and_sorted() {
    let mut entries = Vec::new();
    for number in 0..120_u8 {
        let mut it = entry(number, &format!("layer.{number:03}"), 5, holders(1));
        it.mapped = u64::from(number) << 20;
        entries.push(it);
    }
    let keeper = StandIn::with(entries);
    let server = Server::start(&mut keeper.memcuda(), &[]);
    let first = |page: &Value| page["names"][0]["name"].as_str().unwrap_or("-").to_owned();
    let page = server.json("/api/names?count=50");
    assert_eq!(
        (&page["total"], first(&page)),
        (&120.into(), "layer.000".to_owned())
    );
    assert_eq!(page["names"].as_array().unwrap().len(), 50);
    let page = server.json("/api/names?count=50&from=100");
    assert_eq!(page["names"].as_array().unwrap().len(), 20);
    let page = server.json("/api/names?count=50&from=99999");
    assert_eq!(
        (&page["from"], first(&page)),
        (&100.into(), "layer.100".to_owned())
    );
    assert_eq!(first(&server.json("/api/names?sort=size")), "layer.119");
    let page = server.json("/api/names?filter=LAYER.01");
    assert_eq!(
        (&page["total"], first(&page)),
        (&10.into(), "layer.010".to_owned())
    );
    assert_eq!(
        server.json("/api/names?filter=trainer%202000")["total"],
        120
    );
    assert_eq!(server.json("/api/names?filter=nobody&count=0")["total"], 0);
    keeper.entries.lock().unwrap().pop();
    until("one is gone", || server.json("/api/names")["total"] == 119);
    until("that is told", || {
        let events = server.json("/api/events").to_string();
        events.contains("name gone")
    });
    // Who sees it is not given the key to the memory, which the keeper gives its own user.
    let mut of_the_driver = entry(121, "of-the-driver", 5, holders(1));
    of_the_driver.legacy = vec![255; 64];
    keeper.entries.lock().unwrap().push(of_the_driver);
    let found = || server.json("/api/names?filter=of-the-driver");
    until("it is there", || found()["total"] == 1);
    assert_eq!(found()["names"][0]["ipc_handle"], Value::Null);
    let alone = Server::alone().json("/api/names");
    let nobody = alone["nobody"].as_str().unwrap();
    assert!(nobody.starts_with("MEMCUDA_KEEPER is off"));
}

/// As one that is busy for longer than a view waits.
#[test]
fn names_are_not_gone_where_the_keeper_has_not_answered() {
    let keeper = StandIn::with(vec![entry(1, "kept", 5, holders(1))]);
    let server = Server::start(&mut keeper.memcuda(), &[]);
    let names = || server.json("/api/names");
    until("it is there", || names()["total"] == 1);
    let busy = keeper.entries.lock().unwrap();
    until("nobody answers", || names()["nobody"].is_string());
    drop(busy);
    until("it is there again", || names()["total"] == 1);
    let second = entry(2, "second", 5, holders(1));
    keeper.entries.lock().unwrap().push(second);
    let events = || {
        names();
        server.json("/api/events").to_string()
    };
    until("another one is told", || events().contains("second"));
    let events = events();
    assert!(
        !events.contains("gone") && !events.contains("kept"),
        "{events}"
    );
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let both = [Counters::default(), counters()];
    let shown = Shown::new(VERSION, &both);
    let keeper = StandIn::with(vec![
        entry(1, "one", 5, holders(1)),
        entry(2, "two", 5, Vec::new()),
    ]);
    let server = Server::start(&mut keeper.memcuda(), &[]);
    server.pool(&shown.pid());
    let (status, head, text) = server.get("/metrics");
    assert_eq!(status, 200);
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    let printed = stdout(&keeper.run(&["web", "--metrics"]));
    for text in [text, printed] {
        let labels = format!("{{pid=\"{}\",command=\"sleep\",device=\"1\"}}", shown.pid());
        for line in [
            format!("memcuda_live_bytes{labels} {}", 3_u64 << 30),
            format!("memcuda_hits_total{labels} 995"),
            "memcuda_keeper_up 1".to_owned(),
            "memcuda_named_bytes{device_uuid=\"GPU-61626364-6566-6768-696a-6b6c6d6e6f70\"} 536870912".to_owned(),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        check_format(&text);
    }
}

/// As one that is stopped.
#[test]
fn a_keeper_that_hangs_keeps_nobody_from_the_metrics() {
    let shown = Shown::new(VERSION, &[counters()]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("keeper.sock");
    // One is let in and not answered, others are not let in.
    let _silent = listening(&place, 0);
    let server = Server::start(memcuda().env("MEMCUDA_KEEPER", place), &[]);
    server.pool(&shown.pid());
    for _ in 0..3 {
        let begun = Instant::now();
        let (_, _, text) = server.get("/metrics");
        let spent = begun.elapsed();
        assert!(spent < PATIENCE, "{spent:?}");
        assert!(text.contains("\nmemcuda_keeper_up 0\n"), "{text}");
        let live = format!("memcuda_live_bytes{{pid=\"{}\"", shown.pid());
        assert!(text.contains(&live), "{text}");
        // What was found is good for a second.
        std::thread::sleep(Duration::from_millis(1100));
    }
}

/// Every sample is of a family that was announced just before, and is a number.
fn check_format(text: &str) {
    let mut family = "";
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# TYPE ") {
            let (name, kind) = said.split_once(' ').unwrap();
            assert!(kind == "gauge" || kind == "counter", "{line}");
            family = name;
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(series.split('{').next().unwrap(), family, "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.ends_with('\n'));
}

/// Numbers of nobody would be taken for jobs that have ended.
#[test]
fn while_processes_cannot_be_listed_there_are_no_numbers_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = memcuda();
    command.env("LD_PRELOAD", library(folder.path(), UNLISTED));
    command.env("UNLISTED", "/proc").env("NAMES", "-1");
    command.env("ERROR", "23").env("MEMCUDA_KEEPER", "off");
    let server = Server::start(&mut command, &[]);
    for path in ["/metrics", "/api/now", "/api/map?pool=1-0-1"] {
        let (status, _, said) = server.get(path);
        let why = "the processes of this machine cannot be listed: Too many open files in system";
        assert!(
            status == 503 && said.starts_with(why),
            "{path}: {status} {said}"
        );
    }
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn without_a_thread_it_says_what_it_was_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = memcuda();
    command.env("LD_PRELOAD", library(folder.path(), NO_THREADS));
    let output = command.args(["web", "--listen", "127.0.0.1:0"]).output();
    failed(
        &output.unwrap(),
        1,
        "cannot start a thread that looks at processes: ",
    );
}
