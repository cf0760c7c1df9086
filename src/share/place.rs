//! Where the keeper's socket is, for both sides.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the socket in its directory.
pub const SOCKET: &str = "keeper.sock";

/// The directory of a user's keeper: `$XDG_RUNTIME_DIR/memcuda`, for root
/// `/run/memcuda`, and where neither is to be had `/tmp/memcuda-UID`. Whoever
/// makes or uses it checks that it is the user's own.
pub fn directory(uid: u32, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let runtime = variable("XDG_RUNTIME_DIR").filter(|text| text.starts_with('/'));
    match runtime {
        _ if uid == 0 => PathBuf::from("/run/memcuda"),
        Some(runtime) => PathBuf::from(runtime).join("memcuda"),
        None => PathBuf::from(format!("/tmp/memcuda-{uid}")),
    }
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
        let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned());
        assert_eq!(directory(7, runtime), PathBuf::from("/run/user/7/memcuda"));
        assert_eq!(directory(0, runtime), PathBuf::from("/run/memcuda"));
        assert_eq!(directory(7, |_| None), PathBuf::from("/tmp/memcuda-7"));
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
