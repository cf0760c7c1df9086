//! The sum by which a stack is known: over words, in their order. Keeps nothing.

/// A sum with one word more.
pub fn mix(sum: u64, word: usize) -> u64 {
    // An odd constant close to 2^64 divided by the golden ratio.
    (sum.rotate_left(7) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
