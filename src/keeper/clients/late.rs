//! Answers with descriptors that have to wait: too many are unread, of whomever. What is
//! behind one of them waits as well, and what its client says meanwhile is not heard, so
//! that it is no more than one answer each. Nobody else waits for that.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};

use crate::keeper::clients::client::Connection;
use crate::keeper::entries::ClientId;
use crate::keeper::state::{Keeper, Outgoing};
use crate::keeper::token::Token;

/// How soon it is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// What waits, of each client in its order.
#[derive(Default)]
pub struct Late {
    of: HashMap<ClientId, Vec<Outgoing>>,
    /// When it is tried again, where anything waits.
    pub next: Option<Instant>,
}

impl Late {
    /// Does anything wait for this client?
    pub fn has(&self, client: ClientId) -> bool {
        self.of.contains_key(&client)
    }
}

impl Keeper {
    /// It is sent later.
    pub(in crate::keeper) fn postpone(&mut self, packet: Outgoing) {
        let client = packet.client;
        self.late.of.entry(client).or_default().push(packet);
        let next = || Instant::now() + PAUSE;
        self.late.next.get_or_insert_with(next);
        // Its end is told of none the less.
        self.listen_to(client, EventFlags::empty());
    }

    /// What waits is sent with this turn's answers, where there is room by now.
    pub(in crate::keeper) fn look_at_late(&mut self, now: Instant) {
        if self.late.next.is_none_or(|next| now < next) {
            return;
        }
        self.late.next = None;
        let mut all = Vec::new();
        for (client, packets) in std::mem::take(&mut self.late.of) {
            self.listen_to(client, EventFlags::IN);
            all.extend(packets);
        }
        all.append(&mut self.outgoing);
        self.outgoing = all;
    }

    /// Is a client not to be heard now? One that has gone reads no answer, and may have said
    /// that it comes back.
    pub(in crate::keeper) fn waits(&mut self, client: ClientId) -> bool {
        if !self.late.has(client) {
            return false;
        }
        let connection = self.connections.get(&client);
        let is_left = connection.is_some_and(Connection::is_left);
        if is_left {
            self.give_up_late(client);
            self.listen_to(client, EventFlags::IN);
        }
        !is_left
    }

    /// Nobody reads what waits for this client.
    pub(in crate::keeper) fn give_up_late(&mut self, client: ClientId) {
        let packets = self.late.of.remove(&client).into_iter().flatten();
        self.close(packets.flat_map(|packet| packet.beside).collect());
    }

    fn listen_to(&self, client: ClientId, what: EventFlags) {
        if let Some(connection) = self.connections.get(&client) {
            let token = Token::Client(client).data();
            let _ = epoll::modify(&self.epoll, &connection.socket, token, what);
        }
    }
}
