//! Indexes in groups that lie side by side, and of which groups it is known that nothing is in
//! them: who looks for all that is something passes over those, and is otherwise as quick as if it
//! looked at everything. That something comes costs hardly anything, and that it goes nothing:
//! a group is found empty by who looks. Knows nothing of what the indexes stand for.

use std::cell::Cell;
use std::ops::Range;

/// Indexes of a group, and groups that one word tells of.
const EACH: usize = u64::BITS as usize;

/// See the [module](self).
///
/// Invariant: a group of which the bit is not set is empty.
#[derive(Debug, Default)]
pub struct Groups {
    may_have: Vec<Cell<u64>>,
    end: usize,
}

impl Groups {
    /// Indexes are below this one.
    pub fn reach(&mut self, end: usize) {
        self.end = self.end.max(end);
        let words = self.end.div_ceil(EACH * EACH);
        self.may_have.resize(words, Cell::new(0));
    }

    /// Something is here.
    pub fn comes(&mut self, index: usize) {
        let word = self.may_have[index / (EACH * EACH)].get_mut();
        *word |= 1 << (index / EACH % EACH);
    }

    /// The next group, from `from` on (0, or where one ended), that `has` anything.
    pub fn next(&self, from: usize, has: impl Fn(Range<usize>) -> bool) -> Option<Range<usize>> {
        // The last one may be a short one.
        let mut group = from.div_ceil(EACH);
        loop {
            let word = self.may_have.get(group / EACH)?;
            let there = word.get() >> (group % EACH);
            if there == 0 {
                group = (group / EACH + 1) * EACH;
                continue;
            }
            group += there.trailing_zeros() as usize;
            let indexes = group * EACH..self.end.min((group + 1) * EACH);
            if has(indexes.clone()) {
                return Some(indexes);
            }
            word.set(word.get() & !(1 << (group % EACH)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn each_group_that_has_anything_is_told_in_order_and_no_other() {
        let mut random = Random::new(1);
        for count in [1, 63, 64, 65, 300, 4_097, 20_000] {
            let (mut groups, mut there) = (Groups::default(), BTreeSet::new());
            assert_eq!(groups.next(0, |_| true), None);
            groups.reach(count);
            for step in 0..400 {
                let index = random.index(count);
                if random.below(3) > 0 && step < 300 {
                    there.insert(index);
                    groups.comes(index);
                } else {
                    there.remove(&index);
                }
                let expected: BTreeSet<_> = there.iter().map(|index| index / EACH).collect();
                let next = |from| groups.next(from, |group| there.range(group).next().is_some());
                let all = std::iter::successors(next(0), |group| next(group.end));
                let all: Vec<_> = all.collect();
                let ends = |group: &Range<usize>| group.end <= count && group.len() <= EACH;
                assert!(all.iter().all(ends));
                let all = all.iter().map(|group| group.start / EACH);
                assert!(all.eq(expected));
            }
        }
    }

    #[test]
    fn what_was_found_empty_is_not_looked_at_again() {
        let mut groups = Groups::default();
        groups.reach(100_000);
        (0..100_000).for_each(|index| groups.comes(index));
        let looks = Cell::new(0);
        let empty = |_: Range<usize>| {
            looks.set(looks.get() + 1);
            false
        };
        assert_eq!(groups.next(0, empty), None);
        assert_eq!(looks.replace(0), 1563);
        groups.comes(70_000);
        assert_eq!(groups.next(0, empty), None);
        assert_eq!(looks.replace(0), 1);
        assert_eq!(groups.next(0, empty), None);
        assert_eq!(looks.get(), 0);
    }
}
