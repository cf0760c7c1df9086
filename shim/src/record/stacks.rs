//! What was called when memory was asked for (`MEMCUDA_TRACE_STACKS`): functions
//! of C, whose stack ends where code without unwinding information begins, or
//! those of Python (`python`) where the thread is in any. For each stack that is
//! new its text is told, once but for threads that come by it together; it is known by a
//! sum over its addresses, and, as code of Python goes and other code comes to lie there,
//! over what its text is made of.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use memcuda_core::frames::MOST_TEXT;

use super::python;
use super::sum::mix;
use crate::libraries::modules::{self, About, Module};
use crate::libraries::{caller, dynamic};
use crate::process::backtrace;

/// Frames of a stack.
const DEPTH: usize = 32;
/// Different stacks; what is beyond them has none.
const STACKS: usize = 1 << 14;
/// Places that are looked at for one.
const PROBES: usize = 32;

/// The stacks that were seen.
pub struct Stacks {
    /// Are those of Python wanted?
    python: bool,
    /// By a sum; 0 where there is none yet.
    sums: Box<[AtomicU64]>,
    /// Is its text in the recording? Until then whoever comes by it tells it, as the text is
    /// to stand before every event that names it.
    told: Box<[AtomicBool]>,
    /// Whose library asked, by the module's number.
    callers: Box<[AtomicU8]>,
}

/// A stack.
pub struct Found {
    /// From 1; 0 where there are too many.
    pub number: u32,
    /// The library nearest on it that is neither CUDA's nor ours.
    pub caller: Option<Module>,
}

impl Stacks {
    /// No stack yet; those of Python are looked for first, if they are wanted.
    pub fn new(python: bool) -> Self {
        if python {
            python::prepare();
        }
        let other = || AtomicU8::new(Module::OTHER.0);
        Self {
            python,
            sums: (0..STACKS).map(|_| AtomicU64::new(0)).collect(),
            told: (0..STACKS).map(|_| AtomicBool::new(false)).collect(),
            callers: (0..STACKS).map(|_| other()).collect(),
        }
    }

    /// The stack of the calling thread; `tell` gets its text where that is not told yet.
    pub fn here(&self, tell: impl FnOnce(u32, &str)) -> Found {
        if self.python {
            let mut places = [(0, 0); DEPTH];
            let places = filled(&mut places, |look| python::walk(look));
            if !places.is_empty() {
                let sum = places.iter().fold(2, |sum, place| python::sum(sum, *place));
                return self.known(sum, |number| {
                    tell(number, &in_python(places));
                    asks()
                });
            }
        }
        let mut room = [0; DEPTH];
        let calls = in_calls(&mut room);
        let sum = calls.iter().fold(1, |sum, at| mix(sum, *at));
        self.known(sum, |number| {
            tell(number, &in_c(calls));
            asks()
        })
    }

    /// The stack with this sum; `describe` is called where it is not told yet, and says
    /// which library asks.
    fn known(&self, sum: u64, describe: impl FnOnce(u32) -> Option<Module>) -> Found {
        let sum = sum | 1;
        for probe in 0..PROBES {
            let place = (sum as usize >> 1).wrapping_add(probe) % STACKS;
            let number = place as u32 + 1;
            let slot = &self.sums[place];
            match slot.compare_exchange(0, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Err(known) if known != sum => {}
                _ => {
                    if !self.told[place].load(Ordering::Acquire) {
                        let caller = describe(number).unwrap_or(Module::OTHER);
                        self.callers[place].store(caller.0, Ordering::Relaxed);
                        self.told[place].store(true, Ordering::Release);
                    }
                    let caller = Module(self.callers[place].load(Ordering::Relaxed));
                    let caller = Some(caller);
                    return Found { number, caller };
                }
            }
        }
        Found {
            number: 0,
            caller: None,
        }
    }
}

/// The calls of C that the thread is in.
fn in_calls(room: &mut [usize; DEPTH]) -> &[usize] {
    filled(room, |look| backtrace::walk(look))
}

/// What a walk comes by, as far as there is room.
fn filled<T>(room: &mut [T; DEPTH], walk: impl FnOnce(&mut dyn FnMut(T) -> bool)) -> &[T] {
    let mut count = 0;
    walk(&mut |one| {
        room[count] = one;
        count += 1;
        count < DEPTH
    });
    &room[..count]
}

/// The text of a stack of Python.
fn in_python(places: &[python::Place]) -> String {
    joined(places.iter().filter_map(|place| python::describe(*place)))
}

/// The text of a stack of C, without our own frames.
fn in_c(addresses: &[usize]) -> String {
    joined(
        addresses
            .iter()
            .filter(|at| !is_own(**at))
            .map(|at| call(*at)),
    )
}

/// As many whole functions as a word holds.
fn joined(functions: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for one in functions {
        if text.len() + one.len() >= MOST_TEXT {
            break;
        }
        if !text.is_empty() {
            text.push(';');
        }
        text += &one;
    }
    text
}

/// A call of C: file and function, or place in the file.
fn call(at: usize) -> String {
    let about = modules::at(at);
    let file = match about.as_deref().map(About::file) {
        None => "?".into(),
        Some(b"") => "the program".into(),
        Some(file) => String::from_utf8_lossy(file),
    };
    let name = dynamic::symbol_at(at).map(|(name, offset)| format!("{file}!{name}+{offset:#x}"));
    // Templates have names that no word holds.
    name.filter(|name| name.len() < MOST_TEXT)
        .unwrap_or_else(|| {
            let offset = about.as_deref().map_or(at, |about| about.offset(at));
            format!("{file}+{offset:#x}")
        })
}

/// The library nearest on the stack that is neither CUDA's nor ours.
fn asks() -> Option<Module> {
    let mut found = None;
    backtrace::walk(|at| {
        let about = modules::at(at).filter(|about| !about.holds(backtrace::own()));
        found = about
            .filter(|about| !caller::is_of_cuda(about.file()))
            .map(|about| about.module());
        found.is_none()
    });
    found
}

fn is_own(at: usize) -> bool {
    modules::at(at).is_some_and(|about| about.holds(backtrace::own()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn a_stack_that_another_thread_is_telling_is_told_again() {
        let (stacks, told) = (Stacks::new(false), AtomicUsize::new(0));
        let tell = |_| {
            told.fetch_add(1, Ordering::Relaxed);
            None
        };
        let first = stacks.known(8, |number| {
            // Its event may stand before the text of this one.
            let other = thread::scope(|scope| scope.spawn(|| stacks.known(8, tell)).join());
            assert_eq!(other.unwrap().number, number);
            assert_eq!(told.load(Ordering::Relaxed), 1);
            tell(number)
        });
        assert_eq!(stacks.known(8, tell).number, first.number);
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_text_ends_with_a_whole_function() {
        let at = libc::printf as *const () as usize;
        let one = in_c(&[at]);
        assert!(one.starts_with("libc.so.6!"), "{one}");
        let text = in_c(&[at; 400]);
        let room = MOST_TEXT - text.len();
        assert!(room < one.len() + 1, "{room}");
        assert!(text.split(';').all(|function| function == one));
    }
}
