//! Pictures of running processes, which they make when they are asked: where a
//! process is asked, and why one may not answer.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;

use anyhow::{Result, anyhow, bail};
use memcuda::picture::Picture;
use memcuda::picture::ask::{self, DOORS};
use memcuda::share::socket::is_own_want;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{another_user_s, page_of};
use crate::process;

/// The picture of a process, or in one line why there is none.
pub fn picture(pid: u32) -> Result<Picture> {
    if !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
        bail!("there is no process {pid}");
    }
    let mut is_crowded = false;
    let unasked = |error| anyhow!("process {pid} cannot be asked: {error}");
    for name in doors(pid).map_err(unasked)? {
        let socket = match enter(&name) {
            Ok(socket) => socket,
            // Its own door or, if not, somebody else's of that name.
            Err(error) if error.kind() == ErrorKind::WouldBlock && name.contains(&own(pid)) => {
                is_crowded = true;
                continue;
            }
            Err(error) if Errno::from_io_error(&error).is_some_and(is_own_want) => {
                return Err(unasked(error));
            }
            // Gone since it was listed.
            Err(_) => continue,
        };
        let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
        if u32::try_from(peer.pid()) != Ok(pid) {
            continue;
        }
        let me = rustix::process::geteuid();
        if !me.is_root() && me.as_raw() != peer.uid() {
            return Err(another_user_s(pid));
        }
        // It hears one after the other.
        drop(socket);
        return ask::ask(|| enter(&name)).map_err(|why| anyhow!("process {pid}: {why}"));
    }
    if is_crowded {
        bail!("process {pid}: nobody is let in any more: it may be stopped");
    }
    Err(without_door(pid))
}

/// The sockets at which processes can be asked, those that bear this number
/// first: a process in a container knows itself by another one.
fn doors(pid: u32) -> io::Result<Vec<String>> {
    let list = match fs::read("/proc/self/net/unix") {
        // Not every sandbox shows it.
        Err(error) if process::is_out_of_sight(&error) => Vec::new(),
        list => list?,
    };
    let list = String::from_utf8_lossy(&list);
    let names = list.lines().filter_map(|line| line.split_once('@'));
    let mut doors: Vec<String> = names
        .map(|(_, name)| name.trim_end().to_owned())
        .filter(|name| name.starts_with(DOORS))
        .collect();
    // A door with somebody in it is listed once more.
    doors.sort_unstable();
    doors.dedup();
    let own = own(pid);
    doors.sort_by_key(|name| !name.contains(&own));
    Ok(doors)
}

/// What the names of a process's doors have in them.
fn own(pid: u32) -> String {
    format!("/{pid}-")
}

/// Connects without waiting.
fn enter(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Why a process that runs has no door.
fn without_door(pid: u32) -> anyhow::Error {
    if let Err(error) = page_of(pid) {
        return error;
    }
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    if network(&pid.to_string()) != network("self") {
        return anyhow!(
            "process {pid} lives in a container with a network of its own: ask it from inside (nsenter --net --target {pid})"
        );
    }
    anyhow!(
        "process {pid} has no pool to show: it has asked for no device memory yet, its policy is track, or its driver does not name the device"
    )
}
