//! The Python functions that the calling thread is in
//! (`MEMCUDA_TRACE_STACKS=python`), with or without the interpreter's lock, which
//! torch lets go of before it allocates.
//!
//! Why that may be done: while a thread is in a function of C that Python called,
//! nobody but this thread changes its chain of frames, and the frames hold their
//! code objects, whose texts do not change. So it is read, and nothing else: no
//! reference is counted, no object made, no attribute asked for, no lock taken.
//! What is read has no promised layout, so it is known by version, and each
//! object's type is checked. Functions of the interpreter that are called only
//! read, too: the interpreter's own crash handler calls the one for lines.
//!
//! Never links the interpreter: it is found among what the process has loaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::sum::mix;
use crate::libraries::resolve;

/// A place in the code: a code object, and an address in its instructions.
pub type Place = (usize, usize);

/// Where things lie, in bytes. The same on every 64-bit machine.
struct Layout {
    minor: u32,
    /// In the thread's state: what has the innermost frame, or that frame.
    state: usize,
    /// Where it is in what the state has, if not in the state.
    inside: Option<usize>,
    /// In a frame: the one that called, code, instruction, whose it is.
    previous: usize,
    code: usize,
    instruction: usize,
    owner: usize,
    /// An owner that is no function of Python.
    not_python: u8,
    /// In code: its first line, and where its instructions begin.
    first_line: usize,
    begin: usize,
}

/// CPython, without the free-threaded builds, whose objects begin otherwise.
const LAYOUTS: [Layout; 3] = [
    Layout {
        minor: 11,
        state: 56,
        inside: Some(8),
        previous: 48,
        code: 32,
        instruction: 56,
        owner: 69,
        not_python: u8::MAX,
        first_line: 72,
        begin: 184,
    },
    Layout {
        minor: 12,
        state: 56,
        inside: Some(0),
        previous: 8,
        code: 0,
        instruction: 56,
        owner: 70,
        not_python: 3,
        first_line: 68,
        begin: 192,
    },
    Layout {
        minor: 13,
        state: 72,
        inside: None,
        previous: 8,
        code: 0,
        instruction: 56,
        owner: 70,
        not_python: 3,
        first_line: 68,
        begin: 200,
    },
];
/// In every object: its type. In every code object: file and qualified name.
const TYPE: usize = 8;
const FILE: usize = 112;
const NAME: usize = 128;
/// In every text: its length, and its hash once somebody has asked for it.
const LENGTH: usize = 16;
const HASH: usize = 24;
const UNHASHED: usize = usize::MAX;
/// Longest text of a file or a function, in characters.
const MOST_TEXT: isize = 400;

type GetVersion = unsafe extern "C" fn() -> *const c_char;
type ThisThread = unsafe extern "C" fn() -> *const c_void;
type IsFinalizing = unsafe extern "C" fn() -> c_int;
type Line = unsafe extern "C" fn(*const c_void, c_int) -> c_int;
type Length = unsafe extern "C" fn(*const c_void) -> isize;
type Character = unsafe extern "C" fn(*const c_void, isize) -> u32;

/// The interpreter of this process.
struct Python {
    layout: &'static Layout,
    this_thread: ThisThread,
    is_finalizing: IsFinalizing,
    line: Line,
    length: Length,
    character: Character,
    code_type: usize,
    text_type: usize,
}

static FOUND: OnceLock<Option<Python>> = OnceLock::new();

/// Looks the interpreter up, if there is one yet, so that it is found later without a lock
/// of the loader.
pub fn prepare() {
    if let Some(python) = Python::find() {
        let _ = FOUND.set(Some(python));
    }
}

fn python() -> Option<&'static Python> {
    FOUND
        .get_or_init(|| {
            let found = Python::find();
            if found.is_none() {
                crate::log!(
                    Warn,
                    "MEMCUDA_TRACE_STACKS=python: no CPython 3.11 to 3.13 in this process; functions of C are recorded"
                );
            }
            found
        })
        .as_ref()
}

/// Gives `look` the places of the calling thread, the innermost first, until it
/// says false.
pub fn walk(look: impl FnMut(Place) -> bool) {
    if let Some(python) = python() {
        // SAFETY: this thread is in a function of C, so its frames stand still.
        unsafe { python.walk(look) };
    }
}

/// Mixes into a sum what tells a place from others, and from that of other code which
/// lay there before: an interpreter puts new code where old code was. It was walked to
/// just now.
pub fn sum(sum: u64, place: Place) -> u64 {
    // SAFETY: by the caller's promise the code object lives.
    python().map_or(sum, |python| unsafe { python.sum(sum, place) })
}

/// A place in words: file, line, function. It was walked to just now, so that
/// the frames still hold the code.
pub fn describe(place: Place) -> Option<String> {
    // SAFETY: by the caller's promise the code object lives.
    unsafe { python()?.describe(place) }
}

impl Python {
    fn find() -> Option<Self> {
        let find = |name: &CStr| {
            let found = resolve::symbol(libc::RTLD_DEFAULT, name);
            (!found.is_null()).then_some(found)
        };
        let version = find(c"Py_GetVersion")?;
        // SAFETY: it takes nothing and returns a string that stays.
        let version = unsafe {
            let get = transmute::<*mut c_void, GetVersion>(version);
            CStr::from_ptr(get()).to_str().ok()?
        };
        let layout = layout(version)?;
        let ending = find(c"Py_IsFinalizing").or_else(|| find(c"_Py_IsFinalizing"))?;
        // SAFETY: the functions of these names have these types since 3.11.
        unsafe {
            Some(Self {
                layout,
                this_thread: transmute::<*mut c_void, ThisThread>(find(
                    c"PyGILState_GetThisThreadState",
                )?),
                is_finalizing: transmute::<*mut c_void, IsFinalizing>(ending),
                line: transmute::<*mut c_void, Line>(find(c"PyCode_Addr2Line")?),
                length: transmute::<*mut c_void, Length>(find(c"PyUnicode_GetLength")?),
                character: transmute::<*mut c_void, Character>(find(c"PyUnicode_ReadChar")?),
                code_type: find(c"PyCode_Type")? as usize,
                text_type: find(c"PyUnicode_Type")? as usize,
            })
        }
    }

    /// # Safety
    /// The thread runs no Python while this runs.
    unsafe fn walk(&self, mut look: impl FnMut(Place) -> bool) {
        let layout = self.layout;
        // SAFETY: both only read. A thread that Python does not know has no state;
        // states go when the interpreter ends.
        let state = unsafe {
            if (self.is_finalizing)() != 0 {
                return;
            }
            (self.this_thread)() as usize
        };
        if state == 0 {
            return;
        }
        // SAFETY: the thread's own state, and frames, of the layout of this
        // version; null ends the chain.
        unsafe {
            let mut frame = word(state + layout.state);
            if let Some(inside) = layout.inside.filter(|_| frame != 0) {
                frame = word(frame + inside);
            }
            while frame != 0 {
                let code = word(frame + layout.code);
                let owner = *((frame + layout.owner) as *const u8);
                if owner != layout.not_python && code != 0 && word(code + TYPE) == self.code_type {
                    let at = word(frame + layout.instruction);
                    if !look((code, at)) {
                        return;
                    }
                }
                frame = word(frame + layout.previous);
            }
        }
    }

    /// # Safety
    /// The code object lives.
    unsafe fn sum(&self, sum: u64, (code, at): Place) -> u64 {
        // SAFETY: of the layout of this version.
        unsafe {
            let first_line = *((code + self.layout.first_line) as *const u32);
            let sum = [code, at, first_line as usize].into_iter().fold(sum, mix);
            let texts = [FILE, NAME].map(|text| word(code + text));
            texts
                .into_iter()
                .fold(sum, |sum, text| self.text_sum(sum, text))
        }
    }

    /// # Safety
    /// The object lives.
    unsafe fn text_sum(&self, sum: u64, object: usize) -> u64 {
        // SAFETY: every object has a type, and a text, which is checked, length and
        // hash: the one word that others write, whole.
        unsafe {
            if object == 0 || word(object + TYPE) != self.text_type {
                return sum;
            }
            let sum = mix(sum, word(object + LENGTH));
            match (*((object + HASH) as *const AtomicUsize)).load(Ordering::Relaxed) {
                UNHASHED => {
                    let all = self.characters(object);
                    all.fold(sum, |sum, c| mix(sum, c as usize))
                }
                hash => mix(sum, hash),
            }
        }
    }

    /// # Safety
    /// The code object lives.
    unsafe fn describe(&self, (code, at): Place) -> Option<String> {
        // SAFETY: of the layout of this version; offsets in a code are small.
        unsafe {
            let offset = at.checked_sub(code + self.layout.begin)?;
            let line = (self.line)(code as *const c_void, c_int::try_from(offset).ok()?);
            let file = self.text(word(code + FILE))?;
            let name = self.text(word(code + NAME))?;
            Some(format!("{file}:{}!{name}", line.max(0)))
        }
    }

    /// # Safety
    /// The object lives.
    unsafe fn text(&self, object: usize) -> Option<String> {
        // SAFETY: every object has a type; a text's is checked.
        unsafe {
            if object == 0 || word(object + TYPE) != self.text_type {
                return None;
            }
            Some(
                self.characters(object)
                    .map(|c| char::from_u32(c).unwrap_or('?'))
                    .map(|c| if c == ';' || c == '!' { '?' } else { c })
                    .collect(),
            )
        }
    }

    /// # Safety
    /// The object is a text, which lives as long as it is read.
    unsafe fn characters(&self, text: usize) -> impl Iterator<Item = u32> {
        let text = text as *const c_void;
        // SAFETY: it only reads.
        let length = unsafe { (self.length)(text) }.min(MOST_TEXT);
        // SAFETY: as above, and within the length.
        (0..length).map(move |at| unsafe { (self.character)(text, at) })
    }
}

/// # Safety
/// A word is there.
unsafe fn word(at: usize) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { *(at as *const usize) }
}

/// What is known of an interpreter that calls itself so.
fn layout(version: &str) -> Option<&'static Layout> {
    let number = version.split(' ').next()?.strip_prefix("3.")?;
    let minor: u32 = number.split('.').next()?.parse().ok()?;
    let known = LAYOUTS.iter().find(|layout| layout.minor == minor);
    known.filter(|_| !version.contains("free-threading"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_known_by_their_version() {
        let minor = |version| layout(version).map(|layout| layout.minor);
        assert_eq!(
            minor("3.11.7 (main, Nov 21 2026, 00:00:00) [GCC 12]"),
            Some(11)
        );
        assert_eq!(minor("3.13.0 (main) [GCC]"), Some(13));
        assert_eq!(
            minor("3.13.1 experimental free-threading build (main)"),
            None
        );
        for unknown in ["3.10.1 (main)", "3.14.0 (main)", "2.7.18", "3.1", ""] {
            assert_eq!(minor(unknown), None, "{unknown}");
        }
    }
}
