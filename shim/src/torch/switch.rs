//! Torch's own switch for expandable segments: off while a private pool is open (a graph's,
//! `torch.cuda.MemPool`), where nobody but the native profile turned them on. Such a pool
//! then has segments by cudaMalloc, as it would have by itself. In expandable ones torch
//! counts what a pool got by request, and what it gave back by stretch: a pool that is given
//! up while some of its tensors live ends the program by an assertion of torch's, or goes
//! with those tensors in it.
//!
//! The switch is a byte of torch's configuration. Which one, torch says: of a configuration
//! that is made for it and told both, the only one that changes. Other threads have segments
//! by cudaMalloc meanwhile. Changes nothing that a user turned on.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::environment;
use super::library::Exported;

/// Methods of `c10::CachingAllocator::AcceleratorAllocatorConfig`.
static MAKE: Exported = Exported::new(
    c"libc10.so",
    c"_ZN3c1016CachingAllocator26AcceleratorAllocatorConfigC1Ev",
);
static PARSE: Exported = Exported::new(
    c"libc10.so",
    c"_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig9parseArgsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
);
static INSTANCE: Exported = Exported::new(
    c"libc10.so",
    c"_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig8instanceEv",
);

/// Both of one length, so that nothing else differs; torch leaves blanks out.
const ON: &str = "expandable_segments:True ";
const OFF: &str = "expandable_segments:False";

/// Bytes for a configuration: torch's have some 130.
const MOST: usize = 4096;

/// `std::string` of libstdc++.
#[repr(C)]
struct Text {
    first: *const u8,
    bytes: usize,
    short: [u8; 16],
}

type Make = unsafe extern "C-unwind" fn(*mut c_void);
type Parse = unsafe extern "C-unwind" fn(*mut c_void, *const Text);
type Instance = unsafe extern "C-unwind" fn() -> *const AtomicU8;

/// Has torch a configuration that all kinds of devices share, as it has from 2.9 on?
pub fn has_common_configuration() -> bool {
    !INSTANCE.get().is_null()
}

/// Where the switch lies in a configuration; `None` in a torch that does not say.
pub fn place() -> Option<usize> {
    static PLACE: OnceLock<Option<usize>> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let (make, parse) = (MAKE.get(), PARSE.get());
        if make.is_null() || parse.is_null() || !has_common_configuration() {
            return None;
        }
        // SAFETY: torch's methods of these names have these signatures.
        let (make, parse) = unsafe {
            let make = std::mem::transmute::<*mut c_void, Make>(make);
            (make, std::mem::transmute::<*mut c_void, Parse>(parse))
        };
        // Never freed: what torch keeps in it is torch's to free.
        let made: *mut [u64; MOST / 8] = Box::leak(Box::new([0; MOST / 8]));
        let told = |setting: &str| -> Box<[u8]> {
            let text = Text {
                first: setting.as_ptr(),
                bytes: setting.len(),
                short: [0; 16],
            };
            // SAFETY: a configuration that was made, and a text that outlives the call.
            unsafe {
                parse(made.cast(), &raw const text);
                std::slice::from_raw_parts(made.cast::<u8>(), MOST).into()
            }
        };
        // SAFETY: there is room for more than any has.
        unsafe { make(made.cast()) };
        // Twice: the first time memory for the text is taken.
        told(OFF);
        let (on, off) = (told(ON), told(OFF));
        only_change(&on, &off)
    })
}

/// The only byte that differs, if it is 1 in the first and 0 in the second.
fn only_change(on: &[u8], off: &[u8]) -> Option<usize> {
    let mut differ = (0..on.len()).filter(|&at| on[at] != off[at]);
    let place = differ.next()?;
    let is_switch = differ.next().is_none() && on[place] == 1 && off[place] == 0;
    is_switch.then_some(place)
}

/// Scopes that are open, and whether the switch was on before the first.
struct Scopes {
    open: usize,
    was_on: bool,
}

static SCOPES: Mutex<Scopes> = Mutex::new(Scopes {
    open: 0,
    was_on: false,
});

/// A private pool is about to open.
pub fn opens() {
    let Some(switch) = switch() else { return };
    let mut scopes = SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
    if scopes.open == 0 {
        scopes.was_on = switch.swap(0, Ordering::Relaxed) == 1;
    }
    scopes.open += 1;
}

/// One has closed.
pub fn closed() {
    let Some(switch) = switch() else { return };
    let mut scopes = SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
    scopes.open = scopes.open.saturating_sub(1);
    if scopes.open == 0 && scopes.was_on {
        switch.store(1, Ordering::Relaxed);
        scopes.was_on = false;
    }
}

/// Torch's, where it is the profile's to turn.
fn switch() -> Option<&'static AtomicU8> {
    if !environment::turned_pages_on() {
        return None;
    }
    static INSTANCE_AT: OnceLock<usize> = OnceLock::new();
    let place = place()?;
    let instance = *INSTANCE_AT.get_or_init(|| {
        // SAFETY: torch's method of this name has this signature; it was found.
        let instance = unsafe { std::mem::transmute::<*mut c_void, Instance>(INSTANCE.get()) };
        // SAFETY: takes nothing, and answers with an object that is never gone.
        let instance = unsafe { instance() };
        instance as usize
    });
    // SAFETY: an atomic byte of torch's configuration, which is never gone.
    Some(unsafe { &*((instance + place) as *const AtomicU8) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_the_only_byte_that_changes() {
        assert_eq!(only_change(&[5, 1, 7], &[5, 0, 7]), Some(1));
        assert_eq!(only_change(&[5, 1, 7], &[5, 1, 7]), None);
        assert_eq!(only_change(&[5, 1, 1], &[5, 0, 0]), None);
        assert_eq!(only_change(&[5, 0, 7], &[5, 1, 7]), None);
    }
}
