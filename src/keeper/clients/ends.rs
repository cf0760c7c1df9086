//! Processes that end: epoll tells of those that the system lends a descriptor of, the
//! others are looked for now and then. Takes no end of a connection for the end of its
//! process.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::keeper::clients::process::Watch;
use crate::keeper::entries::ClientId;
use crate::keeper::state::Keeper;
use crate::keeper::token::Token;

/// How long after a look for those without a descriptor the next one is, at least.
const PAUSE: Duration = Duration::from_millis(200);
/// And how many times longer than the look took.
const PART: u32 = 32;

impl Keeper {
    /// From now on it hears of the end of a client's process.
    pub(in crate::keeper) fn mind(&mut self, client: ClientId, watch: &Watch) -> Result<()> {
        match watch.descriptor() {
            Some(watch) => self.watch(watch, Token::Watch(client)),
            None => {
                self.look_again
                    .get_or_insert_with(|| Instant::now() + PAUSE);
                Ok(())
            }
        }
    }

    /// A client's process has ended, whoever has its socket still.
    pub(in crate::keeper) fn has_ended(&mut self, client: ClientId) {
        self.ghosts.remove(&client);
        self.end_connection(client);
        self.leave(client);
    }

    pub(in crate::keeper) fn look_at_processes(&mut self, now: Instant) {
        if self.look_again.is_none_or(|at| at > now) {
            return;
        }
        let connected = self.connections.iter().map(|(id, it)| (id, &it.watch));
        let ghosts = self.ghosts.iter().map(|(id, it)| (id, &it.watch));
        let mut looked_for = 0;
        let mut ended = Vec::new();
        for (&client, watch) in connected.chain(ghosts) {
            if let Some(watch @ Watch::Number(..)) = watch {
                looked_for += 1;
                ended.extend(watch.has_ended().then_some(client));
            }
        }
        let pause = PAUSE.max(now.elapsed() * PART);
        self.look_again = (looked_for > ended.len()).then(|| Instant::now() + pause);
        ended.into_iter().for_each(|client| self.has_ended(client));
    }
}
