//! What becomes of the table's mappings where a context ends, or a view of one. Unmaps nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memcuda_core::driver::{Address, Context};

use super::{ALLOCATED, Mapped, Use, lock};

impl Mapped {
    /// The same in another context.
    fn handed_over(&self, to: Context) -> Self {
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            entry: self.entry.clone(),
            context: to,
            page: Mutex::new(page.clone()),
            sealed: AtomicBool::new(self.sealed.load(Ordering::Relaxed)),
            ..*self
        }
    }
}

/// A view of a context is gone: what was mapped in it is the context's behind it.
pub fn hand_over(view: Context, whole: Context) {
    let mut table = lock();
    let Some(table) = table.as_mut() else { return };
    let its = |held: &&mut Use| held.mapped.context == view;
    for held in table.at.values_mut().filter(its) {
        held.mapped = Arc::new(held.mapped.handed_over(whole));
    }
    let opened = table.by.values_mut().flatten();
    let its = opened.filter(|opened| opened.key.0 == view);
    its.for_each(|opened| opened.key.0 = whole);
}

/// A context is gone: all mappings of it, to be ended by who gets them. Their
/// handles are none any more.
pub fn leave_context(context: Context) -> Vec<Arc<Mapped>> {
    let mut table = lock();
    let Some(table) = table.as_mut() else {
        return Vec::new();
    };
    let all = table.at.values();
    let mappings = all.filter(|held| held.mapped.context == context);
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
    let at = &table.at;
    table
        .handles
        .retain(|_, handle| at.contains_key(&handle.address));
    ended
}
