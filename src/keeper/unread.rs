//! Descriptors on their way to clients that have not read them. The kernel counts them for
//! the user of whoever sends, and beyond that one's limit of open files it takes none any
//! more, to nobody: so one user's clients may leave only a share of them unread. What was
//! read the keeper's own end of a connection tells, wherever the client is; it stays open
//! for that until all is read.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::{getsockopt, sockopt::GetStruct};

use super::entries::ClientId;

/// How soon the kernel is asked again where it said that much is not read.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is asked of connections that are over.
const LEISURE: Duration = Duration::from_secs(1);

/// All that may be unread.
#[derive(Default)]
pub struct Unread {
    of: HashMap<ClientId, Sent>,
    /// Of each user.
    sums: HashMap<u32, usize>,
    again: HashMap<u32, Instant>,
    /// When connections that are over are looked at, where there are any.
    pub next: Option<Instant>,
}

/// What was sent over a connection since all was read.
struct Sent {
    uid: u32,
    count: usize,
    /// The keeper's end.
    socket: Rc<OwnedFd>,
    is_over: bool,
}

impl Unread {
    /// May so many more go to a client, of a user who may leave so many unread?
    pub fn has_room(&mut self, client: ClientId, uid: u32, more: usize, most: usize) -> bool {
        // Who asks for one thing after the other has read what came before.
        if self
            .of
            .get(&client)
            .is_some_and(|it| !is_unread(&it.socket))
        {
            self.forget(client);
        }
        let sum = |sums: &HashMap<u32, usize>| sums.get(&uid).copied().unwrap_or(0);
        let fits = |sum: usize| sum == 0 || sum + more <= most;
        if fits(sum(&self.sums)) {
            return true;
        }
        let now = Instant::now();
        if self.again.get(&uid).is_some_and(|again| now < *again) {
            return false;
        }
        self.look(uid, most / 2);
        let left = sum(&self.sums);
        match left > most / 2 {
            true => self.again.insert(uid, now + PAUSE),
            false => self.again.remove(&uid),
        };
        fits(left)
    }

    /// So many were sent to a client.
    pub fn sent(&mut self, client: ClientId, uid: u32, socket: &Rc<OwnedFd>, count: usize) {
        let sent = self.of.entry(client).or_insert_with(|| Sent {
            uid,
            count: 0,
            socket: socket.clone(),
            is_over: false,
        });
        sent.count += count;
        *self.sums.entry(uid).or_default() += count;
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
        over.map(|sent| sent.uid)
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

    /// Forgets what this user's clients have read, until no more than so many are left: of
    /// those first that were sent the most.
    fn look(&mut self, uid: u32, enough: usize) {
        let of = self.of.iter().filter(|(_, sent)| sent.uid == uid);
        let mut of: Vec<_> = of.map(|(client, sent)| (sent.count, *client)).collect();
        of.sort_unstable_by(|one, other| other.cmp(one));
        for (_, client) in of {
            if self.sums.get(&uid).is_none_or(|sum| *sum <= enough) {
                return;
            }
            if !is_unread(&self.of[&client].socket) {
                self.forget(client);
            }
        }
    }

    fn forget(&mut self, client: ClientId) {
        if let Some(sent) = self.of.remove(&client)
            && let Some(sum) = self.sums.get_mut(&sent.uid)
        {
            *sum -= sent.count;
            if *sum == 0 {
                self.sums.remove(&sent.uid);
                self.again.remove(&sent.uid);
            }
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
            assert!(unread.has_room(1, 7, 6, MOST));
            send(&here, b"packet", SendFlags::empty()).unwrap();
            unread.sent(1, 7, &here, 6);
        };
        write(&mut unread);
        assert!(unread.has_room(2, 8, 6, MOST), "it is another user's");
        // Once more than there is room for: it was read.
        read(&there);
        write(&mut unread);
        assert!(!unread.has_room(1, 7, 6, MOST));
        assert!(unread.ends(1), "its end is needed");
        drop(here);
        std::thread::sleep(PAUSE);
        assert!(!unread.has_room(1, 7, 6, MOST));
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
        unread.sent(2, 7, &here, 6);
        drop(there);
        assert!(!unread.ends(2) && unread.of.is_empty());
    }

    #[test]
    fn what_was_read_long_ago_is_not_taken_for_unread() {
        let mut unread = Unread::default();
        let (here, there) = pair();
        for times in 0..5 {
            assert!(unread.has_room(1, 7, 2, MOST), "{times}");
            send(&here, b"packet", SendFlags::empty()).unwrap();
            unread.sent(1, 7, &here, 2);
            if times < 4 {
                read(&there);
            }
        }
        assert!(unread.has_room(2, 7, 2, MOST), "two are unread");
    }

    #[test]
    fn one_packet_is_let_through_whatever_its_size() {
        let mut unread = Unread::default();
        assert!(unread.has_room(1, 7, MOST + 1, MOST));
        unread.sent(1, 7, &pair().0, MOST + 1);
        assert!(unread.has_room(2, 7, 1, MOST), "its socket is gone");
    }
}
