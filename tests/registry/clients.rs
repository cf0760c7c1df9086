//! Clients of the queue, as others would write them: they know Redis and the
//! protocol, and nothing of this library.

use std::path::PathBuf;

use redis::Connection;
use serde_json::Value;

/// A connection to the server behind a socket.
pub fn connect(socket: PathBuf) -> Connection {
    redis::Client::open(address(socket))
        .unwrap()
        .get_connection()
        .unwrap()
}

/// Its address.
pub fn address(socket: PathBuf) -> String {
    format!("redis+unix://{}", socket.display())
}

/// Runs a command.
pub fn ask<T: redis::FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query(connection).unwrap()
}

/// Puts a command into a queue whose tail is consumed.
pub fn push(connection: &mut Connection, queue: &str, command: &[u8]) {
    let _: u64 = redis::cmd("LPUSH")
        .arg(queue)
        .arg(command)
        .query(connection)
        .unwrap();
}

/// The next answer in a list, within five seconds.
pub fn answer(connection: &mut Connection, list: &str) -> Value {
    let got: Option<(String, String)> = redis::cmd("BLPOP")
        .arg(list)
        .arg(5)
        .query(connection)
        .unwrap();
    let (_, text) = got.unwrap_or_else(|| panic!("no answer in {list}"));
    serde_json::from_str(&text).unwrap()
}
