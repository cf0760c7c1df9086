//! Things by number. A number that is given back is another thing's later, the lowest first, so
//! that what others keep by number stays short; it is found without a look at what is there.
//! Knows nothing of the things.

use std::collections::BTreeSet;

/// See the [module](self).
///
/// Invariant: `gaps` are the numbers below `all.len()` that nothing has.
#[derive(Debug)]
pub struct Slots<T> {
    all: Vec<Option<T>>,
    gaps: BTreeSet<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            gaps: BTreeSet::new(),
        }
    }
}

impl<T> Slots<T> {
    /// The number that the next thing gets.
    pub fn next(&self) -> u32 {
        let gap = self.gaps.first().copied();
        gap.unwrap_or(self.all.len() as u32)
    }

    /// Adds a thing and returns its number.
    pub fn add(&mut self, thing: T) -> u32 {
        match self.gaps.pop_first() {
            Some(gap) => {
                self.all[gap as usize] = Some(thing);
                gap
            }
            None => {
                self.all.push(Some(thing));
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Takes the thing with this number out.
    pub fn take(&mut self, number: u32) -> Option<T> {
        let taken = self.all.get_mut(number as usize)?.take();
        if taken.is_some() {
            self.gaps.insert(number);
        }
        taken
    }

    /// Puts back what was taken out; nothing has its number.
    pub fn put_back(&mut self, number: u32, thing: T) {
        let was_gap = self.gaps.remove(&number);
        debug_assert!(was_gap);
        self.all[number as usize] = Some(thing);
    }

    /// The thing with this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    /// All things in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = (0..).zip(&self.all);
        all.filter_map(|(number, thing)| Some((number, thing.as_ref()?)))
    }

    /// All, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().flatten()
    }

    /// Every number is below this one.
    pub fn end(&self) -> u32 {
        self.all.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_that_nothing_has_is_given_next() {
        let mut slots = Slots::default();
        for number in 0..4 {
            assert_eq!((slots.next(), slots.add('a')), (number, number));
        }
        assert_eq!([2, 0, 3].map(|number| slots.take(number)), [Some('a'); 3]);
        assert_eq!((slots.take(2), slots.take(9)), (None, None));
        slots.put_back(2, 'b');
        assert_eq!([slots.add('c'), slots.add('d'), slots.add('e')], [0, 3, 4]);
        let all: Vec<_> = slots.iter().collect();
        assert_eq!(all, [(0, &'c'), (1, &'a'), (2, &'b'), (3, &'d'), (4, &'e')]);
        assert_eq!((slots.get(5), slots.end()), (None, 5));
    }
}
