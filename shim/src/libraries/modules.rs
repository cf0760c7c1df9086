//! Which loaded module an address of code lies in, and the table that gives
//! modules small numbers. Takes no lock of ours: callers may be inside a lookup.
//! Modules come and go, and another may come to lie where one was.

use std::ffi::CString;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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
    /// Twice how many modules had been unloaded when this one was last looked for, and one
    /// ([`GONE`]) where it was no more, or [`BEHIND`].
    seen: AtomicU64,
    /// What had the place in the table before: for who looks for lost memory, and to be used
    /// again. Of whoever has made the place's record one that is [`BEHIND`], alone.
    older: AtomicPtr<About>,
}

/// It is unloaded; its addresses may be another's.
const GONE: u64 = 1;
/// The record lies behind another one of its place, or is about to.
const BEHIND: u64 = u64::MAX;
/// Records of a place among which the one of a module that comes again is looked for.
const LOOKED_AT: usize = 64;

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
        if seen & GONE != 0 {
            return false;
        }
        if seen == unloads << 1 {
            return true;
        }
        let same = find(self.code.start, unloads).is_some_and(|here| here.is(self));
        let now = unloads << 1 | if same { 0 } else { GONE };
        // Who asked before others did leaves what they have found.
        let _ = self
            .seen
            .compare_exchange(seen, now, Ordering::AcqRel, Ordering::Relaxed);
        same
    }

    /// Is it the same file at the same place?
    fn is(&self, other: &Self) -> bool {
        self.start == other.start && self.code == other.code && self.path == other.path
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

fn enter(mut about: About) -> Found {
    let (address, unloads) = (about.code.start, about.seen.load(Ordering::Relaxed) >> 1);
    for (places, of_others) in [
        (0..NUMBERED, false),
        (0..NUMBERED, true),
        (NUMBERED..KEPT, false),
        (NUMBERED..KEPT, true),
    ] {
        for index in places {
            let (slot, module) = (&TABLE[index], Module::kept_at(index));
            let entered = match filled(slot) {
                None => begin(slot, about),
                Some(other) if other.path == about.path => {
                    if other.is_loaded(unloads) && other.holds(address) {
                        return Found::Kept(module, other);
                    }
                    follow(slot, other, about)
                }
                Some(other) if of_others && !other.is_loaded(unloads) => follow(slot, other, about),
                Some(_) => continue,
            };
            match entered {
                Ok(about) => return Found::Kept(module, about),
                Err(not_entered) => about = not_entered,
            }
        }
    }
    Found::Beyond(Box::new(about))
}

/// Puts a module at a place that is free, unless another thread does.
fn begin(slot: &AtomicPtr<About>, about: About) -> Result<&'static About, About> {
    let fresh = Box::into_raw(Box::new(about));
    let free = ptr::null_mut();
    match slot.compare_exchange(free, fresh, Ordering::AcqRel, Ordering::Relaxed) {
        // SAFETY: never freed from here on.
        Ok(_) => Ok(unsafe { &*fresh }),
        // SAFETY: made above, and not published.
        Err(_) => Err(*unsafe { Box::from_raw(fresh) }),
    }
}

/// Puts a module where one is that is gone, unless that is not, or another thread does. It
/// gets its old record, if that is known.
fn follow(
    slot: &AtomicPtr<About>,
    gone: &'static About,
    about: About,
) -> Result<&'static About, About> {
    let (now, seen) = (
        about.seen.load(Ordering::Relaxed),
        gone.seen.load(Ordering::Acquire),
    );
    let is_same = gone.is(&about);
    let next = if is_same { now } else { BEHIND };
    let mine = |seen| {
        gone.seen
            .compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    if seen & GONE == 0 || seen == BEHIND || !mine(seen) {
        return Err(about);
    }
    if is_same {
        return Ok(gone);
    }
    // Nobody else changes this place now, or looks behind its record.
    let mut link = &gone.older;
    for _ in 0..LOOKED_AT {
        let Some(old) = filled(link) else { break };
        if old.is(&about) {
            link.store(old.older.load(Ordering::Relaxed), Ordering::Relaxed);
            old.older
                .store(ptr::from_ref(gone).cast_mut(), Ordering::Relaxed);
            slot.store(ptr::from_ref(old).cast_mut(), Ordering::Release);
            // Last: from here on the place may be another thread's.
            old.seen.store(now, Ordering::Release);
            return Ok(old);
        }
        link = &old.older;
    }
    about
        .older
        .store(ptr::from_ref(gone).cast_mut(), Ordering::Relaxed);
    let fresh = Box::into_raw(Box::new(about));
    slot.store(fresh, Ordering::Release);
    // SAFETY: never freed from here on.
    Ok(unsafe { &*fresh })
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
            seen: AtomicU64::new(unloads << 1),
            older: AtomicPtr::default(),
        })
    })
}
