//! Where torch's switch for expandable segments and its split size lie in its configuration.
//! Torch says it: of a configuration that is made for this and told one thing and the other,
//! what changes is the place. Made once; changes nothing that torch uses.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize};

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

/// Split sizes in MiB, of one length as well.
const SPLITS: [usize; 2] = [100, 200];

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

/// What torch is configured with, as this library may turn it.
pub struct Configured {
    pub switch: &'static AtomicU8,
    pub split: Option<&'static AtomicUsize>,
}

/// Has torch a configuration that all kinds of devices share, as it has from 2.9 on?
pub fn has_common_configuration() -> bool {
    !INSTANCE.get().is_null()
}

/// Where in a configuration something lies, in bytes.
#[derive(Clone, Copy)]
struct Places {
    switch: usize,
    /// The word of the split size.
    split: Option<usize>,
}

/// Where all lies in a configuration; `None` in a torch that does not say.
fn places() -> Option<Places> {
    static PLACES: OnceLock<Option<Places>> = OnceLock::new();
    *PLACES.get_or_init(|| {
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
        let switch = only_change(&on, &off)?;
        let split = SPLITS.map(|mib| told(&format!("max_split_size_mb:{mib}")));
        let split = word_of_splits(split.each_ref().map(|it| &**it));
        Some(Places { switch, split })
    })
}

/// The only byte that differs, if it is 1 in the first and 0 in the second.
fn only_change(on: &[u8], off: &[u8]) -> Option<usize> {
    let mut differ = (0..on.len()).filter(|&at| on[at] != off[at]);
    let place = differ.next()?;
    let is_switch = differ.next().is_none() && on[place] == 1 && off[place] == 0;
    is_switch.then_some(place)
}

/// The only word that differs, if it is each of the two split sizes.
fn word_of_splits(told: [&[u8]; 2]) -> Option<usize> {
    let words = told.map(|bytes| bytes.chunks_exact(size_of::<usize>()));
    let [less, more] = words;
    let mut differ = less.zip(more).enumerate().filter(|(_, (a, b))| a != b);
    let (at, (less, more)) = differ.next()?;
    let is = |word: &[u8], mib: usize| word == (mib << 20).to_ne_bytes();
    let is_split = differ.next().is_none() && is(less, SPLITS[0]) && is(more, SPLITS[1]);
    is_split.then_some(at * size_of::<usize>())
}

/// Does torch say where its switch lies?
pub fn are_known() -> bool {
    places().is_some()
}

/// Torch's own configuration; `None` where it does not say where things lie.
pub fn configured() -> Option<Configured> {
    static INSTANCE_AT: OnceLock<usize> = OnceLock::new();
    let places = places()?;
    let instance = *INSTANCE_AT.get_or_init(|| {
        // SAFETY: torch's method of this name has this signature; it was found.
        let instance = unsafe { std::mem::transmute::<*mut c_void, Instance>(INSTANCE.get()) };
        // SAFETY: takes nothing, and answers with an object that is never gone.
        let instance = unsafe { instance() };
        instance as usize
    });
    let split = places.split.map(|at| (instance + at) as *const AtomicUsize);
    Some(Configured {
        // SAFETY: an atomic byte of torch's configuration, which is never gone.
        switch: unsafe { &*((instance + places.switch) as *const AtomicU8) },
        // SAFETY: an atomic word of it, which it aligns.
        split: split.map(|at| unsafe { &*at }),
    })
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

    #[test]
    fn a_split_size_is_the_only_word_that_changes() {
        let told = |words: [usize; 3]| words.map(usize::to_ne_bytes).concat();
        let found = |less, more| word_of_splits([&told(less), &told(more)]);
        let [less, more] = SPLITS.map(|mib| mib << 20);
        assert_eq!(found([7, less, 7], [7, more, 7]), Some(8));
        assert_eq!(found([7, less, 7], [7, less, 7]), None);
        assert_eq!(found([7, less, 7], [7, more, 8]), None);
        assert_eq!(found([7, less, 7], [7, less + 1, 7]), None);
    }
}
