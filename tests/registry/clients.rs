//! Clients of the queue, as others would write them: they know Redis and the
//! protocol, and nothing of this library.

use std::collections::HashMap;
use std::path::PathBuf;

use redis::Connection;
use serde_json::Value;

use crate::waiting::LONG;

/// A connection to the server behind a socket.
pub fn connect(socket: PathBuf) -> Connection {
    connect_to(address(socket))
}

/// A connection to the server at an address.
pub fn connect_to(address: String) -> Connection {
    let client = redis::Client::open(address).unwrap();
    client.get_connection().unwrap()
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
pub fn push(connection: &mut Connection, queue: &str, command: impl redis::ToRedisArgs) {
    let mut push = redis::cmd("LPUSH");
    let _: u64 = push.arg(queue).arg(command).query(connection).unwrap();
}

/// The next answer in a list.
pub fn answer(connection: &mut Connection, list: &str) -> Value {
    let got: Option<(String, String)> = redis::cmd("BLPOP")
        .arg(list)
        .arg(LONG.as_secs())
        .query(connection)
        .unwrap();
    let (_, text) = got.unwrap_or_else(|| panic!("no answer in {list}"));
    serde_json::from_str(&text).unwrap()
}

/// All answers in a list, by the number of their command.
pub fn answers(connection: &mut Connection, list: &str) -> HashMap<u64, Vec<Value>> {
    let mut all: HashMap<u64, Vec<Value>> = HashMap::new();
    for text in ask::<Vec<String>>(connection, &["LRANGE", list, "0", "-1"]) {
        let answer: Value = serde_json::from_str(&text).unwrap();
        let id = answer["id"].as_u64().unwrap();
        all.entry(id).or_default().push(answer);
    }
    all
}
