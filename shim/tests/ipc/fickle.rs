//! A keeper that answers as a test says, or goes away in the place of an answer and comes
//! back with what it knew.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memcuda_core::share::protocol::{Packet, Reply, Request};
use memcuda_core::share::wire::{self, Broken};

use crate::actor::{Actor, Place};

/// Of a keeper that knows all that it is told.
const WELCOME: Reply = Reply::Welcome {
    node: 7,
    lost: Vec::new(),
};

/// Listens there.
pub fn listen(path: &Path) -> OwnedFd {
    // SAFETY: system calls on a new socket, with an address that is large enough.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        let bytes = size_of_val(&address) as u32;
        assert_eq!(libc::bind(socket, (&raw const address).cast(), bytes), 0);
        assert_eq!(libc::listen(socket, 10), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    use std::os::fd::AsRawFd;
    let null = std::ptr::null_mut();
    // A program that another test starts meanwhile would hold it open.
    let flags = libc::SOCK_CLOEXEC;
    // SAFETY: a listening socket; nobody asks who came.
    let socket = unsafe { libc::accept4(listener.as_raw_fd(), null, null.cast(), flags) };
    assert!(socket >= 0);
    // SAFETY: it is nobody else's.
    unsafe { OwnedFd::from_raw_fd(socket) }
}

/// Serves a connection until `answer` has none for what is asked.
fn serve(
    socket: &OwnedFd,
    epoch: &File,
    mut answer: impl FnMut(&Request) -> Option<Reply>,
) -> Result<(), Broken> {
    let mut room = vec![0; wire::MOST_BYTES];
    wire::receive_bytes(socket, &mut room, false)?;
    loop {
        let (bytes, _) = wire::receive_bytes(socket, &mut room, false)?;
        let Packet { number, body }: Packet<Request> = wire::understand(bytes)?;
        let Some(answer) = answer(&body) else {
            return Ok(());
        };
        let (body, beside) = match body {
            Request::Introduce { .. } => {
                let welcome = match answer {
                    welcome @ Reply::Welcome { .. } => welcome,
                    _ => WELCOME,
                };
                (welcome, vec![epoch.as_fd()])
            }
            _ => (answer, Vec::new()),
        };
        wire::send(socket, &Packet { number, body }, &beside)?;
    }
}

/// A process with such a keeper.
pub fn start(
    place: &Place,
    answer: impl FnMut(&Request) -> Option<Reply> + Send + 'static,
) -> Actor {
    start_with(place, &[], answer)
}

/// The same of a process with these settings.
pub fn start_with(
    place: &Place,
    settings: &[(&str, &str)],
    mut answer: impl FnMut(&Request) -> Option<Reply> + Send + 'static,
) -> Actor {
    let path = place.path("fickle.sock");
    let listener = listen(&path);
    let epoch = tempfile::tempfile().unwrap();
    epoch.set_len(4096).unwrap();
    std::thread::spawn(move || {
        loop {
            let _ = serve(&accept(&listener), &epoch, &mut answer);
        }
    });
    let keeper = ("MEMCUDA_KEEPER", path.to_str().unwrap());
    place.actor_with(&[settings, &[keeper]].concat())
}
