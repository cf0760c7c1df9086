//! Where the keeper's socket is, for both sides: in the first of some directories in which
//! one is, else, and where it is to be made, in the first that can be had. So a process that
//! cannot have the directory of another one any more, as after a logout, finds its keeper.
//! Asks no keeper anything.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::{Error, Result};

/// The name of its directory, in one of the system's or the user's.
const DIRECTORY: &str = "memcuda";
/// The name of the socket in its directory.
pub const SOCKET: &str = "keeper.sock";
/// Where everybody may make directories. A container whose files are read-only has the
/// second alone.
const TEMPORARY: [&str; 2] = ["/tmp", "/dev/shm"];
/// How many more there are in each, for where the first is somebody else's.
const SPARE: u32 = 3;
/// Bytes of the longest path of a socket.
const MOST_PATH: usize = 107;

/// The directories in which a user's keeper may be, whether or not they can be had.
struct Places {
    uid: u32,
    /// For root `/run/memcuda`, then `$XDG_RUNTIME_DIR/memcuda`.
    own: Vec<PathBuf>,
    /// `/tmp/memcuda-UID`, then `/tmp/memcuda-UID.1` and so on, then the same in `/dev/shm`.
    temporary: Vec<PathBuf>,
}

impl Places {
    fn of(uid: u32, variable: impl Fn(&str) -> Option<String>) -> Self {
        let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let system = (uid == 0).then(|| PathBuf::from("/run"));
        let own = system.into_iter().chain(runtime);
        Self::among(uid, own, &TEMPORARY.map(Path::new))
    }

    fn among(uid: u32, own: impl Iterator<Item = PathBuf>, temporary: &[&Path]) -> Self {
        let spare = (1..=SPARE).map(|number| format!(".{number}"));
        let ends = [String::new()].into_iter().chain(spare);
        let names: Vec<_> = ends.map(|end| format!("{DIRECTORY}-{uid}{end}")).collect();
        let in_each = |it: &&Path| names.iter().map(|name| it.join(name)).collect::<Vec<_>>();
        Self {
            uid,
            own: own.map(|it| it.join(DIRECTORY)).collect(),
            temporary: temporary.iter().flat_map(in_each).collect(),
        }
    }

    /// Those that can be had now. Of those for everybody the ones that are the user's come
    /// before the first that is to be made: what was somebody else's may be gone since a
    /// keeper went past it.
    fn usable(&self) -> Vec<PathBuf> {
        let own = self.own.iter();
        let own = own.filter(|it| it.is_absolute() && may_have(it, self.uid));
        let there = self.temporary.iter();
        let there = there.filter(|it| has_place(it, self.uid));
        let mut missing = self.temporary.iter();
        let missing =
            missing.find(|it| it.symlink_metadata().is_err() && it.parent().is_some_and(has_room));
        own.chain(there).chain(missing).cloned().collect()
    }

    /// Where the keeper is: in the only one with a socket, or in the first where somebody
    /// listens. Where it is to be, if none is there.
    fn chosen(&self) -> PathBuf {
        let mut usable = self.usable();
        let socket = |it: &PathBuf| it.join(SOCKET);
        let there = |it: &&PathBuf| socket(it).symlink_metadata().is_ok();
        let there: Vec<_> = usable.iter().filter(there).cloned().collect();
        match <[PathBuf; 1]>::try_from(there) {
            Ok([only]) => only,
            Err(there) => {
                let heard = there.into_iter().find(|it| is_heard(&socket(it)));
                // Who looks there is told what is wrong with it.
                usable.extend(self.temporary.first().cloned());
                heard.unwrap_or_else(|| usable.swap_remove(0))
            }
        }
    }
}

/// The directory of a user's keeper, or of one that is to begin: in one of root's
/// `/run/memcuda`, `$XDG_RUNTIME_DIR/memcuda`, `/tmp/memcuda-UID`, and where that is not the
/// user's `/tmp/memcuda-UID.1` and so on; the same in `/dev/shm` where these cannot be had.
/// Whoever makes or uses it checks that it is the user's own.
pub fn directory(uid: u32, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    Places::of(uid, variable).chosen()
}

/// All of these that can be had now.
pub fn usable(uid: u32, variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    Places::of(uid, variable).usable()
}

/// Is this socket in one of these, whether or not that can be had now?
pub fn is_users(socket: &Path, uid: u32, variable: impl Fn(&str) -> Option<String>) -> bool {
    let places = Places::of(uid, variable);
    let mut all = places.own.iter().chain(&places.temporary);
    all.any(|it| it.join(SOCKET) == socket)
}

/// Is this directory the user's, or what is there of its path, and can a keeper's be made
/// where it is not there? A variable may come from another host or user, as by srun or
/// sudo. `/run` is nobody's in a user namespace, and read-only in many containers.
fn may_have(own: &Path, uid: u32) -> bool {
    let is_there = |it: &&Path| it.exists();
    let Some(there) = own.ancestors().skip(1).find(is_there) else {
        return false;
    };
    std::fs::metadata(there).is_ok_and(|it| it.uid() == uid)
        && fits(&own.join(SOCKET)).is_ok()
        && match own.symlink_metadata() {
            Err(_) => has_room(there),
            Ok(_) => has_place(own, uid),
        }
}

/// Is this directory the user's own, with a socket in it, or with room for one?
fn has_place(directory: &Path, uid: u32) -> bool {
    let there = || directory.join(SOCKET).symlink_metadata().is_ok();
    check(directory, uid).is_ok() && (there() || has_room(directory))
}

/// Can anything be made in this directory? It may be no directory, read-only, or on a file
/// system without a file left; one that has no limit has none in all.
fn has_room(directory: &Path) -> bool {
    directory.is_dir()
        && may_write(directory)
        && !statvfs(directory).is_ok_and(|it| it.f_files > 0 && it.f_favail == 0)
}

/// May this process write there? Filters of containers that are older than the call for
/// that (Linux 5.8) refuse it with an error of their own; then the older call is asked.
fn may_write(directory: &Path) -> bool {
    let ask = |flags| accessat(CWD, directory, Access::WRITE_OK, flags);
    match ask(AtFlags::EACCESS) {
        Err(Errno::PERM) => ask(AtFlags::empty()).is_ok(),
        asked => asked.is_ok(),
    }
}

/// Does somebody listen there? A keeper may have been killed between the making of a socket
/// and handing it to its standby: that one is there, and of no use.
pub fn is_heard(socket: &Path) -> bool {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let heard = socket_with(family, kind, flags, None)
        .and_then(|own| connect(&own, &SocketAddrUnix::new(socket)?));
    !matches!(heard, Err(Errno::NOENT | Errno::CONNREFUSED))
}

/// Fails where a path is too long for a socket.
pub fn fits(socket: &Path) -> Result<()> {
    let bytes = socket.as_os_str().len();
    if bytes > MOST_PATH {
        let shown = socket.display();
        let accepted = format!("accepted: a path of up to {MOST_PATH} bytes");
        return Err(Error::new(format!("{shown} is too long; {accepted}")));
    }
    Ok(())
}

/// Fails where what [`directory`] chose is not the user's own directory. Where nothing is
/// there yet, and can be nowhere, permission is denied: nobody has to try.
pub fn trust(
    directory: &Path,
    uid: u32,
    variable: impl Fn(&str) -> Option<String>,
) -> std::io::Result<()> {
    let checked = check(directory, uid);
    let is_missing = matches!(&checked, Err(error) if error.kind() == ErrorKind::NotFound);
    if is_missing && usable(uid, variable).is_empty() {
        let shown = directory.display();
        let message = format!("no keeper can be at {shown}, nor at another of its places");
        return Err(std::io::Error::new(ErrorKind::PermissionDenied, message));
    }
    checked
}

/// Is this directory the user's own, so that no stranger can have put a socket
/// into it? The error says why not.
fn check(directory: &Path, uid: u32) -> std::io::Result<()> {
    let shown = directory.display();
    let found = std::fs::symlink_metadata(directory)
        .map_err(|error| std::io::Error::new(error.kind(), format!("{shown}: {error}")))?;
    let open_to_all = found.mode() & 0o002 != 0;
    if !found.is_dir() || found.uid() != uid || open_to_all {
        let message = format!("{shown} is not a directory of this user's own");
        return Err(std::io::Error::new(ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// The user, and a directory in which only they may make any.
    fn begin() -> (u32, tempfile::TempDir) {
        let there = tempfile::tempdir().unwrap();
        (std::fs::metadata(&there).unwrap().uid(), there)
    }

    /// Of a user with these places, and another one in the place of /tmp.
    fn places(uid: u32, own: &[&Path], temporary: &Path) -> Places {
        let own = own.iter().map(|&it| it.to_owned());
        Places::among(uid, own, &[temporary])
    }

    #[test]
    fn each_user_has_a_place() {
        let (own, there) = begin();
        let missing = there.path().join("yet/to/be/made");
        let of = |uid, runtime: &Path| {
            let name = format!("{DIRECTORY}-{uid}");
            let chosen = places(uid, &[runtime], there.path()).chosen();
            (chosen == there.path().join(name), chosen)
        };
        for first in [there.path(), &missing] {
            assert_eq!(of(own, first).1, first.join("memcuda"));
            assert!(of(own + 1, first).0, "another user's");
        }
        assert!(of(own + 1, Path::new("/nowhere/8")).0);
        assert!(of(own, Path::new("relative")).0);
        assert_eq!(
            directory(own + 1, |_| None),
            PathBuf::from(format!("/tmp/memcuda-{}", own + 1))
        );
    }

    #[test]
    fn a_place_where_no_keeper_can_be_is_not_the_place() {
        let (own, there) = begin();
        let of = |first: &Path| places(own, &[first, there.path()], Path::new("/tmp")).chosen();
        let second = there.path().join("memcuda");
        assert_eq!(of(Path::new("relative")), second);
        let file = there.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(of(&file), second);
        // The longest that the path of a socket leaves room for, and one more.
        let most = MOST_PATH - "/memcuda/keeper.sock".len();
        let long = |bytes: usize| {
            let before = there.path().as_os_str().len() + 1;
            there.path().join("n".repeat(bytes - before))
        };
        assert_eq!(of(&long(most)), long(most).join("memcuda"));
        assert_eq!(of(&long(most + 1)), second);
        // Where the directory is there nothing has to be made.
        let first = there.path().join("first");
        std::fs::create_dir_all(first.join("memcuda")).unwrap();
        std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(of(&first), first.join("memcuda"));
        // Others may put a socket of theirs there.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(first.join("memcuda"), open).unwrap();
        assert_eq!(of(&first), second);
    }

    #[test]
    fn a_directory_in_tmp_that_is_somebody_elses_is_passed_over() {
        let (own, there) = begin();
        let of = || places(own, &[], there.path()).chosen();
        let called = |end: &str| there.path().join(format!("memcuda-{own}{end}"));
        assert_eq!(of(), called(""));
        // What is no directory of this user's own, as another user's.
        std::os::unix::fs::symlink("/", called("")).unwrap();
        std::fs::write(called(".1"), "").unwrap();
        assert_eq!(of(), called(".2"));
        std::fs::create_dir(called(".2")).unwrap();
        // A keeper may be there: it stays the place.
        std::fs::remove_file(called("")).unwrap();
        assert_eq!(of(), called(".2"));
        for end in ["", ".3"] {
            std::os::unix::fs::symlink("/", called(end)).unwrap();
        }
        std::fs::remove_dir(called(".2")).unwrap();
        assert_eq!(of(), called(".2"));
        std::os::unix::fs::symlink("/", called(".2")).unwrap();
        assert_eq!(of(), called(""), "it says what is wrong");
    }

    #[test]
    fn a_directory_for_everybody_that_is_not_there_is_passed_over() {
        let (own, there) = begin();
        let missing = there.path().join("missing");
        let among = |all: &[&Path]| Places::among(own, std::iter::empty(), all);
        let second = there.path().join(format!("memcuda-{own}"));
        assert_eq!(among(&[&missing, there.path()]).chosen(), second);
        assert!(among(&[&missing]).usable().is_empty());
    }

    #[test]
    fn where_somebody_listens_is_the_place() {
        let (own, there) = begin();
        let [first, second] = ["first", "second"].map(|it| there.path().join(it));
        let all = [&first, &second].map(PathBuf::as_path);
        let of = || places(own, &all, there.path()).chosen();
        assert_eq!(of(), first.join("memcuda"));
        let listen = |place: &Path| {
            std::fs::create_dir_all(place.join("memcuda")).unwrap();
            let socket = place.join("memcuda").join(SOCKET);
            let _ = std::fs::remove_file(&socket);
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let listener = rustix::net::socket(family, kind, None).unwrap();
            rustix::net::bind(&listener, &SocketAddrUnix::new(socket).unwrap()).unwrap();
            rustix::net::listen(&listener, 8).unwrap();
            listener
        };
        let kept = listen(&second);
        assert_eq!(of(), second.join("memcuda"));
        drop(listen(&first));
        assert_eq!(of(), second.join("memcuda"), "nobody is at the other");
        let also = listen(&first);
        assert_eq!(of(), first.join("memcuda"));
        drop((kept, also));
        assert_eq!(of(), first.join("memcuda"), "for who begins");
    }

    #[test]
    fn a_place_that_others_may_write_to_is_no_place() {
        let place = std::env::temp_dir().join(format!("memcuda-place-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let own = std::fs::symlink_metadata(&place).unwrap().uid();
        let with = |mode| {
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode)).unwrap();
            check(&place, own).is_ok()
        };
        let (private, open) = (with(0o700), with(0o777));
        assert!(private && !open && check(&place, own + 1).is_err());
        std::fs::remove_dir(&place).unwrap();
        let gone = check(&place, own).unwrap_err().to_string();
        assert!(gone.contains("memcuda-place-"), "{gone}");
    }
}
