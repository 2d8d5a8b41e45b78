//! Seeded randomness: one stream per seed and purpose.
//!
//! A run has one 64-bit seed. Each purpose draws from its own stream, made from the seed and the purpose's name, so a
//! new draw in one place changes no other stream. The generator is xoshiro256++, seeded by splitmix64.

/// A reproducible stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Returns the stream of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut mix = seed ^ fold(0x9E37_79B9_7F4A_7C15, purpose.as_bytes());
        Self { state: std::array::from_fn(|_| splitmix(&mut mix)) }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`; 0 when `bound` is 0. The bias is below 2^-32 for every bound used in tests.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index into a sequence of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns `true` in `numerator` of `denominator` draws.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Fills `buffer` with random bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Mixes `bytes` and their length into `hash`. Not for data on disk: it only distinguishes two runs.
pub(crate) fn fold(hash: u64, bytes: &[u8]) -> u64 {
    let mut hash = fold_word(hash, bytes.len() as u64);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        hash = fold_word(hash, u64::from_le_bytes(word.try_into().expect("chunks of 8")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    fold_word(hash, u64::from_le_bytes(last))
}

/// Mixes one word into `hash`.
pub(crate) fn fold_word(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0xA076_1D64_78BD_642F_u128;
    ((product as u64) ^ ((product >> 64) as u64)).wrapping_add(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_purposes_differ() {
        let draw = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.next_u64(), random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(7, "faults"), draw(7, "faults"));
        assert_ne!(draw(7, "faults"), draw(7, "image"));
        assert_ne!(draw(7, "faults"), draw(8, "faults"));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut random = Random::new(3, "range");
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn the_fold_sees_length_order_and_every_byte() {
        let base = fold(1, b"abcdefghij");
        for changed in [&b"abcdefghi"[..], b"abcdefghik", b"bacdefghij", b"abcdefghij\0"] {
            assert_ne!(base, fold(1, changed));
        }
    }
}
