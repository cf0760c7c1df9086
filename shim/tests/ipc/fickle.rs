//! A keeper that is gone whenever it is asked for something, a few times.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memcuda_core::share::protocol::{Packet, Reply, Request};
use memcuda_core::share::wire::{self, Broken};

use crate::MIB;
use crate::actor::{Actor, Place, program};
use crate::support;

/// Listens there.
fn listen(path: &Path) -> OwnedFd {
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
    // SAFETY: a listening socket; nobody asks who came.
    let socket = unsafe { libc::accept(listener.as_raw_fd(), null, null.cast()) };
    assert!(socket >= 0);
    // SAFETY: it is nobody else's.
    unsafe { OwnedFd::from_raw_fd(socket) }
}

/// Serves a connection; whether it was closed for what was asked.
fn serve(socket: &OwnedFd, refuses: impl Fn(&Request) -> bool) -> Result<bool, Broken> {
    let mut room = vec![0; wire::MOST_BYTES];
    wire::receive_bytes(socket, &mut room, false)?;
    loop {
        let (bytes, _) = wire::receive_bytes(socket, &mut room, false)?;
        let Packet { number, body }: Packet<Request> = wire::understand(bytes)?;
        if refuses(&body) {
            return Ok(true);
        }
        let (node, lost) = (7, Vec::new());
        match body {
            Request::Introduce { .. } => {
                let epoch = tempfile::tempfile().unwrap();
                epoch.set_len(4096).unwrap();
                let body = Reply::Welcome { node, lost };
                wire::send(socket, &Packet { number, body }, &[epoch.as_fd()])?;
            }
            _ => {
                let body = Reply::Done;
                wire::send(socket, &Packet { number, body }, &[])?;
            }
        }
    }
}

#[test]
fn an_export_survives_keepers_that_go_away() {
    let place = Place::empty();
    let path = place.path("fickle.sock");
    let listener = listen(&path);
    std::thread::spawn(move || {
        let mut gone = 0;
        loop {
            let socket = accept(&listener);
            let refuses = |asked: &Request| gone < 3 && matches!(asked, Request::Export { .. });
            gone += u32::from(serve(&socket, refuses).unwrap_or(false));
        }
    });
    let mut command = place.command(program(), &[support::shim()]);
    let mut actor = Actor::start(command.env("MEMCUDA_KEEPER", path));
    let at = actor.filled(2 * MIB, 1);
    assert_ne!(actor.must(&format!("get {at}")), "0".repeat(128));
}
