//! What happens because of the time: names expire, connections that do not
//! introduce themselves are closed, leases of who does not come back end, a
//! keeper that nobody needs ends.

use std::time::{Duration, Instant};

use tracing::info;

use super::Refusal;
use super::clients::client::{COURTESY, Stage};
use super::entries::ClientId;
use super::state::{Ghost, Keeper};
use super::succession::standby::Vault;
use crate::epoch::now_us;

/// How long a process that came back may take to say all that it holds, and one
/// that cannot be seen to come back.
pub const GRACE: Duration = Duration::from_secs(5);

impl Keeper {
    /// A process has come back: what it held through other connections, and does
    /// not take up again soon, it holds no longer.
    pub(super) fn is_back(&mut self, client: ClientId) {
        let until = Instant::now() + GRACE;
        for earlier in self.entries.earlier_of(client) {
            if let Some(ghost) = self.ghosts.get_mut(&earlier) {
                ghost.until = Some(ghost.until.map_or(until, |before| before.min(until)));
            }
        }
    }

    /// Tells what time it is, and whether the clock was set.
    pub(super) fn tell_time(&mut self) {
        self.entries.set_time(now_us());
        let moved = self.calendar.moved_s();
        if moved != 0 {
            info!("the clock was set by {moved} s: names keep the time that they had left");
            self.entries.move_expiries(moved);
        }
    }

    /// How long the next turn may be away.
    pub(super) fn timeout(&self) -> Option<Duration> {
        if !self.leaving.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let new = self.new.front().map(|(since, _)| *since + COURTESY);
        let ghosts = self.ghosts.values().filter_map(|ghost| ghost.until).min();
        let idle = self.idle_since.zip(self.options.idle);
        // An end that no clock can show does not come.
        let idle = idle.and_then(|(since, most)| since.checked_add(most));
        let others = [
            self.standby_again,
            self.look_again,
            self.versions.next,
            self.unread.next,
            self.late.next,
            Some(self.place_again),
        ];
        let clocks = [new, ghosts, idle].into_iter().chain(others);
        let next = clocks.flatten().min();
        let expiry = self.entries.next_expiry_s().map(|second| {
            Duration::from_micros((second.saturating_mul(1_000_000)).saturating_sub(now_us()))
        });
        // Rounded up: a turn too early would be one for nothing.
        let next = next.map(|next| next.saturating_duration_since(now));
        let soonest = [next, expiry].into_iter().flatten().min()?;
        Some(soonest.min(Duration::from_secs(3600)) + Duration::from_millis(1))
    }

    pub(super) fn look_at_clock(&mut self) {
        let now = Instant::now();
        self.entries.expire();
        self.look_at_versions(now);
        self.unread.look_at_over(now);
        self.look_at_late(now);
        self.look_at_processes(now);
        while let Some(&(since, client)) = self.new.front()
            && now >= since + COURTESY
        {
            self.new.pop_front();
            let connection = self.connections.get(&client);
            if connection.is_some_and(|connection| connection.stage != Stage::Ready) {
                let message = "5 seconds without an introduction".to_owned();
                self.refuse(client, 1, Refusal::invalid(message), true);
            }
        }
        let over = |ghost: &Ghost| ghost.until.is_some_and(|until| until <= now);
        let over: Vec<_> = self
            .ghosts
            .iter()
            .filter(|(_, ghost)| over(ghost))
            .collect();
        let over: Vec<_> = over.into_iter().map(|(&client, _)| client).collect();
        for client in over {
            self.ghosts.remove(&client);
            self.leave(client);
        }
        if self.standby_again.is_some_and(|at| at <= now) {
            self.standby_again = None;
            match &self.descriptors.vault {
                Vault::None => self.start_standby(),
                _ if self.lacks() => self.complete_vault(),
                // It was started anew meanwhile.
                Vault::Standby(_) | Vault::Systemd(_) => {}
            }
        }
        if self.place_again <= now {
            self.look_at_place();
        }
        let busy = !(self.entries.is_empty() && self.connections.is_empty());
        self.idle_since = match self.idle_since {
            _ if busy => None,
            None => Some(now),
            since => since,
        };
        if let Some((since, most)) = self.idle_since.zip(self.options.idle)
            && now.saturating_duration_since(since) >= most
        {
            self.end_idle();
        }
    }
}
