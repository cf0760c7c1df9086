//! Tells whether the program's blocks go on growing: a cache that is copied into a
//! slightly longer block at each step lets the pool grow by a little and map all the
//! rest anew, again and again. Counts searches and mappings; knows no time and
//! decides nothing else.

/// Searches that count: about so many, the later the more.
const SEARCHES: u64 = 256;
/// What one mapping counts at first: it counts less with each search.
const MAPPING: u64 = SEARCHES;
/// It begins where a search needed eight mappings of growths in the mean...
const BEGINS: u64 = 8 * MAPPING * SEARCHES;
/// ...and ends where fewer than every second one needed any.
const ENDS: u64 = MAPPING * SEARCHES / 2;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Growing {
    mappings: u64,
    goes_on: bool,
}

impl Growing {
    /// A window is looked for.
    pub fn searched(&mut self) {
        self.mappings -= self.mappings / SEARCHES;
        self.goes_on &= self.mappings >= ENDS;
    }

    /// The pool grew, and so many handles were mapped for one window.
    pub fn grew(&mut self, mapped: usize) {
        self.mappings += MAPPING * mapped as u64;
        self.goes_on |= self.mappings >= BEGINS;
    }

    /// There is no memory to grow by.
    pub fn ends(&mut self) {
        *self = Self::default();
    }

    /// Do blocks go on growing?
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(mut growing: Growing, searches: usize, mapped: usize) -> Growing {
        for _ in 0..searches {
            growing.searched();
            growing.grew(mapped);
        }
        growing
    }

    #[test]
    fn it_begins_with_many_mappings_a_search_and_lasts_while_there_are_some() {
        let cold = after(Growing::default(), 10_000, 7);
        assert!(!cold.goes_on(), "seven a search are a large growth's");
        let grows = after(Growing::default(), 200, 20);
        assert!(grows.goes_on());
        let few = after(grows, 10_000, 1);
        assert!(few.goes_on(), "what is made longer needs one");
        let over = after(few, 400, 0);
        assert!(!over.goes_on());
        assert!(!after(over, 10_000, 1).goes_on());
    }
}
