//! Numbers that look random and are the same for the same seed, so that a failure can be
//! run again (Marsaglia, *Xorshift RNGs*, 2003). For tests and benches, never for secrets.
#![allow(dead_code, reason = "each of those who share it uses a part")]

/// A generator in its state, which is never 0.
pub struct Random(pub u64);

impl Random {
    /// A generator for any seed; neighbouring seeds have nothing in common.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A place in a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}
