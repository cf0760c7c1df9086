//! The ranges of addresses that the program has reserved: pages in one of them may be one
//! allocation. Reserves nothing itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use memcuda_core::driver::Address;
use memcuda_core::lock::lock;
use memcuda_core::pages::Home;

use crate::engine::Engine;
use crate::engine::device::Device;

/// First addresses, and bytes.
static RESERVED: Mutex<BTreeMap<Address, u64>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<Address, u64>> {
    lock(&RESERVED)
}

/// The program has reserved addresses.
pub fn add(at: Address, bytes: u64) {
    all().insert(at, bytes);
}

/// It gives them up; how many bytes there were.
pub fn remove(engine: &Engine, at: Address) -> Option<u64> {
    let bytes = all().remove(&at)?;
    engine.pages().for_each(|pages| pages.unreserved(at, bytes));
    Some(bytes)
}

/// What a page that is mapped now at an address belongs to.
pub fn home(engine: &Engine, device: &Device, at: Address) -> Home {
    let before = all().range(..=at).next_back().map(|(a, b)| (*a, *b));
    let around = before.filter(|(start, bytes)| at - start < *bytes);
    let current = engine.context_for(device).unwrap_or_default();
    Home {
        // Of one that is not known each page stands alone.
        reservation: around.map_or(at, |(start, _)| start),
        // Also while a view of it (a green one) is current, which may end before the page.
        context: device.views.whole(current),
    }
}
