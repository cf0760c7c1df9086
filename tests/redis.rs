//! The redis-server that later tests stand on: it can be had, started and
//! stopped on any machine that the README names.

#[path = "support/redis.rs"]
mod redis;

use redis::Redis;

#[test]
fn a_server_answers_on_its_own_socket_and_is_gone_afterwards() {
    let server = Redis::start();
    assert_eq!(server.ask("PING"), "+PONG");
    assert_eq!(server.ask("SET tensor:probe 1"), "+OK");
    let socket = server.socket();
    drop(server);
    assert!(!socket.exists());
}
