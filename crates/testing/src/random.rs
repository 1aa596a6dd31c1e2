//! Random numbers that a seed determines.

/// A generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns a generator; the same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to `below - 1`.
    ///
    /// # Panics
    /// If `below` is 0.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    /// Returns `true` once in `times` calls on average.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
