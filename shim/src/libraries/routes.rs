//! By which route each module came to a hooked entry point, for
//! `memcuda doctor`: one debug line a route, `route: SYMBOL by DOOR from MODULE`.
//! Lookups may hold the loader's locks and come before the log is set up, so
//! they only note; [`say`] is for calls of hooks. Lock-free; forgets what is
//! beyond its table.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memcuda_core::config::Level;

use crate::libraries::modules::Module;
use crate::process::log;

/// The way by which a function was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Door {
    /// `dlsym`.
    Dlsym,
    /// `cuGetProcAddress` in any version.
    GetProcAddress,
    /// The runtime's `cudaGetDriverEntryPoint` in any version.
    EntryPoint,
}

const DOORS: [(Door, &str); 3] = [
    (Door::Dlsym, "dlsym"),
    (Door::GetProcAddress, "cuGetProcAddress"),
    (Door::EntryPoint, "cudaGetDriverEntryPoint"),
];

/// Each route once, in order: where the symbol's name is, of which addresses of
/// programs have 48 bits, door, module; 0 is free.
static ROUTES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// How many of them were said.
static SAID: AtomicUsize = AtomicUsize::new(0);

/// A module got the entry of a hook of this name through a door.
pub fn note(symbol: &'static CStr, door: Door, module: Module) {
    let name = symbol.as_ptr().expose_provenance() as u64;
    let route = name << 16 | (door as u64) << 8 | u64::from(module.0);
    for slot in &ROUTES {
        let there = slot.compare_exchange(0, route, Ordering::Release, Ordering::Relaxed);
        match there {
            Ok(_) if log::enabled(Level::Debug) => return log::make_due(),
            Ok(_) => return,
            Err(known) if known == route => return,
            Err(_) => {}
        }
    }
}

/// The log is set up, or a hook is called: says what was noted since.
pub fn say() {
    let mut at = SAID.load(Ordering::Relaxed);
    while let Some(slot) = ROUTES.get(at) {
        let route = slot.load(Ordering::Acquire);
        if route == 0 {
            return;
        }
        let mine = SAID.compare_exchange(at, at + 1, Ordering::Relaxed, Ordering::Relaxed);
        at = match mine {
            Ok(_) => {
                tell(route);
                at + 1
            }
            Err(others) => others,
        };
    }
}

fn tell(route: u64) {
    let name = std::ptr::with_exposed_provenance::<c_char>((route >> 16) as usize);
    // SAFETY: the name of a symbol that was noted, which lives as long as this
    // library.
    let symbol = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let mut doors = DOORS.iter();
    let Some((_, door)) = doors.find(|(door, _)| *door as u64 == route >> 8 & 0xff) else {
        return;
    };
    let about = Module(route as u8).about();
    let file = about.map(|about| String::from_utf8_lossy(about.file()));
    let module = match file.as_deref() {
        None => "some module",
        Some("") => "the program itself",
        Some(file) => file,
    };
    crate::log!(Debug, "route: {symbol} by {door} from {module}");
}
