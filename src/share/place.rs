//! Where the keeper's socket is, for both sides.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::{Error, Result};

/// The name of its directory, in one of the system's or the user's.
const DIRECTORY: &str = "memcuda";
/// The name of the socket in its directory.
pub const SOCKET: &str = "keeper.sock";
/// Bytes of the longest path of a socket.
const MOST_PATH: usize = 107;

/// The directory of a user's keeper: for root `/run/memcuda`, else, and where root cannot
/// have that, `$XDG_RUNTIME_DIR/memcuda`, and where neither is to be had `/tmp/memcuda-UID`.
/// Whoever makes or uses it checks that it is the user's own.
pub fn directory(uid: u32, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let system = (uid == 0).then(|| PathBuf::from("/run"));
    first_of(system.into_iter().chain(runtime), uid)
}

/// In the first of these where a user's keeper can be.
fn first_of(places: impl Iterator<Item = PathBuf>, uid: u32) -> PathBuf {
    let mut places = places.filter(|it| it.is_absolute() && may_have(it, uid));
    match places.next() {
        Some(place) => place.join(DIRECTORY),
        None => PathBuf::from(format!("/tmp/{DIRECTORY}-{uid}")),
    }
}

/// Is this directory the user's, or what is there of its path, and can a keeper's be made in
/// it where that is not there? A variable may come from another host or user, as by srun or
/// sudo. `/run` is nobody's in a user namespace, and read-only in many containers.
fn may_have(directory: &Path, uid: u32) -> bool {
    let own = directory.join(DIRECTORY);
    let found = |path| Some((path, std::fs::metadata(path).ok()?.uid()));
    let Some((there, owner)) = directory.ancestors().find_map(found) else {
        return false;
    };
    owner == uid
        && fits(&own.join(SOCKET)).is_ok()
        && match std::fs::symlink_metadata(&own) {
            Ok(own) => own.uid() == uid,
            Err(_) => accessat(CWD, there, Access::WRITE_OK, AtFlags::EACCESS).is_ok(),
        }
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

/// Is this directory the user's own, so that no stranger can have put a socket
/// into it? The error says why not.
pub fn check(directory: &Path, uid: u32) -> std::io::Result<()> {
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

    #[test]
    fn each_user_has_a_place() {
        let there = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(&there).unwrap().uid();
        let missing = there.path().join("yet/to/be/made");
        assert!(may_have(there.path(), own) && may_have(&missing, own));
        let of = |uid: u32, runtime: &Path| {
            let runtime = runtime.display().to_string();
            directory(uid, |name| {
                (name == "XDG_RUNTIME_DIR").then(|| runtime.clone())
            })
        };
        let else_where = PathBuf::from(format!("/tmp/memcuda-{}", own + 1));
        assert_eq!(of(own + 1, there.path()), else_where, "another user's");
        assert_eq!(of(own + 1, &missing), else_where);
        assert_eq!(of(own + 1, Path::new("/nowhere/8")), else_where);
        assert_eq!(directory(own + 1, |_| None), else_where, "not set");
    }

    #[test]
    fn a_place_where_no_keeper_can_be_is_not_the_place() {
        let there = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(&there).unwrap().uid();
        let of = |first: &Path| {
            let places = [first, there.path()].map(Path::to_owned);
            first_of(places.into_iter(), own)
        };
        let second = there.path().join("memcuda");
        assert_eq!(of(Path::new("relative")), second);
        // The longest that the path of a socket leaves room for, and one more.
        let most = MOST_PATH - "/memcuda/keeper.sock".len();
        let long = |bytes: usize| {
            let before = there.path().as_os_str().len() + 1;
            there.path().join("n".repeat(bytes - before))
        };
        assert_eq!(of(&long(most)), long(most).join("memcuda"));
        assert_eq!(of(&long(most + 1)), second);
        let none = first_of([long(most + 1)].into_iter(), own);
        assert_eq!(none, PathBuf::from(format!("/tmp/memcuda-{own}")));
        // Where the directory is there nothing has to be made.
        let first = there.path().join("first");
        std::fs::create_dir_all(first.join("memcuda")).unwrap();
        std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(of(&first), first.join("memcuda"));
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
