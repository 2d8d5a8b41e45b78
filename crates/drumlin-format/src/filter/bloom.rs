//! Blocked Bloom filter (format 1): lines of 64 bytes. All bits of a key lie in one line, so a probe costs one cache
//! miss.
//!
//! ```text
//! line  high 64 bits of the 128-bit product h_j * lines
//! bits  p = mix(h_j): probe i < 7 is bit (p >> 9 i) & 511 of the line; probes 7.. use mix(p + G) likewise
//! ```
//!
//! Bit b of a line is bit b % 8 of its byte b / 8.
//!
//! The number of probes `k` grows with the bits per key *as built*, which may exceed the requested bits since lines are
//! whole. `k` changes at the points where k and k + 1 probes give the same false-positive rate.
//!
//! Invariant: a filter without lines answers "may contain".

use super::module::{GOLDEN, LINE_BITS, LINE_BYTES, Method, Module, lines_for, mix, module_hash, part_of};
use alloc::vec;

/// Maximum number of probes in a filter descriptor.
pub const MAX_PROBES: u8 = 14;
/// Bits per key, as built, at which the number of probes grows by one.
const PROBE_BOUNDS: [f64; 8] = [2.09, 3.59, 5.11, 6.68, 8.32, 10.06, 11.93, 13.94];

/// Sequence of the bit positions of a module hash within its line, one per probe.
#[derive(Clone, Copy)]
struct Probes {
    bits: u64,
    taken: u32,
}

impl Probes {
    #[inline]
    const fn new(hash: u64) -> Probes {
        Probes { bits: mix(hash), taken: 0 }
    }

    #[inline]
    const fn next(&mut self) -> usize {
        if self.taken == 7 {
            self.bits = mix(self.bits.wrapping_add(GOLDEN));
            self.taken = 0;
        }
        let bit = (self.bits >> (9 * self.taken)) & (LINE_BITS - 1);
        self.taken += 1;
        bit as usize
    }
}

/// Returns the number of probes for a filter with `bits_per_key` bits per key, as built.
pub fn probes_for(bits_per_key: f64) -> u8 {
    1 + PROBE_BOUNDS.iter().filter(|&&bound| bits_per_key >= bound).count() as u8
}

/// Builds module number `module`. See [`Module::build`].
pub(super) fn build(hashes: &[u64], module: usize, bits_per_key: f64) -> Module {
    let lines = lines_for(hashes.len(), bits_per_key);
    let probes = probes_for((lines * LINE_BITS) as f64 / hashes.len().max(1) as f64);
    let mut bits = vec![0u8; lines as usize * LINE_BYTES];
    for &hash in hashes {
        let hash = module_hash(hash, module);
        let start = part_of(hash, lines) as usize * LINE_BYTES;
        let line = &mut bits[start..start + LINE_BYTES];
        let mut sequence = Probes::new(hash);
        for _ in 0..probes {
            let bit = sequence.next();
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    let false_positive_rate = false_positive_rate(&bits, probes);
    Module { method: Method::Bloom, bits, probes, false_positive_rate }
}

/// Returns the false-positive rate: the mean over all lines of (share of set bits)^probes.
fn false_positive_rate(bits: &[u8], probes: u8) -> f64 {
    let mut lines = 0u64;
    let mut sum = 0.0;
    for line in bits.chunks_exact(LINE_BYTES) {
        let ones: u32 = line.iter().map(|byte| byte.count_ones()).sum();
        let share = f64::from(ones) / LINE_BITS as f64;
        sum += (0..probes).fold(1.0, |product, _| product * share);
        lines += 1;
    }
    if lines == 0 { 1.0 } else { sum / lines as f64 }
}

/// Returns the offset of the line of a key in a module of `len` bytes.
#[inline]
pub(super) fn first_read(len: usize, module: usize, hash: u64) -> usize {
    part_of(module_hash(hash, module), (len / LINE_BYTES) as u64) as usize * LINE_BYTES
}

/// Returns whether the key with this `hash` may be in the table. See [`super::may_contain`].
#[inline]
pub(super) fn may_contain(bits: &[u8], module: usize, probes: u8, hash: u64) -> bool {
    let start = first_read(bits.len(), module, hash);
    let hash = module_hash(hash, module);
    let Some(line) = bits.get(start..).and_then(<[u8]>::first_chunk::<LINE_BYTES>) else {
        return true;
    };
    let mut sequence = Probes::new(hash);
    for _ in 0..probes.min(MAX_PROBES) {
        let bit = sequence.next();
        if line[bit / 8] & (1 << (bit % 8)) == 0 {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::module::{MAX_MODULES, key_hash};
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SEED: u64 = 0x0123_4567_89ab_cdef;

    fn bits_of(hash: u64, module: usize, count: usize) -> Vec<usize> {
        let mut probes = Probes::new(module_hash(hash, module));
        (0..count).map(|_| probes.next()).collect()
    }

    #[test]
    fn hash_line_and_bits_are_as_specified() {
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
        let a = key_hash(b"a", SEED);
        assert_eq!((a, part_of(a, 1000)), (0xfcf3_69f9_e754_1d1b, 988));
        assert_eq!(bits_of(a, 0, 9), [48, 185, 201, 358, 116, 396, 94, 293, 127]);
        let ada = key_hash(b"ada", SEED);
        assert_eq!((ada, part_of(ada, 1000)), (0xe893_58a4_e8a1_6060, 908));
        assert_eq!(bits_of(ada, 0, 9), [149, 441, 165, 321, 328, 43, 17, 58, 462]);
        let second = module_hash(ada, 1);
        assert_eq!((second, part_of(second, 1000)), (0x3e42_31b2_d16a_abbd, 243));
        assert_eq!(bits_of(ada, 1, 9), [470, 175, 23, 78, 508, 33, 100, 249, 7]);
    }

    #[test]
    fn the_bytes_of_a_small_filter() {
        let module = build(&[key_hash(b"ada", SEED)], 0, 10.0);
        assert_eq!((module.lines(), module.probes), (1, 9));
        let set: Vec<usize> = (0..512).filter(|bit| module.bits[bit / 8] >> (bit % 8) & 1 == 1).collect();
        assert_eq!(set, [17, 43, 58, 149, 165, 321, 328, 441, 462]);
    }

    #[test]
    fn probes_grow_with_the_bits() {
        let at = [0.0, 2.08, 2.09, 3.6, 5.2, 6.7, 8.4, 10.0, 10.1, 12.0, 14.0, 100.0];
        assert_eq!(at.map(probes_for), [1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 9]);
    }

    /// Measured false-positive rates match the designed ones. Added and absent keys are consecutive numbers.
    #[test]
    fn false_positives_are_as_designed() {
        let number = |i: u64| key_hash(&i.to_be_bytes(), SEED);
        let hashes: Vec<u64> = (0..300_000).map(number).collect();
        let absent: Vec<u64> = (300_000..1_300_000).map(number).collect();
        let designed = [
            (2.0, 0.3935),
            (4.0, 0.1481),
            (6.0, 0.0577),
            (8.0, 0.0233),
            (10.0, 0.00967),
            (12.0, 0.00414),
            (16.0, 0.00084),
        ];
        for (bits, rate) in designed {
            let rate: f64 = rate;
            let module = build(&hashes, 0, bits);
            let passed = absent.iter().filter(|&&h| may_contain(&module.bits, 0, module.probes, h)).count();
            let measured = passed as f64 / 1e6;
            let tolerance = 0.02 * rate + 4.0 * (rate * (1.0 - rate) / 1e6).sqrt();
            assert!((measured - rate).abs() <= tolerance, "{bits} bits: {measured} against {rate}");
            assert!((module.false_positive_rate - rate).abs() <= 0.02 * rate + 5e-6, "{bits} bits as built");
        }
    }

    #[test]
    fn modules_are_independent() {
        let number = |i: u64| key_hash(&i.to_be_bytes(), 7);
        let hashes: Vec<u64> = (0..50_000).map(number).collect();
        let modules: Vec<Module> = (0..2).map(|m| build(&hashes, m, 5.0)).collect();
        let passes = |hash| (0..2).all(|m| may_contain(&modules[m].bits, m, modules[m].probes, hash));
        let passed = (50_000..350_000).map(number).filter(|&h| passes(h)).count();
        let together = modules[0].false_positive_rate * modules[1].false_positive_rate;
        let measured = passed as f64 / 300_000.0;
        assert!((together - 0.0087).abs() < 0.0003, "{together}");
        assert!((measured - together).abs() < 0.1 * together, "{measured} against {together}");
    }

    #[test]
    fn odd_filters_say_perhaps() {
        assert!(may_contain(&[], 0, 7, 1));
        assert!(may_contain(&[0; 63], 0, 7, 1));
        assert!(may_contain(&[0; 64], 0, 0, 1));
        assert!(!may_contain(&[0; 64], 3, 255, 1));
        for bits in [f64::NAN, -1.0, 0.0, f64::MIN_POSITIVE] {
            assert_eq!(build(&[1, 2, 3], 0, bits).lines(), 1);
        }
        assert_eq!(build(&[], 0, 16.0).lines(), 1);
    }

    #[test]
    fn lines_are_rounded_up() {
        let hashes = [0; 64];
        let lines = |bits| build(&hashes, 0, bits).lines();
        assert_eq!([lines(8.0), lines(8.001), lines(16.0), lines(0.1)], [1, 2, 2, 1]);
    }

    proptest! {
        #[test]
        fn no_key_is_ever_denied(
            hashes in proptest::collection::vec(any::<u64>(), 0..500),
            bits in 0.5f64..17.0,
            module in 0usize..MAX_MODULES,
        ) {
            let built = build(&hashes, module, bits);
            for &hash in &hashes {
                prop_assert!(may_contain(&built.bits, module, built.probes, hash));
            }
        }
    }
}
