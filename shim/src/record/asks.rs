//! Whose library asks, where no call of the runtime's tells: the first one on the
//! stack that is neither CUDA's nor ours. A walk over the stack takes a
//! microsecond, so what it found is kept, with every return address between here
//! and there. Where the stack pointer is the same and these are, too, so is the
//! chain of calls: the first lies in our own frame, and each next one in the frame
//! that the one before has told. Nothing else is read.

use std::cell::Cell;

use crate::backtrace;

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

thread_local! {
    static CHAINS_SEEN: [Chain; CHAINS] = const {
        [const {
            Chain {
                from: Cell::new(0),
                number: Cell::new(0),
                slots: [const { Cell::new(0) }; LONGEST],
            }
        }; CHAINS]
    };
    static OLDEST: Cell<usize> = const { Cell::new(0) };
    static CREDIT: Cell<u32> = const { Cell::new(MOST) };
}

/// The number of the library that asks; 0 where it is not known. `outside` has
/// the number of the library that holds an address; `None` for CUDA's and ours.
#[inline(never)]
pub fn number(outside: impl Fn(usize) -> Option<u16>) -> u16 {
    // A whole word, so that it lies as return addresses do.
    let here = 0_usize;
    let from = std::hint::black_box(&raw const here) as usize;
    CHAINS_SEEN.with(|chains| {
        if let Some(known) = chains.iter().find(|chain| chain.is_here(from)) {
            CREDIT.set((CREDIT.get() + 1).min(MOST));
            return known.number.get();
        }
        let credit = CREDIT.get() + 1;
        let Some(rest) = credit.checked_sub(WALK) else {
            CREDIT.set(credit);
            return 0;
        };
        CREDIT.set(rest);
        let at = OLDEST.get();
        OLDEST.set((at + 1) % CHAINS);
        chains[at].walk(from, outside)
    })
}

impl Chain {
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
