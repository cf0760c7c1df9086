//! Descriptors on their way to clients that have not read them. The kernel counts them for
//! the user of whoever sends, and beyond that one's limit of open files it takes none any
//! more, to nobody: so one user's clients may leave only a share of them unread. What was
//! read the kernel is asked (sock_diag), and only once there may be too many. Closes nothing.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::entries::ClientId;

/// How soon the kernel is asked again where it said that much is not read.
const PAUSE: Duration = Duration::from_millis(100);

/// All that may be unread.
#[derive(Default)]
pub struct Unread {
    of: HashMap<ClientId, Sent>,
    /// Of each user.
    sums: HashMap<u32, usize>,
    again: HashMap<u32, Instant>,
    diag: Diag,
}

/// What was sent over a connection since all was read.
struct Sent {
    uid: u32,
    count: usize,
    /// The keeper's end; once that is closed the client's, with which what is unread stays.
    inode: u32,
    ended: bool,
}

impl Unread {
    /// May so many more go to a user who may leave so many unread?
    pub fn has_room(&mut self, uid: u32, more: usize, most: usize) -> bool {
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
    pub fn sent(&mut self, client: ClientId, uid: u32, socket: impl AsFd, count: usize) {
        let inode = || fstat(&socket).map_or(0, |it| it.st_ino as u32);
        let sent = self.of.entry(client).or_insert_with(|| Sent {
            uid,
            count: 0,
            inode: inode(),
            ended: false,
        });
        sent.count += count;
        *self.sums.entry(uid).or_default() += count;
    }

    /// The keeper is about to close its end of a connection.
    pub fn ends(&mut self, client: ClientId) {
        let Some(sent) = self.of.get_mut(&client) else {
            return;
        };
        match self.diag.queues(sent.inode) {
            Some(Queues {
                sent: 1..,
                peer: Some(peer),
                ..
            }) => (sent.inode, sent.ended) = (peer, true),
            _ => self.forget(client),
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
            let sent = &self.of[&client];
            let queues = self.diag.queues(sent.inode);
            let left = queues.map_or(0, |queues| match sent.ended {
                true => queues.received,
                false => queues.sent,
            });
            if left == 0 {
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

/// What the kernel tells of sockets.
#[derive(Default)]
struct Diag {
    socket: Option<OwnedFd>,
    number: u32,
}

/// Of one socket, in bytes.
#[derive(Debug, Default)]
struct Queues {
    /// What it received, and nobody has read.
    received: u32,
    /// What it sent, and the other end has not read.
    sent: u32,
    /// The other end.
    peer: Option<u32>,
}

const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
/// `UDIAG_SHOW_PEER` and `UDIAG_SHOW_RQLEN`.
const SHOW: u32 = 4 | 16;
const PEER: u16 = 2;
const LENGTHS: u16 = 4;

impl Diag {
    /// `None` where there is no such socket any more, or where that cannot be told.
    fn queues(&mut self, inode: u32) -> Option<Queues> {
        if self.socket.is_none() {
            let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
            let protocol = Some(netlink::SOCK_DIAG);
            self.socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol).ok();
        }
        let socket = self.socket.as_ref()?;
        self.number = self.number.wrapping_add(1);
        let mut request = Vec::with_capacity(40);
        request.extend(40_u32.to_ne_bytes());
        request.extend(BY_FAMILY.to_ne_bytes());
        request.extend(REQUEST.to_ne_bytes());
        request.extend(self.number.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes());
        // Of the family of Unix sockets, in any state; no cookie.
        request.extend([AddressFamily::UNIX.as_raw() as u8, 0, 0, 0]);
        for word in [u32::MAX, inode, SHOW, u32::MAX, u32::MAX] {
            request.extend(word.to_ne_bytes());
        }
        send(socket, &request, SendFlags::empty()).ok()?;
        let mut room = [0_u8; 512];
        // The answer is there by now; one to an earlier question is none.
        loop {
            let (length, _) = recv(socket, &mut room, RecvFlags::DONTWAIT).ok()?;
            let answer = &room[..length];
            if word(answer, 8)? == self.number {
                return (half(answer, 4)? == BY_FAMILY).then(|| of_answer(answer.get(32..)))?;
            }
        }
    }
}

fn of_answer(attributes: Option<&[u8]>) -> Option<Queues> {
    let mut queues = Queues::default();
    let mut rest = attributes?;
    while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        match kind {
            PEER => queues.peer = word(rest, 4),
            LENGTHS => (queues.received, queues.sent) = (word(rest, 4)?, word(rest, 8)?),
            _ => {}
        }
        // At least its own head, so that this ends.
        let length = usize::from(length).max(4).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Some(queues)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;

    const MOST: usize = 10;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn read(socket: &OwnedFd) {
        recv(socket, &mut [0_u8; 8], RecvFlags::empty()).unwrap();
    }

    #[test]
    fn what_is_read_makes_room_and_what_is_not_does_not_by_the_end_of_a_connection() {
        let mut unread = Unread::default();
        let (here, there) = pair();
        let write = |unread: &mut Unread| {
            assert!(unread.has_room(7, 6, MOST));
            send(&here, b"packet", SendFlags::empty()).unwrap();
            unread.sent(1, 7, &here, 6);
        };
        write(&mut unread);
        assert!(unread.has_room(8, 6, MOST), "it is another user's");
        // Once more than there is room for: it was read.
        read(&there);
        write(&mut unread);
        assert!(!unread.has_room(7, 6, MOST));
        unread.ends(1);
        drop(here);
        std::thread::sleep(PAUSE);
        assert!(!unread.has_room(7, 6, MOST));
        read(&there);
        std::thread::sleep(PAUSE);
        assert!(unread.has_room(7, 6, MOST));
        assert!(unread.of.is_empty() && unread.sums.is_empty());
        // Who closes its end has nothing any more.
        let (here, there) = pair();
        send(&here, b"packet", SendFlags::empty()).unwrap();
        unread.sent(2, 7, &here, 6);
        drop(there);
        unread.ends(2);
        assert!(unread.of.is_empty());
    }

    #[test]
    fn one_packet_is_let_through_whatever_its_size() {
        let mut unread = Unread::default();
        assert!(unread.has_room(7, MOST + 1, MOST));
        unread.sent(1, 7, pair().0, MOST + 1);
        assert!(unread.has_room(7, 1, MOST), "its socket is gone");
    }
}
