//! `memcuda web` as clients meet it: what it answers, whom it refuses, and what
//! it says where it cannot serve. The page itself is looked at in `browser`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memcuda::stats_page::{Counters, VERSION};
use serde_json::Value;

use crate::snapshot::{Holder, mixed};
use crate::stand_in::{StandIn, entry, holders};
use crate::stat::{Shown, counters};
use crate::{code, memcuda, run, stderr, stdout};

/// A server on a free port.
pub struct Server {
    child: Child,
    pub at: String,
}

impl Server {
    pub fn start(command: &mut Command, arguments: &[&str]) -> Self {
        let mut child = command
            .args(["web", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("http://").unwrap();
        let at = at.split('/').next().unwrap().to_owned();
        Self { child, at }
    }

    /// One without names.
    fn alone() -> Self {
        Self::start(memcuda().env("MEMCUDA_KEEPER", "off"), &[])
    }

    /// What it answers to these bytes: status, head, body.
    fn say(&self, bytes: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        // It may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let all = String::from_utf8(all).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.get_with(path, "")
    }

    fn get_with(&self, path: &str, headers: &str) -> (u16, String, String) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.at);
        self.say(text.as_bytes())
    }

    fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The pool of this process, as soon as it is seen.
    fn pool(&self, pid: &str) -> Value {
        let begin = Instant::now();
        loop {
            let now = self.json("/api/now");
            let mut pools = now["pools"].as_array().unwrap().iter();
            if let Some(pool) = pools.find(|it| it["pid"].as_u64() == pid.parse().ok()) {
                return pool.clone();
            }
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "{pid} is not seen"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
    shown.change(&[more]);
    let begin = Instant::now();
    while server.pool(&shown.pid())["requests_rate"]
        .as_f64()
        .unwrap_or(0.0)
        < 100.0
    {
        assert!(begin.elapsed() < Duration::from_secs(10), "no rate");
        std::thread::sleep(Duration::from_millis(50));
    }
    let samples = server.json(&format!("/api/samples?pools={name}"));
    let physical = samples[0]["physical"].as_array().unwrap();
    assert_eq!(physical.first().unwrap(), 4_u64 << 30);
    assert_eq!(physical.last().unwrap(), 5_u64 << 30);
    let last = samples[0]["time_ms"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .to_string();
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
    let begin = Instant::now();
    while !server
        .json("/api/events")
        .to_string()
        .contains(&format!("{pid} ended"))
    {
        assert!(begin.elapsed() < Duration::from_secs(10), "no end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let map = server.json(&format!("/api/map?pool={name}"));
    assert!(map["why"].as_str().unwrap().contains("has ended"));
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
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(server.json("/api/names")["total"], 119);
    assert!(server.json("/api/events").to_string().contains("name gone"));
    let alone = Server::alone().json("/api/names");
    assert!(
        alone["nobody"]
            .as_str()
            .unwrap()
            .starts_with("MEMCUDA_KEEPER is off")
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
    let printed = stdout(
        &keeper
            .memcuda()
            .args(["web", "--metrics"])
            .output()
            .unwrap(),
    );
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

#[test]
fn only_whole_gets_from_its_own_names_are_answered() {
    let server = Server::alone();
    let (status, head, body) = server.get("/");
    assert_eq!(status, 200);
    assert!(body.starts_with("<!doctype html>") && !body.contains("{nonce}"));
    let policy = head
        .lines()
        .find(|it| it.starts_with("Content-Security-Policy:"))
        .unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(!body.contains("https://"), "nothing from elsewhere");
    let (status, head, body) = server.say(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((status, &body[..]), (200, ""));
    assert!(!head.contains("Content-Length: 0"), "{head}");
    for (bytes, status) in [
        (&b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"[..], 421),
        (b"POST /api/now HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            404,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
            400,
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ] {
        assert_eq!(server.say(bytes).0, status, "{}", bytes.escape_ascii());
    }
    let long = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    assert_eq!(server.say(long.as_bytes()).0, 431);
    let named = Server::start(
        memcuda().env("MEMCUDA_KEEPER", "off"),
        &["--host", "gpu7.example"],
    );
    assert_eq!(
        named
            .say(b"GET / HTTP/1.1\r\nHost: gpu7.example:80\r\n\r\n")
            .0,
        200
    );
}

#[test]
fn a_client_that_says_nothing_costs_the_others_nothing() {
    let server = Server::alone();
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..30 {
        let mut stream = TcpStream::connect(&server.at).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        slow.push(stream);
    }
    let begin = Instant::now();
    assert_eq!(server.get("/api/now").0, 200);
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    // Beyond the bound new ones are turned away, and it does not last.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..60 {
        slow.push(TcpStream::connect(&server.at).unwrap());
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.get("/api/now").0, 503, "{:?}", begin.elapsed());
    let mut answer = String::new();
    slow[0].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(server.get("/api/now").0, 200);
}

#[test]
fn with_a_token_nothing_is_read_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "correct-horse-battery\n").unwrap();
    let mut command = memcuda();
    command.env("MEMCUDA_KEEPER", "off");
    let server = Server::start(&mut command, &["--token-file", file.to_str().unwrap()]);
    for path in [
        "/",
        "/api/now",
        "/metrics",
        "/nowhere",
        "/?token=correct-horse",
    ] {
        assert_eq!(server.get(path).0, 401, "{path}");
    }
    let bearer = "Authorization: Bearer correct-horse-battery\r\n";
    assert_eq!(server.get_with("/metrics", bearer).0, 200);
    let (status, head, _) = server.get("/?token=correct-horse-battery");
    assert_eq!(status, 200);
    let cookie = head
        .lines()
        .find_map(|it| it.strip_prefix("Set-Cookie: "))
        .unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(server.get_with("/api/now", &cookie).0, 200);
    let missing = run(&["web", "--token-file", "/nowhere/token"]);
    assert_eq!(code(&missing), 1);
    assert!(stderr(&missing).contains("/nowhere/token"));
}

#[test]
fn a_port_in_use_is_said_in_a_line() {
    let server = Server::alone();
    let output = run(&["web", "--listen", &server.at]);
    assert_eq!(code(&output), 1);
    let expected = format!(
        "memcuda: {} is in use: choose another port with --listen (port 0 takes any that is free)\n",
        server.at
    );
    assert_eq!(stderr(&output), expected);
    let output = run(&["web", "--listen", "192.0.2.1:0", "--token", "long-enough"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("192.0.2.1:0 is no address of this machine"));
}
