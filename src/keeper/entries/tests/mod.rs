//! The life of names, exports and leases, without a process or a descriptor:
//! what the tests share.

mod exports;
mod leases;
mod list;
mod names;
mod restore;

use std::collections::BTreeSet;

use super::*;
use crate::share::protocol::{Backend, DeviceId, Lease, Mode, Spec};

const MAKER: ClientId = 1;
const OTHER: ClientId = 2;
/// Of what a client leaves behind.
const ALL: usize = usize::MAX;

fn process(pid: u32) -> Process {
    Process {
        pid,
        started: 5,
        uid: 0,
        gid: 0,
        command: "test".to_owned(),
    }
}

fn entries() -> Entries {
    let mut entries = Entries::default();
    entries.set_time(1_000_000);
    entries.join(MAKER, process(10));
    entries.join(OTHER, process(20));
    entries
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn generation(number: u8) -> Generation {
    Generation([number; 16])
}

fn spec(bytes: u64) -> Spec {
    Spec {
        bytes,
        dtype: None,
        shape: Vec::new(),
        device: DeviceId([1; 16]),
        ordinal: 0,
        backend: Backend::Vmm,
    }
}

fn wish(text: &str, mode: Mode) -> Wish {
    Wish {
        name: name(text),
        mode,
        spec: spec(100),
        write: false,
        hidden: false,
    }
}

/// Makes a name with memory.
fn make(entries: &mut Entries, text: &str, number: u8) -> Generation {
    let opened = entries.open(MAKER, wish(text, Mode::Create), generation(number));
    assert_eq!(opened, Ok(Opened::Make(generation(number))));
    let committed = entries.commit(MAKER, generation(number), vec![4096], Vec::new());
    assert_eq!(committed, Ok(()));
    generation(number)
}

/// An export that is whole.
pub fn export(it: Generation, parts: Vec<u64>) -> Item {
    let (bytes, total) = (parts.iter().sum(), parts.len() as u32);
    let mut entries = entries();
    let exported = entries.export(MAKER, it, spec(bytes), 0, parts, total);
    assert_eq!(exported, Ok(()));
    let mut item = entries.items[&it].clone();
    item.holders.clear();
    item
}

/// Takes a lease up, from whichever earlier connections there are.
fn resume(entries: &mut Entries, client: ClientId, lease: Lease) -> bool {
    let earlier = entries.earlier_of(client);
    entries.resume(client, lease, &earlier)
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.unwrap_err().code
}

fn gone(entries: &mut Entries) -> BTreeSet<Generation> {
    let effects = entries.take_effects().into_iter();
    let gone = effects.filter_map(|effect| match effect {
        Effect::Gone(item) => Some(item.generation),
        _ => None,
    });
    gone.collect()
}
