//! Descriptors on their way to clients that have not read them. The kernel counts them for
//! the user of whoever sends, and beyond that one's limit of open files it takes none any
//! more, to nobody: so one user's clients may leave only a share of them unread, and those of
//! all others together few: they count for other programs of the keeper's user as well, whose
//! limit is lower. What was read the keeper's own end of a connection tells, wherever the
//! client is; it stays open for that until all is read.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::{getsockopt, sockopt::GetStruct};

use crate::keeper::entries::ClientId;

/// How soon the kernel is asked again where it said that much is not read.
const PAUSE: Duration = Duration::from_millis(10);
/// How often it is asked of connections that are over.
const LEISURE: Duration = Duration::from_secs(1);

/// What users who are not the keeper's own may leave unread, all together: half of the open
/// files that a program may usually have.
const OF_OTHERS: usize = 512;

/// Whose clients they are.
#[derive(Clone, Copy)]
pub enum Whose {
    /// This user's, who is the keeper's own.
    Own(u32),
    /// This other user's.
    Others(u32),
}

impl Whose {
    /// How many may be unread, where the keeper may have so many files open.
    pub fn most(self, open_files: usize) -> usize {
        match self {
            Self::Own(_) => open_files / 2,
            Self::Others(_) => (open_files / 4).min(OF_OTHERS),
        }
    }

    fn uid(self) -> u32 {
        let (Self::Own(uid) | Self::Others(uid)) = self;
        uid
    }

    /// Do they share what may be unread?
    fn shares_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Own(uid), Self::Own(other)) => uid == other,
            (Self::Others(_), Self::Others(_)) => true,
            _ => false,
        }
    }
}

/// All that may be unread.
#[derive(Default)]
pub struct Unread {
    of: HashMap<ClientId, Sent>,
    /// Of each user.
    sums: HashMap<u32, usize>,
    /// Of all who are not the keeper's own.
    of_others: usize,
    again: HashMap<u32, Instant>,
    /// When connections that are over are looked at, where there are any.
    pub next: Option<Instant>,
}

/// What was sent over a connection since all was read.
struct Sent {
    whose: Whose,
    count: usize,
    /// The keeper's end.
    socket: Rc<OwnedFd>,
    is_over: bool,
}

impl Unread {
    /// May so many more go to a client, where so many may be unread? One packet may, to a
    /// user who has read all.
    pub fn has_room(&mut self, client: ClientId, whose: Whose, more: usize, most: usize) -> bool {
        // Who asks for one thing after the other has read what came before.
        if self
            .of
            .get(&client)
            .is_some_and(|it| !is_unread(&it.socket))
        {
            self.forget(client);
        }
        let uid = whose.uid();
        let fits =
            |unread: &Self| !unread.sums.contains_key(&uid) || unread.shared(whose) + more <= most;
        if fits(self) {
            return true;
        }
        let now = Instant::now();
        if self.again.get(&uid).is_some_and(|again| now < *again) {
            return false;
        }
        self.look(whose, most / 2);
        match self.shared(whose) > most / 2 {
            true => self.again.insert(uid, now + PAUSE),
            false => self.again.remove(&uid),
        };
        fits(self)
    }

    /// So many of its share are unread.
    fn shared(&self, whose: Whose) -> usize {
        match whose {
            Whose::Own(uid) => self.sums.get(&uid).copied().unwrap_or(0),
            Whose::Others(_) => self.of_others,
        }
    }

    /// So many were sent to a client.
    pub fn sent(&mut self, client: ClientId, whose: Whose, socket: &Rc<OwnedFd>, count: usize) {
        let sent = self.of.entry(client).or_insert_with(|| Sent {
            whose,
            count: 0,
            socket: socket.clone(),
            is_over: false,
        });
        sent.count += count;
        *self.sums.entry(whose.uid()).or_default() += count;
        if let Whose::Others(_) = whose {
            self.of_others += count;
        }
    }

    /// A connection is over; does its socket stay here?
    pub fn ends(&mut self, client: ClientId) -> bool {
        let Some(sent) = self.of.get_mut(&client) else {
            return false;
        };
        sent.is_over = is_unread(&sent.socket);
        if !sent.is_over {
            self.forget(client);
            return false;
        }
        self.next.get_or_insert_with(|| Instant::now() + LEISURE);
        true
    }

    /// The users of connections that are over.
    pub fn over(&self) -> impl Iterator<Item = u32> {
        let over = self.of.values().filter(|sent| sent.is_over);
        over.map(|sent| sent.whose.uid())
    }

    /// Closes those of them that have been read meanwhile.
    pub fn look_at_over(&mut self, now: Instant) {
        if self.next.is_some_and(|next| next <= now) {
            let read = |sent: &Sent| sent.is_over && !is_unread(&sent.socket);
            let read = self.of.iter().filter(|(_, sent)| read(sent));
            let read: Vec<_> = read.map(|(client, _)| *client).collect();
            read.into_iter().for_each(|client| self.forget(client));
            let are_left = self.over().next().is_some();
            self.next = are_left.then_some(now + LEISURE);
        }
    }

    /// Forgets what clients of this share have read, until no more than so many are left: of
    /// those first that were sent the most.
    fn look(&mut self, whose: Whose, enough: usize) {
        let of = self.of.iter();
        let of = of.filter(|(_, sent)| sent.whose.shares_with(whose));
        let mut of: Vec<_> = of.map(|(client, sent)| (sent.count, *client)).collect();
        of.sort_unstable_by(|one, other| other.cmp(one));
        for (_, client) in of {
            if self.shared(whose) <= enough {
                return;
            }
            if !is_unread(&self.of[&client].socket) {
                self.forget(client);
            }
        }
    }

    fn forget(&mut self, client: ClientId) {
        let Some(sent) = self.of.remove(&client) else {
            return;
        };
        let uid = sent.whose.uid();
        if let Some(sum) = self.sums.get_mut(&uid) {
            *sum -= sent.count;
            if *sum == 0 {
                self.sums.remove(&uid);
                self.again.remove(&uid);
            }
        }
        if let Whose::Others(_) = sent.whose {
            self.of_others -= sent.count;
        }
    }
}

/// The first words of what `SO_MEMINFO` says: received, room for that, sent and not read.
type Words = [u32; 3];

#[derive(Clone, Copy)]
struct Memory;

nix::getsockopt_impl!(
    Memory,
    libc::SOL_SOCKET,
    libc::SO_MEMINFO,
    Words,
    GetStruct<Words>
);

/// Is there something that the other end has not read? Not where the kernel (before Linux
/// 4.12) does not tell.
fn is_unread(socket: impl AsFd) -> bool {
    getsockopt(&socket, Memory).is_ok_and(|[_, _, sent]| sent > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
    };

    const MOST: usize = 10;
    const OWN: Whose = Whose::Own(7);

    fn pair() -> (Rc<OwnedFd>, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Rc::new(here), there)
    }

    fn read(socket: &OwnedFd) {
        recv(socket, &mut [0_u8; 8], RecvFlags::empty()).unwrap();
    }

    #[test]
    fn what_is_read_makes_room_and_what_is_not_does_not_by_the_end_of_a_connection() {
        let mut unread = Unread::default();
        let (here, there) = pair();
        let write = |unread: &mut Unread| {
            assert!(unread.has_room(1, OWN, 6, MOST));
            send(&here, b"packet", SendFlags::empty()).unwrap();
            unread.sent(1, OWN, &here, 6);
        };
        write(&mut unread);
        assert!(
            unread.has_room(2, Whose::Own(8), 6, MOST),
            "it is another user's"
        );
        // Once more than there is room for: it was read.
        read(&there);
        write(&mut unread);
        assert!(!unread.has_room(1, OWN, 6, MOST));
        assert!(unread.ends(1), "its end is needed");
        drop(here);
        std::thread::sleep(PAUSE);
        assert!(!unread.has_room(1, OWN, 6, MOST));
        let later = Instant::now() + LEISURE;
        unread.look_at_over(later);
        assert_eq!(unread.over().collect::<Vec<_>>(), [7]);
        read(&there);
        unread.look_at_over(later + LEISURE);
        assert!(unread.of.is_empty() && unread.sums.is_empty() && unread.next.is_none());
        assert_eq!(recv(&there, &mut [0_u8; 8], RecvFlags::empty()), Ok((0, 0)));
        // Who closes its end has nothing any more.
        let (here, there) = pair();
        send(&here, b"packet", SendFlags::empty()).unwrap();
        unread.sent(2, OWN, &here, 6);
        drop(there);
        assert!(!unread.ends(2) && unread.of.is_empty());
    }

    #[test]
    fn what_was_read_long_ago_is_not_taken_for_unread() {
        let mut unread = Unread::default();
        let (here, there) = pair();
        for times in 0..5 {
            assert!(unread.has_room(1, OWN, 2, MOST), "{times}");
            send(&here, b"packet", SendFlags::empty()).unwrap();
            unread.sent(1, OWN, &here, 2);
            if times < 4 {
                read(&there);
            }
        }
        assert!(unread.has_room(2, OWN, 2, MOST), "two are unread");
    }

    #[test]
    fn one_packet_is_let_through_whatever_its_size() {
        let mut unread = Unread::default();
        assert!(unread.has_room(1, OWN, MOST + 1, MOST));
        unread.sent(1, OWN, &pair().0, MOST + 1);
        assert!(unread.has_room(2, OWN, 1, MOST), "its socket is gone");
    }

    #[test]
    fn others_share_what_may_be_unread_and_each_has_a_packet() {
        let mut unread = Unread::default();
        let (one, other) = (Whose::Others(1), Whose::Others(2));
        let (here, there) = pair();
        send(&here, b"packet", SendFlags::empty()).unwrap();
        unread.sent(1, one, &here, MOST);
        assert!(!unread.has_room(1, one, 1, MOST));
        assert!(unread.has_room(2, other, 6, MOST), "it has none");
        let (second, _its) = pair();
        send(&second, b"packet", SendFlags::empty()).unwrap();
        unread.sent(2, other, &second, 6);
        assert!(!unread.has_room(2, other, 1, MOST));
        assert!(unread.has_room(3, OWN, MOST, MOST), "no share of it");
        read(&there);
        std::thread::sleep(PAUSE);
        assert!(unread.has_room(2, other, 4, MOST), "the first has read");
        assert_eq!(unread.of_others, 6);
    }
}
