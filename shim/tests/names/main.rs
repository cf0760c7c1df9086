//! Named memory between processes, over the simulated GPU and a keeper of the
//! test's own: by rules, and by the interface of `include/memcuda.h`.

#[path = "../ipc/actor.rs"]
mod actor;
mod api;
mod books;
mod closing;
mod far;
#[path = "../ipc/fickle.rs"]
mod fickle;
mod header;
#[path = "../support/keeper.rs"]
mod keeper;
mod keepers;
mod legacy;
mod lives;
mod makers;
mod many;
#[path = "../../../tests/support/random.rs"]
mod random;
mod room;
mod rules;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod versions;

use actor::{Actor, Place};

const MIB: u64 = 1 << 20;

/// Results of the interface.
const INVALID: i32 = 1;
const NOT_FOUND: i32 = 2;
const EXISTS: i32 = 3;
const MISMATCH: i32 = 4;
const IN_PROGRESS: i32 = 5;
const DENIED: i32 = 6;
const SEALED: i32 = 8;
const UNAVAILABLE: i32 = 10;
const TIMEOUT: i32 = 11;
const ABSENT: i32 = 14;
/// Codes of the driver and the runtime.
const INVALID_VALUE: i32 = 1;

/// A process with these rules.
fn ruled(place: &Place, rules: &str) -> Actor {
    place.actor_with(&[("MEMCUDA_NAMES", rules)])
}

/// A field of what `show` and `describe` answer.
fn field<'a>(shown: &'a str, name: &str) -> &'a str {
    let mut fields = shown.split(' ').filter_map(|field| field.split_once('='));
    fields.find(|(key, _)| *key == name).unwrap().1
}

impl Actor {
    /// Opens a name in one of three ways; the handle and the address.
    #[track_caller]
    fn opened(&mut self, line: &str) -> (String, String) {
        let handle = self.must(line);
        let address = self.must(&format!("address {handle}"));
        assert_ne!(address, "0", "{line}");
        (handle, address)
    }

    #[track_caller]
    fn set(&mut self, at: &str, byte: u8, bytes: u64) {
        self.must(&format!("set {at} {byte} {bytes}"));
    }

    #[track_caller]
    fn get(&mut self, at: &str) -> u8 {
        self.must(&format!("get {at}")).parse().unwrap()
    }

    #[track_caller]
    fn malloc(&mut self, bytes: u64) -> String {
        self.must(&format!("malloc {bytes}"))
    }

    /// How often a name is held.
    #[track_caller]
    fn references(&mut self, name: &str) -> u64 {
        let shown = self.must(&format!("show {name}"));
        field(&shown, "references").parse().unwrap()
    }

    /// The last failure of the interface.
    fn message(&mut self) -> String {
        self.must("message")
    }
}
