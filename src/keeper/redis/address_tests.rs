//! The settings and the keeper have readers of their own for the server's address: what
//! the one of the settings refuses the keeper's refuses, too.

use std::ffi::OsString;

use super::Server;
use crate::config::Config;

/// Of these an address is put together.
const PARTS: [&str; 34] = [
    "redis://",
    "rediss://",
    "redis+unix://",
    "h",
    "localhost",
    "0.0.0.0",
    "::",
    "1.2.3.4",
    "[::1]",
    "[::ffff:1.2.3.4]",
    "[1:2:3:4:5:6:7::]",
    "[",
    "]",
    ":",
    ":6379",
    ":65536",
    ":99999",
    "@",
    "u:p@",
    "/",
    "/1",
    "/x",
    "-1",
    "+1",
    "?db=1",
    "?db=x",
    "&db=2",
    "?protocol=resp3",
    "\t",
    " ",
    "é",
    "#insecure",
    "#x",
    "\u{1}",
];

#[test]
fn settings_and_keeper_take_the_same_addresses() {
    let mut state = 3_u32;
    let mut dice = |sides: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % sides
    };
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut text = PARTS[dice(3)].to_owned();
        for _ in 0..dice(6) {
            text += PARTS[dice(PARTS.len())];
        }
        let value = |name: &str| (name == "MEMCUDA_REDIS").then(|| OsString::from(&text));
        let (settings, keeper) = (Config::read(value), Server::new(text.trim_ascii()));
        // What the settings leave to the keeper.
        let left = text.contains("protocol") || text.contains('#');
        let agree = settings.is_ok() == keeper.is_ok() || (left && settings.is_ok());
        assert!(agree, "{text:?}: {:?} {:?}", settings.err(), keeper.err());
        taken += u32::from(keeper.is_ok());
    }
    assert!(taken > 2000, "{taken}");
}
