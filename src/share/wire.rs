//! Packets over a socket of SOCK_SEQPACKET, with the descriptors beside them
//! (SCM_RIGHTS). What arrives from others is data: too long, cut short or not
//! understood is an error, never more. Descriptors that nobody asked for are
//! closed.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::MOST_PARTS;

/// Most bytes of a packet.
pub const MOST_BYTES: usize = 64 << 10;

/// Why nothing came, or nothing went.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// The other side is gone.
    Closed,
    /// Not now, or not in time: the socket's own limits.
    Later,
    /// What came is no packet of this protocol.
    Garbled,
    /// The descriptors beside a packet did not find room in this process; they
    /// are gone, and the connection goes on.
    NoRoom,
    /// The system call failed.
    System(Errno),
}

impl From<Errno> for Broken {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::Later,
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            error => Self::System(error),
        }
    }
}

/// Sends a packet; whole or not at all.
pub fn send(
    socket: impl AsFd,
    body: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Broken> {
    let bytes = postcard::to_allocvec(body).map_err(|_| Broken::Garbled)?;
    send_bytes(socket, &bytes, descriptors)
}

/// Sends bytes as a packet.
pub fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Broken> {
    if bytes.len() > MOST_BYTES || descriptors.len() > MOST_PARTS {
        return Err(Broken::Garbled);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PARTS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut beside, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How many bytes the next packet has, which stays where it is. Does not wait for one.
pub fn length_of_next(socket: impl AsFd) -> Result<usize, Broken> {
    let flags = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    loop {
        match recv(&socket, &mut [0_u8; 0], flags) {
            Ok((_, length)) => return Ok(length),
            Err(error) if is_passing(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a packet as bytes into `room`, which is as long as the longest one.
pub fn receive_bytes(
    socket: impl AsFd,
    room: &mut [u8],
    now: bool,
) -> Result<(&[u8], Vec<OwnedFd>), Broken> {
    let mut descriptors = Vec::new();
    let bytes = receive(socket, room, now, &mut descriptors)?;
    Ok((bytes, descriptors))
}

/// The same, with all descriptors that came, whatever becomes of the packet.
pub fn receive<'a>(
    socket: impl AsFd,
    room: &'a mut [u8],
    now: bool,
    descriptors: &mut Vec<OwnedFd>,
) -> Result<&'a [u8], Broken> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PARTS), ScmCredentials(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if now {
        flags |= RecvFlags::DONTWAIT;
    }
    let got = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(room)], &mut beside, flags) {
            Ok(got) => break got,
            Err(error) if is_passing(error) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut is_end = got.bytes == 0;
    for message in beside.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => descriptors.extend(rights),
            RecvAncillaryMessage::ScmCredentials(_) => is_end = false,
            _ => {}
        }
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(Broken::Garbled);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Broken::NoRoom);
    }
    match is_end {
        true => Err(Broken::Closed),
        false => Ok(&room[..got.bytes]),
    }
}

/// Lets packets of no bytes be told from the end: with each packet comes who sent it, and
/// with the end nobody.
pub fn tell_the_end(socket: impl AsFd) -> rustix::io::Result<()> {
    sockopt::set_socket_passcred(socket, true)
}

/// May what fails so be tried again at once? The other side is gone without having read
/// all that was said to it; what it said before is there.
fn is_passing(error: Errno) -> bool {
    matches!(error, Errno::INTR | Errno::CONNRESET)
}

/// What the bytes of a packet say; all of them.
pub fn understand<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Broken> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(Broken::Garbled),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::protocol::{Packet, Request};
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_packet_arrives_with_its_descriptors() {
        let (here, there) = pair();
        let sent = Packet {
            number: 7,
            body: Request::Collect {
                dry: true,
                kept: false,
            },
        };
        let descriptors = vec![here.as_fd(); MOST_PARTS];
        send(&here, &sent, &descriptors).unwrap();
        let mut room = vec![0; MOST_BYTES];
        let (bytes, rights) = receive_bytes(&there, &mut room, false).unwrap();
        assert_eq!(understand::<Packet<Request>>(bytes).unwrap(), sent);
        assert_eq!(rights.len(), MOST_PARTS);
        let is_kept = |it: &OwnedFd| fcntl_getfd(it).unwrap().contains(FdFlags::CLOEXEC);
        assert!(
            rights.iter().all(is_kept),
            "a program that it starts has memory"
        );
        let nothing = receive_bytes(&there, &mut room, true);
        assert_eq!(nothing.unwrap_err(), Broken::Later);
        drop((here, rights));
        assert_eq!(
            receive_bytes(&there, &mut room, false).unwrap_err(),
            Broken::Closed
        );
    }

    #[test]
    fn what_is_too_long_or_has_a_tail_is_garbled() {
        let (here, there) = pair();
        assert_eq!(
            send_bytes(&here, &vec![0; MOST_BYTES + 1], &[]),
            Err(Broken::Garbled)
        );
        send_bytes(&here, &[1; 2000], &[]).unwrap();
        let mut room = [0; 100];
        let got = receive_bytes(&there, &mut room, false);
        assert_eq!(got.unwrap_err(), Broken::Garbled);
        let mut bytes = postcard::to_allocvec(&Packet {
            number: 1,
            body: Request::Status,
        })
        .unwrap();
        bytes.push(0);
        assert_eq!(understand::<Packet<Request>>(&bytes), Err(Broken::Garbled));
    }
}
