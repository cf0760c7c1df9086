//! The registry in Redis, over a real redis-server. The keeper's thread is
//! played by a directory, in which a file is a name (`files`), so that what it
//! knows survives the process that serves the queue; the whole keeper is in
//! `whole`.

mod clients;
mod commands;
mod files;
mod kills;
mod outages;
#[path = "../support/program.rs"]
mod program;
mod publishing;
#[path = "../support/redis.rs"]
mod redis_server;
mod served;
mod whole;

use std::time::{Duration, Instant};

/// Waits until something holds.
fn until(what: &str, holds: impl FnMut() -> bool) {
    within(Duration::from_secs(20), what, holds);
}

/// The same with another patience.
fn within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < patience, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_answers_on_its_own_socket_and_is_gone_afterwards() {
    let server = redis_server::Redis::start();
    assert_eq!(server.ask("PING"), "+PONG");
    let socket = server.socket();
    drop(server);
    assert!(!socket.exists());
}
