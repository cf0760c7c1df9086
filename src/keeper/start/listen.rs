//! The socket's place: its directory and who may enter, the lock that makes one
//! keeper of many that start at once, and the listening socket.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, Mode, Stat, flock, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::{geteuid, umask};
use tracing::warn;

use crate::keeper::requests::rules::{group_id, unknown};
use crate::share::place;

/// Who else than the user may come to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Nobody.
    Own,
    /// This group.
    Group(u32),
}

impl Door {
    /// Of a group's name or number.
    pub fn of(group: Option<&str>) -> Result<Self> {
        let Some(group) = group else {
            return Ok(Self::Own);
        };
        let none = || unknown("group", group);
        Ok(Self::Group(group_id(group).ok_or_else(none)?))
    }
}

/// Makes the directory of the socket, if it is not there, and of a path that somebody
/// wrote none above it. One that others may write to is refused, but for a sticky one:
/// there, the socket alone is closed to them. Nothing is made for a socket that cannot be.
pub fn enter(socket: &Path, door: Door) -> Result<()> {
    may_be_at(socket)?;
    let directory = socket
        .parent()
        .context("the socket's path has no directory")?;
    if !directory.exists() {
        let mode = if door == Door::Own { 0o700 } else { 0o750 };
        let own = place::usable(geteuid().as_raw(), |name| std::env::var(name).ok());
        let above = directory.parent().filter(|above| !above.exists());
        if let Some(above) = above.filter(|_| !own.iter().any(|own| own == directory)) {
            bail!(
                "cannot listen at {}: {} is not there; accepted: a path whose directory is there or can be made in one that is",
                socket.display(),
                above.display()
            );
        }
        if let Some(above) = above {
            // Others' places may be beside this one, but in a user's own directory.
            let is_users_own = door == Door::Own && !geteuid().is_root();
            make_all(above, if is_users_own { 0o700 } else { 0o755 })
                .with_context(|| format!("cannot make {}", above.display()))?;
        }
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(directory);
        made.with_context(|| format!("cannot make {}", directory.display()))?;
        if let Door::Group(group) = door {
            std::os::unix::fs::chown(directory, None, Some(group))
                .with_context(|| format!("cannot give {} to group {group}", directory.display()))?;
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
        }
    }
    let it = fs::symlink_metadata(directory)
        .with_context(|| format!("cannot look at {}", directory.display()))?;
    let (mode, own) = (it.mode(), geteuid().as_raw());
    let sticky = mode & 0o1000 != 0;
    if !it.is_dir() || (it.uid() != own && it.uid() != 0) || (mode & 0o002 != 0 && !sticky) {
        bail!(
            "{} is not a safe place for a socket: user {}, mode {:o}; accepted: a directory of user {own} or root \
             that not everybody may write to",
            directory.display(),
            it.uid(),
            mode & 0o7777
        );
    }
    // One that was there stays as it is.
    if let Door::Group(group) = door
        && mode & (if it.gid() == group { 0o010 } else { 0o001 }) == 0
    {
        warn!(
            "{} is group {}'s with mode {:o}: unless an access list lets them, members of group {group} \
             do not reach the socket in it",
            directory.display(),
            it.gid(),
            mode & 0o7777
        );
    }
    Ok(())
}

/// Makes what is missing of a path, with this mode whatever is left out of others.
fn make_all(path: &Path, mode: u32) -> std::io::Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|it| !it.exists()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            // Another keeper is at it.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Fails where no socket can be: what is there stays as it is.
fn may_be_at(path: &Path) -> Result<()> {
    let shown = path.display();
    if fs::symlink_metadata(path).is_ok_and(|it| !it.file_type().is_socket()) {
        bail!("{shown} is there and is no socket: it stays as it is");
    }
    Ok(place::fits(path)?)
}

/// How long a keeper may take to end, with its standby, or to begin.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Takes the lock, or says in one line who has it. One that is locked without a socket
/// is of a keeper that is about to end, or to serve.
pub fn lock(socket: &Path, patience: Duration) -> Result<OwnedFd> {
    let path = lock_of(socket);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let end = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file.into()),
            Err(Errno::WOULDBLOCK) if socket.exists() => {
                bail!("a keeper serves {} already", socket.display())
            }
            Err(Errno::WOULDBLOCK) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::WOULDBLOCK) => bail!(
                "{} is locked by a keeper that does not serve {}",
                path.display(),
                socket.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

/// Is this the lock that lies there? Who has it has the place, whatever became of the
/// socket; where it is not, the place may be another keeper's.
pub fn is_place_of(lock: impl AsFd, socket: &Path) -> bool {
    let there = fs::symlink_metadata(lock_of(socket));
    let ours = fstat(lock);
    there.is_ok_and(|there| ours.is_ok_and(|ours| same(&there, &ours)))
}

fn same(one: &fs::Metadata, other: &Stat) -> bool {
    (one.dev(), one.ino()) == (other.st_dev, other.st_ino)
}

/// Listens there; who holds the lock may take the place of a dead one's socket, and
/// of nothing else.
pub fn bind_to(path: &Path, door: Door) -> Result<OwnedFd> {
    let what = || format!("cannot listen at {}", path.display());
    may_be_at(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(what);
        }
        _ => {}
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, None)?;
    // The socket is never there with more rights than it is to have.
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = SocketAddrUnix::new(path).and_then(|address| bind(&socket, &address));
    umask(before);
    bound.with_context(what)?;
    if let Door::Group(group) = door {
        std::os::unix::fs::chown(path, None, Some(group)).with_context(what)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660)).with_context(what)?;
    }
    listen(&socket, 1024).with_context(what)?;
    Ok(socket)
}

/// The path of the lock.
pub fn lock_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_a_place_have_the_mode_that_is_said() {
        let there = tempfile::tempdir().unwrap();
        for (name, mode) in [("open", 0o755), ("own", 0o700)] {
            let first = there.path().join(name);
            let second = first.join("second");
            make_all(&second, mode).unwrap();
            make_all(&second, 0o711).unwrap();
            for made in [first, second] {
                let made = fs::metadata(made).unwrap();
                assert_eq!(made.mode() & 0o777, mode);
            }
        }
    }
}
