//! Where the keeper's socket is, for both sides.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The name of the socket in its directory.
pub const SOCKET: &str = "keeper.sock";
/// Bytes of the longest path of a socket.
const MOST_PATH: usize = 107;

/// The directory of a user's keeper: `$XDG_RUNTIME_DIR/memcuda`, for root
/// `/run/memcuda`, and where neither is to be had `/tmp/memcuda-UID`. Whoever
/// makes or uses it checks that it is the user's own.
pub fn directory(uid: u32, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|runtime| runtime.is_absolute() && may_have(runtime, uid)) {
        _ if uid == 0 => PathBuf::from("/run/memcuda"),
        Some(runtime) => runtime.join("memcuda"),
        None => PathBuf::from(format!("/tmp/memcuda-{uid}")),
    }
}

/// Is this directory the user's, or what is there of its path, so that it can be made? A
/// variable may come from another host or user, as by srun or sudo.
fn may_have(directory: &Path, uid: u32) -> bool {
    let mut found = directory.ancestors().flat_map(std::fs::metadata);
    found.next().is_some_and(|found| found.uid() == uid)
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
        assert_eq!(of(0, there.path()), PathBuf::from("/run/memcuda"));
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
