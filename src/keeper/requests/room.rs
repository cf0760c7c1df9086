//! How much of the keeper one user of several may have: a quarter of the connections,
//! of the names and exports and of the descriptors of memory, once others have as much;
//! and so many openings.
//! The keeper's own user may have all. Closes nothing and takes nothing away.

use crate::keeper::Refusal;
use crate::keeper::clients::process::Peer;
use crate::keeper::entries::{MOST_ITEMS, Made};
use crate::keeper::state::Keeper;
use crate::keeper::succession::descriptors::most_clients;
use crate::share::protocol::Code;

/// Most names and exports that such a user's clients have open: what a name is open for by
/// several of them counts for each. To write all down takes the keeper a moment.
const MOST_LEASES: usize = 2 * MOST_ITEMS;

impl Keeper {
    /// Is there room for a connection of this peer? One user among several does
    /// not take all of it. A former one whose process holds something, or has not read all,
    /// takes room, too: one descriptor, where a connection has two.
    pub(in crate::keeper) fn room_for_client(&self, peer: &Peer) -> Result<(), Refusal> {
        let most = most_clients(self.descriptors.limit);
        let mine = || {
            let users = self.connections.values().map(|one| one.peer.uid);
            let former = self.ghosts.keys().flat_map(|id| self.entries.user(*id));
            let over = self.unread.over();
            users
                .chain(former)
                .chain(over)
                .filter(|uid| *uid == peer.uid)
                .count()
        };
        let own = self.access.is_own(peer.uid);
        if self.strays.are_many() && !own {
            let message = "the keeper still closes what others sent that is no memory".to_owned();
            return Err(Refusal::new(Code::Unavailable, message));
        }
        let former = self.ghosts.len() + self.unread.over().count();
        let all = self.connections.len() + former.div_ceil(2);
        let (clients, most) = match all {
            all if all >= most || own => (all, most),
            all if all < most / 4 => (all, most),
            _ => (mine(), most / 4),
        };
        if clients < most {
            return Ok(());
        }
        let files = self.descriptors.limit;
        let message = format!(
            "the keeper has {clients} clients, which is its most with {files} open files (ulimit -Hn)"
        );
        Err(Refusal::new(Code::Unavailable, message))
    }

    /// Is there room for so many more descriptors of memory that this peer makes, and for
    /// what they are of, or for a page of versions?
    pub(in crate::keeper) fn room_for_memory(
        &self,
        peer: &Peer,
        more: usize,
    ) -> Result<(), Refusal> {
        self.descriptors.room_for(more)?;
        let most = Made {
            items: MOST_ITEMS / 4,
            parts: self.descriptors.most / 4,
            ..Made::default()
        };
        let fits =
            |made: Made| made.items <= most.items && made.parts + made.pages + more <= most.parts;
        let made = self.entries.made_by(peer.uid);
        if self.access.is_own(peer.uid) || fits(self.entries.made()) || fits(made) {
            return Ok(());
        }
        let message = format!(
            "user {} has made {} names and exports of {} handles and {} pages of versions, and others are to have room, too",
            peer.uid, made.items, made.parts, made.pages
        );
        Err(Refusal::new(Code::Unavailable, message))
    }

    /// Is there room for so many more openings by this peer?
    pub(in crate::keeper) fn room_for_leases(
        &self,
        peer: &Peer,
        more: usize,
    ) -> Result<(), Refusal> {
        if self.access.is_own(peer.uid) {
            return Ok(());
        }
        let held = self.entries.leases_of(peer.uid);
        if held + more <= MOST_LEASES {
            return Ok(());
        }
        let user = peer.uid;
        let message = format!("user {user} has {held} names and exports open, which is its most");
        Err(Refusal::new(Code::Unavailable, message))
    }
}
