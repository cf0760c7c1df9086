//! The registry in Redis, over a real redis-server. The keeper's thread is
//! played by a directory, in which a file is a name (`files`), so that what it
//! knows survives the process that serves the queue; the whole keeper is in
//! `whole`.

mod clients;
mod commands;
mod files;
mod kills;
mod made;
mod moved;
mod outages;
#[path = "../support/program.rs"]
mod program;
mod publishing;
#[path = "../support/redis.rs"]
mod redis_server;
mod restarts;
mod rights;
mod served;
mod twins;
#[path = "../support/waiting.rs"]
mod waiting;
mod whole;

use waiting::{until, within};

#[test]
fn a_server_answers_on_its_own_socket_and_is_gone_afterwards() {
    let server = redis_server::Redis::start();
    assert_eq!(server.ask("PING"), "+PONG");
    let socket = server.socket();
    drop(server);
    assert!(!socket.exists());
}
