//! What becomes of the table's mappings where a context ends, or a view of one. Unmaps nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memcuda_core::driver::{Address, Context};

use super::{ALLOCATED, Mapped, Spot, Table, lock};
use crate::names::place::NONE;

impl Mapped {
    /// The same elsewhere.
    fn moved(&self, spot: Spot) -> Self {
        let page = memcuda_core::lock::lock(&self.page);
        Self {
            entry: self.entry.clone(),
            spot,
            page: Mutex::new(page.clone()),
            sealed: AtomicBool::new(self.sealed.load(Ordering::Relaxed)),
            ..*self
        }
    }
}

impl Table {
    /// What was mapped in a context, or wanted in it, is another one's.
    fn hand_over(&mut self, from: Context, to: Context) {
        let renamed = |context| if context == from { to } else { context };
        for held in self.at.values_mut() {
            let spot = held.mapped.spot;
            let (context, asked) = (renamed(spot.context), renamed(spot.asked));
            if (context, asked) != (spot.context, spot.asked) {
                let spot = Spot {
                    context,
                    asked,
                    ..spot
                };
                held.mapped = Arc::new(held.mapped.moved(spot));
            }
        }
        let opened = self.by.values_mut().flatten();
        opened.for_each(|opened| opened.key.0 = renamed(opened.key.0));
    }
}

/// A view of a context is gone: what was mapped in it is the context's behind it.
pub fn hand_over(view: Context, whole: Context) {
    if let Some(table) = lock().as_mut() {
        table.hand_over(view, whole);
    }
}

/// A context is gone: all mappings of it, to be ended by who gets them. Their
/// handles are none any more.
pub fn leave_context(context: Context) -> Vec<Arc<Mapped>> {
    let mut table = lock();
    let Some(table) = table.as_mut() else {
        return Vec::new();
    };
    let all = table.at.values();
    let mappings = all.filter(|held| held.mapped.spot.context == context);
    let addresses: Vec<Address> = mappings.map(|held| held.mapped.address).collect();
    let mut ended = Vec::new();
    for address in addresses {
        let Some(held) = table.at.remove(&address) else {
            continue;
        };
        ALLOCATED.fetch_sub(held.allocated as usize, Ordering::Relaxed);
        table.forget(&held.mapped);
        ended.push(held.mapped);
    }
    // What is mapped elsewhere was only wanted there.
    table.hand_over(context, NONE);
    let at = &table.at;
    table
        .handles
        .retain(|_, handle| at.contains_key(&handle.address));
    ended
}
