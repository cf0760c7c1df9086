//! Where the keeper's socket is, for both sides.

use std::path::PathBuf;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_place() {
        let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned());
        assert_eq!(directory(7, runtime), PathBuf::from("/run/user/7/memcuda"));
        assert_eq!(directory(0, runtime), PathBuf::from("/run/memcuda"));
        assert_eq!(directory(7, |_| None), PathBuf::from("/tmp/memcuda-7"));
    }
}
