//! Named memory at an address: what it is, and in which context for whom.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memcuda_core::driver::{Address, Context};
use memcuda_core::names::Name;
use memcuda_core::share::protocol::{Entry, State};

use crate::engine::Engine;
use crate::names::place::{self, Place};
use crate::names::timeline::Page;

/// Where the bytes of a mapping come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A handle that the pool maps.
    Pool,
    /// The driver's own allocation, made here.
    Allocation,
    /// The driver's own allocation of another process.
    LegacyHandle,
}

/// Named memory at an address.
pub struct Mapped {
    /// What the keeper said when it was made or opened.
    pub entry: Entry,
    /// Its first byte.
    pub address: Address,
    /// Where it is, and how it was opened.
    pub spot: Spot,
    /// Ordinal of the device whose pool has the address.
    pub device: u32,
    /// Where it comes from.
    pub from: From,
    /// Was the memory made for it?
    pub made: bool,
    /// Is it in the table already, with a use that is this one's?
    pub is_taken: bool,
    /// Its versions, once somebody asked.
    pub page: Mutex<Option<Arc<Page>>>,
    /// Has this process sealed it since?
    pub sealed: AtomicBool,
}

impl Mapped {
    /// Is it not to be found before it is sealed? Not by this process either: its bytes are
    /// not there yet.
    pub fn is_hidden(&self) -> bool {
        self.entry.state == State::Creating && !self.sealed.load(Ordering::Relaxed)
    }

    /// The primary context of its device, where that is active and the driver has opened the
    /// memory for a context of another one.
    pub fn primary(&self, engine: &Engine) -> Option<Context> {
        let at = engine.device_of(self.spot.context).ok()?;
        let home = engine.by_ordinal(self.device)?;
        (at.ordinal != home.ordinal)
            .then(|| engine.primary_of(home))
            .flatten()
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        self.entry.name.as_ref().expect("it was opened by its name")
    }
}

/// Where a mapping is, and how it may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The context that it ends with.
    pub context: Context,
    /// The context that was current where it was wanted, as [`Place::asked`].
    pub asked: Context,
    /// May it be written?
    pub write: bool,
}

impl Spot {
    /// Of what is opened there.
    pub fn of(place: &Place<'_>, write: bool) -> Self {
        Self {
            context: place.context,
            asked: place.asked,
            write,
        }
    }

    /// The context that may use it beside its own.
    pub fn beside(&self) -> Option<Context> {
        place::beside(self.asked, self.context)
    }

    /// By which the interface finds it again.
    pub fn key(&self) -> (Context, bool) {
        (self.asked, self.write)
    }

    /// Is one mapping enough for both?
    pub fn is_as(&self, other: Self) -> bool {
        (self.context, self.write, self.beside()) == (other.context, other.write, other.beside())
    }
}
