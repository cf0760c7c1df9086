//! Where torch's switch for expandable segments, its split size and the size of its segments
//! lie in its configuration. Torch says it: of a configuration that is made for this and told one thing and the other,
//! what changes is the place. Made once; changes nothing that torch uses.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize};

use super::library::{self, Exported};

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

/// Sizes in MiB that are told, of one length as well.
const SIZES: [usize; 2] = [40, 60];

/// The key of the size of segments, which torch throws at where it does not know it (2.10).
pub const LARGE_KEY: &CStr = c"large_segment_size_mb";

/// How the sizes are told, before and behind the figure: the split size; that of segments,
/// with what torch would make of it were that not told as well.
const SPLIT: [&str; 2] = ["max_split_size_mb:", ""];
const LARGE: [&str; 2] = ["large_segment_size_mb:", ",max_non_split_rounding_mb:80"];

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
    /// In bytes.
    pub split: Option<&'static AtomicUsize>,
    /// Bytes of segments that several tensors share, and how many they have by themselves.
    pub large: Option<(&'static AtomicUsize, usize)>,
}

/// Has torch a configuration that all kinds of devices share, as it has from 2.9 on?
pub fn has_common_configuration() -> bool {
    !INSTANCE.get().is_null()
}

/// Where in a configuration something lies, in bytes.
#[derive(Clone, Copy)]
struct Places {
    switch: usize,
    /// The words of the sizes.
    split: Option<usize>,
    large: Option<usize>,
    /// What the latter holds where nothing is told.
    own_large: usize,
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
        let place_of = |[before, behind]: [&str; 2]| {
            let told = SIZES.map(|mib| told(&format!("{before}{mib}{behind}")));
            word_of_sizes(told.each_ref().map(|it| &**it))
        };
        let split = place_of(SPLIT);
        let large = library::knows(LARGE_KEY).then(|| place_of(LARGE)).flatten();
        Some(Places {
            switch,
            split,
            large,
            own_large: large.map_or(0, |at| word(&off, at)),
        })
    })
}

fn word(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |word| usize::from_ne_bytes(*word))
}

/// The only byte that differs, if it is 1 in the first and 0 in the second.
fn only_change(on: &[u8], off: &[u8]) -> Option<usize> {
    let mut differ = (0..on.len()).filter(|&at| on[at] != off[at]);
    let place = differ.next()?;
    let is_switch = differ.next().is_none() && on[place] == 1 && off[place] == 0;
    is_switch.then_some(place)
}

/// The only word that differs, if it is each of the two sizes.
fn word_of_sizes([less, more]: [&[u8]; 2]) -> Option<usize> {
    let places = (0..less.len()).step_by(size_of::<usize>());
    let mut differ = places.filter(|&at| word(less, at) != word(more, at));
    let at = differ.next()?;
    let sizes = [less, more].map(|bytes| word(bytes, at) >> 20);
    let is_size = differ.next().is_none() && sizes == SIZES;
    is_size.then_some(at)
}

/// Does torch say where its switch lies?
pub fn are_known() -> bool {
    places().is_some()
}

/// And its split size?
pub fn know_split() -> bool {
    places().is_some_and(|it| it.split.is_some())
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
    // SAFETY: an atomic word of torch's configuration, which it aligns and which is never gone.
    let word = |at: usize| unsafe { &*((instance + at) as *const AtomicUsize) };
    Some(Configured {
        // SAFETY: an atomic byte of it.
        switch: unsafe { &*((instance + places.switch) as *const AtomicU8) },
        split: places.split.map(word),
        large: places.large.map(|at| (word(at), places.own_large)),
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
    fn a_size_is_the_only_word_that_changes() {
        let told = |words: [usize; 3]| words.map(usize::to_ne_bytes).concat();
        let found = |less, more| word_of_sizes([&told(less), &told(more)]);
        let [less, more] = SIZES.map(|mib| mib << 20);
        assert_eq!(found([7, less, 7], [7, more, 7]), Some(8));
        assert_eq!(found([7, less, 7], [7, less, 7]), None);
        assert_eq!(found([7, less, 7], [7, more, 8]), None);
        assert_eq!(found([7, less, 7], [7, more + (1 << 20), 7]), None);
    }
}
