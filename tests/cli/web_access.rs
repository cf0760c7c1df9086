//! Whom `memcuda web` answers, what it refuses, and what it says where it cannot
//! serve.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::{failed, memcuda, run, until};

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
    let times = [0; 3].map(|_| {
        slow.clear();
        for _ in 0..30 {
            let mut stream = TcpStream::connect(&server.at).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
            slow.push(stream);
        }
        let begin = Instant::now();
        assert_eq!(server.get("/api/now").0, 200);
        begin.elapsed()
    });
    // Each of those has five seconds.
    let best = times.iter().min().unwrap();
    assert!(*best < Duration::from_secs(3), "{times:?}");
    // Beyond the bound new ones are turned away, in the order in which they come, and
    // it does not last.
    let is_turned_away = |_| {
        for _ in 0..70 {
            slow.push(TcpStream::connect(&server.at).unwrap());
        }
        server.get("/api/now").0 == 503
    };
    // Where that took five seconds the first of them are gone by then.
    assert!((0..3).any(is_turned_away));
    let mut answer = String::new();
    slow[0].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    until("there is room", || server.get("/api/now").0 == 200);
}

#[test]
fn with_a_token_nothing_is_read_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "correct-horse-battery\nits first line\n").unwrap();
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
    for (file, why) in [
        ("/nowhere/token", "No such file"),
        ("/", "Is a directory"),
        ("/dev/null", "a token of 0 bytes is not accepted"),
        ("/dev/zero", "a token of 4096 bytes is not accepted"),
    ] {
        let refused = run(&["web", "--token-file", file]);
        failed(&refused, 2, &format!("memcuda: {file}: {why}"));
    }
}

#[test]
fn a_port_in_use_is_said_in_a_line() {
    let server = Server::alone();
    let taken = format!("memcuda: {} is in use: choose another port", server.at);
    failed(&run(&["web", "--listen", &server.at]), 1, &taken);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "long-enough").unwrap();
    let token = file.path().to_str().unwrap();
    let output = run(&["web", "--listen", "192.0.2.1:0", "--token-file", token]);
    failed(&output, 1, "192.0.2.1:0 is no address of this machine");
}
