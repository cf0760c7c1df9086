//! What was called when memory was asked for (`MEMCUDA_TRACE_STACKS=c`): the
//! stack's addresses, and for each stack that is new its text, once. A stack
//! ends where code without unwinding information begins.

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::words;
use crate::backtrace;
use crate::modules::{self, Module};
use crate::resolve;

/// Frames of a stack.
const DEPTH: usize = 32;
/// Different stacks; what is beyond them has none.
const STACKS: usize = 1 << 14;
/// Places that are looked at for one.
const PROBES: usize = 32;

/// The stacks that were seen.
pub struct Stacks {
    /// By a sum over their addresses; 0 where there is none yet.
    sums: Box<[AtomicU64]>,
    /// Whose library asked, by the module's number.
    callers: Box<[AtomicU8]>,
}

impl Default for Stacks {
    fn default() -> Self {
        Self {
            sums: (0..STACKS).map(|_| AtomicU64::new(0)).collect(),
            callers: (0..STACKS)
                .map(|_| AtomicU8::new(Module::OTHER.0))
                .collect(),
        }
    }
}

/// A stack.
pub struct Found {
    /// From 1; 0 where there are too many.
    pub number: u32,
    /// The library nearest on it that is neither CUDA's nor ours.
    pub caller: Option<Module>,
}

impl Stacks {
    /// The stack of the calling thread; `tell` gets its text where it is new.
    pub fn here(&self, tell: impl FnOnce(u32, &str)) -> Found {
        let (mut addresses, mut count) = ([0; DEPTH], 0);
        backtrace::walk(|at| {
            addresses[count] = at;
            count += 1;
            count < DEPTH
        });
        let addresses = &addresses[..count];
        let mix = |sum: u64, at: &usize| {
            (sum.rotate_left(7) ^ *at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let sum = addresses.iter().fold(1, mix) | 1;
        for probe in 0..PROBES {
            let place = (sum as usize >> 1).wrapping_add(probe) % STACKS;
            let number = place as u32 + 1;
            let slot = &self.sums[place];
            match slot.compare_exchange(0, sum, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let caller = describe(addresses, |text| tell(number, text));
                    let caller = caller.unwrap_or(Module::OTHER);
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

/// Tells the text of a stack, without our own frames; the library that asks.
fn describe(addresses: &[usize], tell: impl FnOnce(&str)) -> Option<Module> {
    let mut text = String::new();
    let mut caller = None;
    for &at in addresses {
        let module = modules::number(at);
        let about = module.about();
        if about.is_some_and(|about| about.holds(backtrace::own())) {
            continue;
        }
        let file = about.map_or(&b"?"[..], |about| about.file());
        if caller.is_none() && about.is_some() && !words::is_of_cuda(file) {
            caller = Some(module);
        }
        if !text.is_empty() {
            text.push(';');
        }
        let file = String::from_utf8_lossy(file);
        let file = if file.is_empty() {
            "the program".into()
        } else {
            file
        };
        let _ = match resolve::symbol_at(at) {
            Some((name, offset)) => write!(text, "{file}!{name}+{offset:#x}"),
            None => write!(
                text,
                "{file}+{:#x}",
                about.map_or(at, |about| about.offset(at))
            ),
        };
    }
    tell(&text);
    caller
}
