//! What was called when memory was asked for (`MEMCUDA_TRACE_STACKS`): functions
//! of C, whose stack ends where code without unwinding information begins, or
//! those of Python (`python`) where the thread is in any. For each stack that is
//! new its text is told, once; it is known by a sum over its addresses, and, as code of
//! Python goes and other code comes to lie there, over what its text is made of.

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use memcuda_core::trace::frames::MOST_TEXT;

use super::sum::mix;
use super::{python, words};
use crate::modules::{self, About, Module};
use crate::{backtrace, dynamic};

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
            callers: (0..STACKS).map(|_| other()).collect(),
        }
    }

    /// The stack of the calling thread; `tell` gets its text where it is new.
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

    /// The stack with this sum; `describe` is called where it is new, and says
    /// which library asks.
    fn known(&self, sum: u64, describe: impl FnOnce(u32) -> Option<Module>) -> Found {
        let sum = sum | 1;
        for probe in 0..PROBES {
            let place = (sum as usize >> 1).wrapping_add(probe) % STACKS;
            let number = place as u32 + 1;
            let slot = &self.sums[place];
            match slot.compare_exchange(0, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let caller = describe(number).unwrap_or(Module::OTHER);
                    self.callers[place].store(caller.0, Ordering::Relaxed);
                    let caller = Some(caller);
                    return Found { number, caller };
                }
                Err(known) if known == sum => {
                    let caller = Module(self.callers[place].load(Ordering::Relaxed));
                    let caller = Some(caller);
                    return Found { number, caller };
                }
                Err(_) => {}
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

/// The text of a stack of Python: as many whole functions as a word holds.
fn in_python(places: &[python::Place]) -> String {
    let mut text = String::new();
    for one in places.iter().filter_map(|place| python::describe(*place)) {
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

/// The text of a stack of C, without our own frames.
fn in_c(addresses: &[usize]) -> String {
    let mut text = String::new();
    for &at in addresses.iter().filter(|at| !is_own(**at)) {
        let about = modules::at(at);
        if !text.is_empty() {
            text.push(';');
        }
        let file = match about.as_deref().map(About::file) {
            None => "?".into(),
            Some(b"") => "the program".into(),
            Some(file) => String::from_utf8_lossy(file),
        };
        let _ = match dynamic::symbol_at(at) {
            Some((name, offset)) => write!(text, "{file}!{name}+{offset:#x}"),
            None => write!(
                text,
                "{file}+{:#x}",
                about.as_deref().map_or(at, |about| about.offset(at))
            ),
        };
    }
    text
}

/// The library nearest on the stack that is neither CUDA's nor ours.
fn asks() -> Option<Module> {
    let mut found = None;
    backtrace::walk(|at| {
        let about = modules::at(at).filter(|about| !about.holds(backtrace::own()));
        found = about
            .filter(|about| !words::is_of_cuda(about.file()))
            .map(|about| about.module());
        found.is_none()
    });
    found
}

fn is_own(at: usize) -> bool {
    modules::at(at).is_some_and(|about| about.holds(backtrace::own()))
}
