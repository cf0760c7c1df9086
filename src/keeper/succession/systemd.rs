//! systemd's side, where it runs the keeper: that it is ready, and its store of
//! descriptors, which takes the standby's place (`FileDescriptorStoreMax=`).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};
use tracing::{info, warn};

use crate::keeper::succession::key::Key;

/// It hands all names over in one variable, which Linux lets have so many bytes with its
/// own name and its end: a service with more cannot be started any more.
const VARIABLE: usize = (128 << 10) - "LISTEN_FDNAMES=".len() - 1;
/// So many names fit there, with what is between them.
const MOST_NAMES: usize = VARIABLE / (Key::LONGEST + 1);
/// What is no memory: the place, and a journal that is there before the old one goes.
const OTHERS: usize = 8;

/// The socket to the service manager.
pub struct Store {
    socket: OwnedFd,
    address: SocketAddrUnix,
    /// How many descriptors it holds and hands over at most.
    most: usize,
    /// Did it not hear of something that it is to hold?
    pub lacks: bool,
}

impl Store {
    /// The service manager that started this process, if one did that wants to
    /// hear of it (`NOTIFY_SOCKET`).
    pub fn find() -> Option<Self> {
        let address = std::env::var_os("NOTIFY_SOCKET")?;
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name),
            path => SocketAddrUnix::new(path),
        };
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let most = std::env::var("FDSTORE")
            .ok()
            .and_then(|most| most.parse().ok())
            .unwrap_or(0);
        if most > MOST_NAMES {
            info!(
                "systemd hands over {MOST_NAMES} descriptors at most, of the {most} in its store"
            );
        }
        Some(Self {
            socket: socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?,
            address: address.ok()?,
            most: most.min(MOST_NAMES),
            lacks: false,
        })
    }

    /// How many descriptors of memory it holds at most; 0 where it holds none.
    pub fn room(&self) -> usize {
        self.most.saturating_sub(OTHERS)
    }

    /// What the store had, from a predecessor.
    pub fn stored() -> Vec<(Key, OwnedFd)> {
        let all = sd_listen_fds::get().unwrap_or_default();
        let known = |(name, descriptor): (Option<String>, sd_listen_fds::OwnedFd)| {
            Some((name?.parse().ok()?, descriptor.into_std()))
        };
        let known: Vec<(Key, OwnedFd)> = all.into_iter().filter_map(known).collect();
        for (_, descriptor) in &known {
            // They came without; nothing that is started is to have them.
            let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
        }
        known
    }

    /// The keeper serves.
    pub fn ready(&self) {
        self.say("READY=1", &[]);
    }

    /// Puts duplicates into the store.
    pub fn keep(&mut self, all: &[(Key, BorrowedFd<'_>)]) {
        for (key, descriptor) in all {
            // A memory's descriptor may say at any time that it is readable.
            let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={key}");
            self.lacks |= !self.say(&text, &[*descriptor]);
        }
    }

    /// Takes them out.
    pub fn forget(&self, keys: &[Key]) {
        for key in keys {
            self.say(&format!("FDSTOREREMOVE=1\nFDNAME={key}"), &[]);
        }
    }

    /// Was it heard?
    fn say(&self, text: &str, beside: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !beside.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(beside));
        }
        let (text, flags) = ([IoSlice::new(text.as_bytes())], SendFlags::NOSIGNAL);
        let said = sendmsg_addr(&self.socket, &self.address, &text, &mut ancillary, flags);
        if let Err(error) = &said
            && !self.lacks
        {
            warn!("systemd does not hear ({error})");
        }
        said.is_ok()
    }
}
