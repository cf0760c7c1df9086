//! Which allocations of a device are marked, and whose the flag of their contexts is. Each mark is
//! found at once, however many there are: programs that register buffers mark each of them, and
//! every free asks. Asks nobody, and changes no flag.

use std::collections::{BTreeMap, HashMap};

use memcuda_core::driver::{Address, Context};

/// What was marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// An allocation of the pool, by its number.
    Block(u64),
    /// Torch's pages in a range, of so many bytes: they come and go one by one.
    Range(Address, u64),
}

/// A mark.
#[derive(Clone, Copy)]
pub struct Mark {
    /// Who has the flag for it; nobody where that has ended.
    pub context: Context,
    /// The memory outlives its context.
    pub outlives: bool,
}

/// Whose the flag of a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// The program's: the context had it before any of ours, or needs none.
    Programs,
    /// It was given for marks, and goes with the last of them.
    Ours,
    /// It is to be given: a stream captured when it was wanted.
    Owed,
}

/// A context of which memory is marked.
#[derive(Clone, Copy)]
struct Marked {
    allocations: usize,
    flag: Flag,
}

/// All marks.
#[derive(Default)]
pub struct Marks {
    blocks: HashMap<u64, Mark>,
    /// By beginning and length.
    ranges: BTreeMap<(Address, u64), Mark>,
    /// No range was ever longer.
    longest: u64,
    /// Nobody among them, who needs no flag.
    contexts: HashMap<Context, Marked>,
}

impl Marks {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.blocks.len() + self.ranges.len()
    }

    /// The mark of this very memory.
    pub fn get(&self, which: Which) -> Option<&Mark> {
        match which {
            Which::Block(id) => self.blocks.get(&id),
            Which::Range(at, bytes) => self.ranges.get(&(at, bytes)),
        }
    }

    /// Marks memory that has no mark. Its context has this flag from now on.
    pub fn add(&mut self, which: Which, mark: Mark, flag: Flag) {
        match which {
            Which::Block(id) => self.blocks.insert(id, mark),
            Which::Range(at, bytes) => {
                self.longest = self.longest.max(bytes);
                self.ranges.insert((at, bytes), mark)
            }
        };
        let none = Marked {
            allocations: 0,
            flag,
        };
        let its = self.contexts.entry(mark.context).or_insert(none);
        its.allocations += 1;
        its.flag = flag;
    }

    /// Takes a mark off. Where it was the last one of a context: that, and whose its flag is.
    pub fn remove(&mut self, which: Which) -> Option<(Context, Flag)> {
        let mark = match which {
            Which::Block(id) => self.blocks.remove(&id),
            Which::Range(at, bytes) => self.ranges.remove(&(at, bytes)),
        };
        let context = mark?.context;
        let its = self.contexts.get_mut(&context)?;
        its.allocations -= 1;
        if its.allocations > 0 {
            return None;
        }
        let its = self.contexts.remove(&context)?;
        Some((context, its.flag))
    }

    /// The marks of what has a byte in common with this.
    pub fn touched_by(&self, which: Which) -> Vec<Which> {
        match which {
            Which::Block(id) => self.blocks.get(&id).map(|_| which).into_iter().collect(),
            Which::Range(at, bytes) => {
                let first = (at.saturating_sub(self.longest), 0);
                let before = self.ranges.range(first..(at + bytes, 0));
                let touching = before.filter(|((from, length), _)| from + length > at);
                touching
                    .map(|((at, bytes), _)| Which::Range(*at, *bytes))
                    .collect()
            }
        }
    }

    /// The marks of a context.
    pub fn of(&self, context: Context) -> Vec<(Which, Mark)> {
        let blocks = self
            .blocks
            .iter()
            .map(|(id, mark)| (Which::Block(*id), *mark));
        let ranges = self
            .ranges
            .iter()
            .map(|((at, bytes), mark)| (Which::Range(*at, *bytes), *mark));
        blocks
            .chain(ranges)
            .filter(|(_, mark)| mark.context == context)
            .collect()
    }

    /// Whose the flag of a context is; `None` where nothing of it is marked.
    pub fn flag(&self, context: Context) -> Option<Flag> {
        self.contexts.get(&context).map(|its| its.flag)
    }

    /// The contexts that are owed the flag.
    pub fn owed(&self) -> Vec<Context> {
        let owed = self
            .contexts
            .iter()
            .filter(|(_, its)| its.flag == Flag::Owed);
        owed.map(|(context, _)| *context).collect()
    }

    /// The flag of a context is so from now on, if anything of it is marked.
    pub fn set_flag(&mut self, context: Context, flag: Flag) {
        if let Some(its) = self.contexts.get_mut(&context) {
            its.flag = flag;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_found_however_long_they_are() {
        let mut marks = Marks::default();
        let context = Context(1);
        let mark = Mark {
            context,
            outlives: false,
        };
        let [long, inner, next] =
            [(100, 900), (500, 10), (1000, 10)].map(|(at, bytes)| Which::Range(at, bytes));
        for which in [long, inner, next, Which::Block(500)] {
            marks.add(which, mark, Flag::Ours);
        }
        for (at, bytes, touched) in [
            (0, 100, &[][..]),
            (0, 101, &[long]),
            (505, 1, &[long, inner]),
            (510, 490, &[long]),
            (999, 2, &[long, next]),
            (1010, 10, &[]),
        ] {
            assert_eq!(
                marks.touched_by(Which::Range(at, bytes)),
                touched,
                "{at} {bytes}"
            );
        }
        assert_eq!(marks.touched_by(Which::Block(500)), [Which::Block(500)]);
        assert_eq!(marks.touched_by(Which::Block(501)), []);
        // The last one of its context says whose the flag is.
        for which in [long, inner, Which::Block(500)] {
            assert_eq!(marks.remove(which), None);
        }
        assert_eq!(marks.remove(next), Some((context, Flag::Ours)));
        assert_eq!(
            (marks.remove(next), marks.count(), marks.flag(context)),
            (None, 0, None)
        );
    }
}
