//! Clients that are gone: what they had ends so much a turn, in the order in which they
//! went, so that nobody's end is in another's way. Says nothing to anybody.

use std::collections::VecDeque;

use crate::keeper::entries::ClientId;
use crate::keeper::state::Keeper;

/// How much ends in a turn, of leases and of what was made.
const A_TURN: usize = 1024;

/// Those of whom something is left.
pub struct Leaving {
    clients: VecDeque<ClientId>,
    /// Of this turn.
    left: usize,
}

impl Default for Leaving {
    fn default() -> Self {
        Self {
            clients: VecDeque::new(),
            left: A_TURN,
        }
    }
}

impl Leaving {
    /// Is there nobody?
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

impl Keeper {
    /// A client is gone, but for what it has opened by handle while it is a ghost. Mostly
    /// that is done at once.
    pub(in crate::keeper) fn leave(&mut self, client: ClientId) {
        self.entries.disconnect(client);
        self.leaving.clients.push_back(client);
        self.end_some();
    }

    /// A turn begins.
    pub(in crate::keeper) fn go_on_leaving(&mut self) {
        self.leaving.left = A_TURN;
        self.end_some();
    }

    fn end_some(&mut self) {
        while let (1.., Some(&client)) = (self.leaving.left, self.leaving.clients.front()) {
            let most = self.leaving.left;
            let gone = match self.ghosts.contains_key(&client) {
                true => self.entries.linger(client, most),
                false => self.entries.leave(client, most),
            };
            self.leaving.left -= gone;
            if gone < most {
                self.leaving.clients.pop_front();
            }
        }
    }
}
