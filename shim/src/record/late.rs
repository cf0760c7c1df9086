//! Words for which the file had no room: each is told once, so they are kept until there
//! is, and come before the first event that there is room for again. Never waits for room.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use memcuda_core::frames::Word;
use memcuda_core::lock::lock;

/// Most words that are kept; those beyond are missing.
const MOST: usize = 1 << 16;

/// A kind, a number and a text.
type Told = (Word, u32, String);

/// The words that are not in the file yet.
#[derive(Default)]
pub struct Late {
    any: AtomicBool,
    words: Mutex<Vec<Told>>,
}

impl Late {
    /// Is there any?
    pub fn is_due(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// One more, behind the others.
    pub fn keep(&self, word: Word, number: u32, text: &str) {
        let mut words = lock(&self.words);
        if words.len() < MOST {
            words.push((word, number, text.to_owned()));
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Writes them in their order, as far as there is room.
    pub fn write(&self, write: impl Fn(Word, u32, &str) -> bool) {
        let mut words = lock(&self.words);
        let written = words.iter().take_while(|it| write(it.0, it.1, &it.2));
        let written = written.count();
        words.drain(..written);
        self.any.store(!words.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn words_come_once_in_their_order_as_far_as_there_is_room() {
        let late = Late::default();
        assert!(!late.is_due());
        for (number, text) in ["one", "two", "three"].into_iter().enumerate() {
            late.keep(Word::Thread, number as u32, text);
        }
        let (room, written) = (Cell::new(0), RefCell::new(Vec::new()));
        for (frames, all) in [(0, 0), (2, 2), (5, 3), (5, 3)] {
            assert_eq!(late.is_due(), written.borrow().len() < 3);
            room.set(frames);
            late.write(|word, number, text| {
                let fits = room.get() > 0;
                if fits {
                    room.set(room.get() - 1);
                    assert_eq!(
                        (word, number as usize),
                        (Word::Thread, written.borrow().len())
                    );
                    written.borrow_mut().push(text.to_owned());
                }
                fits
            });
            assert_eq!(written.borrow().len(), all);
        }
        assert_eq!(written.into_inner(), ["one", "two", "three"]);
        assert!(!late.is_due());
    }
}
