//! Allocations of torch's of two sides, those that find its switch on and those that find it
//! off: any number of one side allocate at once, and wait for those of the other. Nobody
//! waits for long, since who allocates may wait for a lock of the program's (Python's) that
//! the next one holds: who must find the switch off has it then, and who would have it on
//! does without.

use std::cell::Cell;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than allocations take that wait for nobody, pages for them included.
const PATIENCE: Duration = Duration::from_millis(50);

thread_local! {
    /// Allocations of this thread: what torch calls while it allocates may allocate, too.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// How an allocation finds the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    On,
    Off,
}

/// How many allocate on each side, and how many wait for the switch to be off.
#[derive(Debug, Default)]
pub struct Sides {
    on: u32,
    off: u32,
    waiting: u32,
}

impl Sides {
    /// Nobody.
    pub const NONE: Self = Self {
        on: 0,
        off: 0,
        waiting: 0,
    };

    /// Takes part on the wanted side once the other one is left, or on the one that is
    /// possible where that takes too long. `sides` is in what the guard holds.
    pub fn enter<'a, T>(
        mut guard: MutexGuard<'a, T>,
        sides: impl Fn(&mut T) -> &mut Sides,
        left: &Condvar,
        wanted: Side,
    ) -> (MutexGuard<'a, T>, Side) {
        let began = Instant::now();
        // What a thread's own allocation calls cannot wait for that.
        let patience = if OWN.get() == 0 {
            PATIENCE
        } else {
            Duration::ZERO
        };
        let off = u32::from(wanted == Side::Off);
        sides(&mut guard).waiting += off;
        while sides(&mut guard).is_held_up(wanted) {
            let Some(rest) = patience.checked_sub(began.elapsed()) else {
                break;
            };
            let waited = left.wait_timeout(guard, rest);
            let (held, late) = waited.unwrap_or_else(PoisonError::into_inner);
            guard = held;
            if late.timed_out() {
                break;
            }
        }
        let it = sides(&mut guard);
        it.waiting -= off;
        let side = if it.off > 0 { Side::Off } else { wanted };
        *it.count(side) += 1;
        OWN.set(OWN.get() + 1);
        (guard, side)
    }

    /// One has allocated.
    pub fn leave(&mut self, side: Side) {
        *self.count(side) -= 1;
        OWN.set(OWN.get() - 1);
    }

    /// Does somebody allocate on this side?
    pub fn is_any(&self, side: Side) -> bool {
        match side {
            Side::On => self.on > 0,
            Side::Off => self.off > 0,
        }
    }

    /// Those who want the switch off go first.
    fn is_held_up(&self, wanted: Side) -> bool {
        match wanted {
            Side::On => self.off > 0 || self.waiting > 0,
            Side::Off => self.on > 0,
        }
    }

    fn count(&mut self, side: Side) -> &mut u32 {
        match side {
            Side::On => &mut self.on,
            Side::Off => &mut self.off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    /// Sides, and whether the switch is on.
    struct Torch {
        sides: Mutex<(Sides, bool)>,
        left: Condvar,
    }

    impl Torch {
        fn new() -> Self {
            Self {
                sides: Mutex::new((Sides::NONE, false)),
                left: Condvar::new(),
            }
        }

        fn allocate(&self, wanted: Side, then: impl FnOnce()) -> Side {
            let guard = self.sides.lock().unwrap();
            let (mut guard, side) = Sides::enter(guard, |it| &mut it.0, &self.left, wanted);
            guard.1 = side == Side::On;
            drop(guard);
            then();
            self.sides.lock().unwrap().0.leave(side);
            self.left.notify_all();
            side
        }

        fn is_on(&self) -> bool {
            self.sides.lock().unwrap().1
        }
    }

    /// As one does that waits for Python's lock, which the other one holds.
    #[test]
    fn who_needs_the_switch_off_has_it_off_though_the_other_side_stays() {
        let (torch, inside, over) = (Torch::new(), Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let on = scope.spawn(|| {
                torch.allocate(Side::On, || {
                    inside.wait();
                    over.wait();
                })
            });
            inside.wait();
            let mut nested = None;
            let off = torch.allocate(Side::Off, || {
                assert!(!torch.is_on());
                // Those that come now do without; one within another waits for nothing.
                nested = Some(torch.allocate(Side::On, || assert!(!torch.is_on())));
            });
            assert_eq!((off, nested), (Side::Off, Some(Side::Off)));
            over.wait();
            assert_eq!(on.join().unwrap(), Side::On);
        });
        assert_eq!(
            torch.allocate(Side::On, || assert!(torch.is_on())),
            Side::On
        );
    }

    #[test]
    fn one_side_allocates_at_once_and_apart_from_the_other() {
        let torch = Torch::new();
        let all = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| torch.allocate(Side::On, || _ = all.wait()));
            }
        });
        thread::scope(|scope| {
            for wanted in [Side::On, Side::Off, Side::On, Side::Off] {
                let torch = &torch;
                scope.spawn(move || {
                    for _ in 0..500 {
                        torch.allocate(wanted, || {
                            if wanted == Side::Off {
                                assert!(!torch.is_on());
                            }
                        });
                    }
                });
            }
        });
    }
}
