//! Pseudo-random numbers: xoshiro256++, seeded by name.
//!
//! The initial state is the XXH3 hash of seed, stream name and thread, expanded by splitmix64. Streams with different
//! names are independent, so a new phase does not change the numbers of other phases.

use xxhash_rust::xxh3::Xxh3;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of splitmix64: a bijection of 64-bit numbers that destroys their order.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the FNV-1a hash of the eight little-endian bytes of `x`, with which YCSB scatters ids.
pub fn fnv1a64(x: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    x.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Generator xoshiro256++ of Blackman and Vigna.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// Creates the stream of `name` and `thread` for `seed`.
    pub fn new(seed: u64, name: &str, thread: u32) -> Random {
        let mut hash = Xxh3::new();
        hash.update(&seed.to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&thread.to_le_bytes());
        let mut state = hash.digest();
        Random(std::array::from_fn(|_| {
            state = state.wrapping_add(GOLDEN);
            mix(state)
        }))
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `n`, which must not be 0, as the high half of a product.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a fraction in `0.0..1.0` with 53 random bits.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}
