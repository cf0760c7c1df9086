//! Whose library asks, where no call of the runtime's tells: the first one on the
//! stack that is neither CUDA's nor ours. A walk over the stack takes a
//! microsecond, so what it found is kept, with every return address between here
//! and there. Where the stack pointer is the same and these are, too, so is the
//! chain of calls: the first lies in our own frame, and each next one in the frame
//! that the one before has told. Nothing else is read.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use crate::process::backtrace;
use crate::process::threads::UntilEnd;

/// Chains that a thread keeps, and the longest.
const CHAINS: usize = 16;
const LONGEST: usize = 32;
/// What a walk costs, what each event brings, and what is there at most: so that a
/// thread that comes by ever new ways walks at few events only.
const WALK: u32 = 16;
const MOST: u32 = 16 * WALK;

/// A return address on the stack, of 48 bits, and above it its distance, in words.
type Slot = u64;
const ADDRESS: u64 = (1 << 48) - 1;

/// The slot for a return address so many bytes up the stack, if it has room.
fn slot(distance: usize, address: usize) -> Option<Slot> {
    let words = u16::try_from(distance / size_of::<usize>()).ok()?;
    let aligned = distance.is_multiple_of(size_of::<usize>());
    (aligned && address as u64 <= ADDRESS).then_some(u64::from(words) << 48 | address as u64)
}

/// A chain of calls, and whose library is at its end.
struct Chain {
    from: Cell<usize>,
    number: Cell<u16>,
    slots: [Cell<Slot>; LONGEST],
}

/// What a thread has seen. Made when it is first asked for: thread-local memory itself
/// comes out of the stack of every thread, in programs that record nothing, too.
struct Seen {
    chains: [Chain; CHAINS],
    oldest: Cell<usize>,
    credit: Cell<u32>,
}

thread_local! {
    static SEEN: Cell<*const Seen> = const { Cell::new(ptr::null()) };
}

/// A thread ends, and what it has seen with it.
extern "C" fn ends(seen: *mut c_void) {
    SEEN.set(ptr::null());
    // SAFETY: made below for this thread, which finds it no more.
    drop(unsafe { Box::from_raw(seen.cast::<Seen>()) });
}

/// Runs `look` with what this thread has seen; `None` where that cannot be kept.
fn with_seen<T>(look: impl FnOnce(&Seen) -> T) -> Option<T> {
    static ALL: UntilEnd = UntilEnd::new(ends);
    if SEEN.get().is_null() {
        let fresh = Box::into_raw(Box::new(Seen {
            chains: [const { Chain::new() }; CHAINS],
            oldest: Cell::new(0),
            credit: Cell::new(MOST),
        }));
        if !ALL.set(fresh.cast()) {
            // SAFETY: made above, and nobody else has it.
            drop(unsafe { Box::from_raw(fresh) });
            return None;
        }
        SEEN.set(fresh);
    }
    // SAFETY: this thread's, until it ends.
    unsafe { SEEN.get().as_ref() }.map(look)
}

/// The number of the library that asks; 0 where it is not known. `outside` has
/// the number of the library that holds an address; `None` for CUDA's and ours.
#[inline(never)]
pub fn number(outside: impl Fn(usize) -> Option<u16>) -> u16 {
    // A whole word, so that it lies as return addresses do.
    let here = 0_usize;
    let from = std::hint::black_box(&raw const here) as usize;
    let known = with_seen(|seen| {
        let credit = &seen.credit;
        if let Some(known) = seen.chains.iter().find(|chain| chain.is_here(from)) {
            credit.set((credit.get() + 1).min(MOST));
            return known.number.get();
        }
        let more = credit.get() + 1;
        let Some(rest) = more.checked_sub(WALK) else {
            credit.set(more);
            return 0;
        };
        credit.set(rest);
        let at = seen.oldest.get();
        seen.oldest.set((at + 1) % CHAINS);
        seen.chains[at].walk(from, outside)
    });
    known.unwrap_or(0)
}

impl Chain {
    const fn new() -> Self {
        Self {
            from: Cell::new(0),
            number: Cell::new(0),
            slots: [const { Cell::new(0) }; LONGEST],
        }
    }

    /// Are all return addresses where they were?
    fn is_here(&self, from: usize) -> bool {
        if self.from.get() != from {
            return false;
        }
        let known = self.slots.iter().map(Cell::get);
        let mut known = known.take_while(|slot| *slot != 0);
        // SAFETY: the first lies in the frame of our own function, which is the
        // same as then; each next one in the frame of a function that is, at the
        // same place in its code, as far as all before it are the same, and so
        // within this stack. The comparison ends with the first that is not.
        known.all(|slot| unsafe {
            let up = (slot >> 48) as usize * size_of::<usize>();
            *((from + up) as *const usize) as u64 == slot & ADDRESS
        })
    }

    /// Walks, and keeps what it finds.
    fn walk(&self, from: usize, outside: impl Fn(usize) -> Option<u16>) -> u16 {
        self.from.set(0);
        let (mut count, mut found, mut low, mut whole) = (0, None, from, true);
        backtrace::walk_frames(|frame| {
            if frame.top <= from {
                // Of this walk.
                return true;
            }
            let at = frame.slot(low).filter(|_| count < LONGEST);
            low = frame.top;
            match at.and_then(|at| slot(at - from, frame.at + 1)) {
                Some(slot) => {
                    self.slots[count].set(slot);
                    count += 1;
                }
                None => whole = false,
            }
            found = outside(frame.at);
            found.is_none()
        });
        let number = found.unwrap_or(0);
        if whole && found.is_some() {
            self.slots[count..].iter().for_each(|slot| slot.set(0));
            self.number.set(number);
            self.from.set(from);
        }
        number
    }
}
