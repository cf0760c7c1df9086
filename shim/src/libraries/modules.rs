//! Which loaded module an address of code lies in, and the table that gives
//! modules small numbers. Takes no lock of ours: callers may be inside a lookup.
//! Modules come and go, and another may come to lie where one was.

use std::ffi::CString;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::libraries::loader;

/// Modules with a number of their own.
pub const NUMBERED: usize = 32;
/// Modules that are found without asking the loader.
const KEPT: usize = 256;

/// The number of a module, for the entry points that are made per module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module(pub u8);

impl Module {
    /// All modules beyond the table, and code outside every module.
    pub const OTHER: Module = Module(NUMBERED as u8);
    /// Callers that reached an exported symbol directly.
    pub const DIRECT: Module = Module(NUMBERED as u8 + 1);

    /// What is known of the module; `None` for the two shared numbers.
    pub fn about(self) -> Option<&'static About> {
        filled(TABLE[..NUMBERED].get(self.0 as usize)?)
    }

    /// The number that goes with a place in the table.
    fn kept_at(index: usize) -> Self {
        match u8::try_from(index) {
            Ok(number) if index < NUMBERED => Self(number),
            _ => Self::OTHER,
        }
    }
}

/// A module: its file and where its code lies.
#[derive(Debug)]
pub struct About {
    /// Path as the loader knows it; empty for the program itself.
    pub path: CString,
    start: usize,
    code: Range<usize>,
    /// How many modules had been unloaded when this one was last seen.
    seen: AtomicU64,
    /// It is unloaded; its addresses may be another's.
    gone: AtomicBool,
}

impl About {
    /// The last component of the path.
    pub fn file(&self) -> &[u8] {
        let path = self.path.to_bytes();
        path.rsplit(|&b| b == b'/').next().unwrap_or(path)
    }

    /// Does this address lie in the module's code?
    pub fn holds(&self, address: usize) -> bool {
        self.code.contains(&address)
    }

    /// How far an address lies behind its beginning, in bytes.
    pub fn offset(&self, address: usize) -> usize {
        address.wrapping_sub(self.start)
    }

    /// Is it still what is loaded there? The loader is asked again only where
    /// something was unloaded since.
    fn is_loaded(&self, unloads: u64) -> bool {
        let seen = self.seen.load(Ordering::Acquire);
        if self.gone.load(Ordering::Relaxed) {
            return false;
        }
        if seen == unloads {
            return true;
        }
        let here = find(self.code.start, unloads);
        let same = here.is_some_and(|here| here.start == self.start && here.path == self.path);
        // Never taken back, by a thread that asked before it was unloaded, and there before
        // others see that it was asked.
        if !same {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.seen.store(unloads, Ordering::Release);
        same
    }
}

/// Records are never freed: who read one may still look at it.
static TABLE: [AtomicPtr<About>; KEPT] = [const { AtomicPtr::new(ptr::null_mut()) }; KEPT];

fn filled(slot: &AtomicPtr<About>) -> Option<&'static About> {
    // SAFETY: a filled slot points to a record that is never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// A module that was found.
pub enum Found {
    /// It is in the table, where the first ones have numbers.
    Kept(Module, &'static About),
    /// One of those for which no place is left.
    Beyond(Box<About>),
}

impl Found {
    /// Its number.
    pub fn module(&self) -> Module {
        match self {
            Found::Kept(module, _) => *module,
            Found::Beyond(_) => Module::OTHER,
        }
    }
}

impl Deref for Found {
    type Target = About;
    fn deref(&self) -> &About {
        match self {
            Found::Kept(_, about) => about,
            Found::Beyond(about) => about,
        }
    }
}

/// The module that holds this address; gives it a number while there are any. A file
/// that was unloaded gets its old one again, until all numbers were given once: then others
/// get those of files that are gone, whose code calls nothing any more.
pub fn at(address: usize) -> Option<Found> {
    let unloads = unloads();
    for (index, slot) in TABLE.iter().enumerate() {
        let Some(about) = filled(slot) else { break };
        if about.holds(address) && about.is_loaded(unloads) {
            return Some(Found::Kept(Module::kept_at(index), about));
        }
    }
    find(address, unloads).map(enter)
}

/// The number of the module that holds this address.
pub fn number(address: usize) -> Module {
    at(address).map_or(Module::OTHER, |found| found.module())
}

fn enter(about: About) -> Found {
    let (address, unloads) = (about.code.start, about.seen.load(Ordering::Relaxed));
    let fresh = Box::into_raw(Box::new(about));
    // SAFETY: made above; taken back below only where it was not published.
    let about = unsafe { &*fresh };
    for (places, of_others) in [
        (0..NUMBERED, false),
        (0..NUMBERED, true),
        (NUMBERED..KEPT, false),
        (NUMBERED..KEPT, true),
    ] {
        for index in places {
            let (slot, module) = (&TABLE[index], Module::kept_at(index));
            let known = slot.load(Ordering::Acquire);
            // SAFETY: as in `filled`.
            let free = match unsafe { known.as_ref() } {
                None => true,
                Some(other) if other.path == about.path => {
                    if other.is_loaded(unloads) && other.holds(address) {
                        // SAFETY: it was not published.
                        drop(unsafe { Box::from_raw(fresh) });
                        return Found::Kept(module, other);
                    }
                    !other.is_loaded(unloads)
                }
                Some(other) => of_others && !other.is_loaded(unloads),
            };
            let swap = || slot.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire);
            if free && swap().is_ok() {
                return Found::Kept(module, about);
            }
        }
    }
    // SAFETY: it was not published.
    Found::Beyond(unsafe { Box::from_raw(fresh) })
}

/// How many modules were unloaded so far: where this is what it was, every
/// address means what it meant.
pub fn unloads() -> u64 {
    loader::find(|file| Some(file.unloads())).unwrap_or(0)
}

/// Asks the loader. `unloads` is how many modules had been unloaded by then.
fn find(address: usize, unloads: u64) -> Option<About> {
    loader::find(|file| {
        let code = file.code().filter(|code| code.contains(&address))?;
        Some(About {
            path: file.path().to_owned(),
            start: file.range()?.start,
            code,
            seen: AtomicU64::new(unloads),
            gone: AtomicBool::new(false),
        })
    })
}
