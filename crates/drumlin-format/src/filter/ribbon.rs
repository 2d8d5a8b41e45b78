//! Ribbon filter (format 2): a false-positive rate of 2^-c with about 1.04 c bits per key.
//!
//! P. Dillinger, S. Walzer: *Ribbon filter: practically smaller than Bloom and Xor* (2021): the standard form with
//! width 128, in interleaved columns, with a fractional number of columns on average.
//!
//! A filter is a vector of *slots*, each with a bit in each *column*. A key maps to 128 consecutive slots (its
//! *window*), a random subset of them, and a random result with one bit per column. Building solves for slots such that
//! in each column the XOR of a key's subset is its result. An absent key matches by chance, with probability
//! 2^-columns.
//!
//! ```text
//! module       header | descriptor of each segment | words       whole lines; unused words at the end are 0
//! header       segments u32 | 12 zeros
//! descriptor   first word u32 | blocks u32 | short blocks u32 | columns u8 | seed u8 | 2 zeros
//! word         128 bits: the bits of one column for the 128 slots of a block; slot i is bit i
//! block        one word for each of its columns, column 0 first
//!
//! segment      its number: high 64 bits of the 128-bit product h_j * segments; h_j is the hash for the module
//! g            low 64 bits of that product, or mix(h_j ^ seed * K) with a seed other than 0; K = 0xC2B2AE3D27D4EB4F
//! start        high 64 bits of the 128-bit product g * (128 blocks - 127): the first slot in the segment
//! subset       p = mix(g), q = mix(g + G): bit i of (2^64 q + p) | 1 tells whether slot start + i is in it
//! result       high 32 bits of (p ^ (q rotated left by 29)) * G: bit c is that of column c
//! ```
//!
//! "First word" counts words from the end of the descriptors. All numbers are little-endian.
//!
//! A *segment* is a filter of its own, over an equal part of all hashes. So the equations take little memory, whatever
//! the number of keys, and stay in the processor's cache. (The sorted hashes take 8 bytes per key besides.) The first
//! blocks of a segment are short: they have `columns` columns, and all others one more. So nearly all bits are used. A
//! key has as many columns as the block of its first slot. Short blocks come first, so that the next block, into which
//! the key's slots may reach, never has fewer.
//!
//! Building is Gaussian elimination on the fly: it adds keys in the order of their starts. If the equations contradict
//! each other, it tries other seeds, then more blocks, and at last gives up: the filter is then a Bloom filter.
//!
//! Invariant: a malformed module answers "may contain".

use super::module::{GOLDEN, LINE_BYTES, Method, Module, lines_for, mix, module_hash, part_of};
use alloc::vec;
use alloc::vec::Vec;

/// Slots of a block, and width of a key's window.
const WIDTH: usize = 128;
const WORD_BYTES: usize = 16;
/// Length of the header, and of each segment's descriptor.
const HEADER_BYTES: usize = 16;
/// Fewest keys of a Ribbon filter. With fewer, headers and whole blocks take more than it saves.
const LEAST_KEYS: usize = 2048;
/// Most keys of a segment, on average.
const SEGMENT_KEYS: usize = 32 << 10;
/// Most blocks of a segment in a module that is read.
const MOST_BLOCKS: usize = 1 << 25;
/// Most columns of a block. A result has 32 bits, so there must not be more.
const MOST_COLUMNS: usize = 31;
const SEED_STEP: u64 = 0xc2b2_ae3d_27d4_eb4f;
/// Seeds to try with one number of blocks, and numbers of blocks to try.
const SEEDS: usize = 4;
const ENLARGEMENTS: usize = 16;

/// Returns the number of blocks to begin with: slots for 2 % more than the keys, and 0.35 % more for each doubling
/// beyond 4096 keys, rounded up to whole blocks. At least 17 of 20 builds then succeed with the first seed.
fn blocks_for(keys: usize) -> usize {
    let doublings = f64::from(keys.max(1).ilog2().saturating_sub(12));
    let slots = keys as f64 * (1.02 + 0.0035 * doublings);
    (slots / WIDTH as f64) as usize + 1
}

fn read_u32(bytes: &[u8; HEADER_BYTES], at: usize) -> usize {
    u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i])) as usize
}

/// Description of a segment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RibbonSegment {
    first: usize,
    blocks: usize,
    /// Number of blocks, from the first, that have `columns` columns. The others have one more.
    short: usize,
    columns: usize,
    seed: u8,
}

impl RibbonSegment {
    /// Returns a segment of `blocks` blocks that uses `words` words from `first` on.
    fn of_words(first: usize, blocks: usize, words: usize, seed: u8) -> RibbonSegment {
        let columns = (words / blocks).min(MOST_COLUMNS - 1);
        let long = (words - columns * blocks).min(blocks);
        RibbonSegment { first, blocks, short: blocks - long, columns, seed }
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&(self.first as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.blocks as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.short as u32).to_le_bytes());
        bytes[12] = self.columns as u8;
        bytes[13] = self.seed;
        bytes
    }

    /// Decodes a segment of a module with `words` words.
    #[inline]
    fn decode(bytes: &[u8; HEADER_BYTES], words: usize) -> Option<RibbonSegment> {
        let segment = RibbonSegment {
            first: read_u32(bytes, 0),
            blocks: read_u32(bytes, 4),
            short: read_u32(bytes, 8),
            columns: usize::from(bytes[12]),
            seed: bytes[13],
        };
        let is_sound = (1..=MOST_BLOCKS).contains(&segment.blocks)
            && segment.short <= segment.blocks
            && segment.columns < MOST_COLUMNS
            && segment.first <= words
            && segment.words() <= words - segment.first;
        is_sound.then_some(segment)
    }

    fn words(&self) -> usize {
        self.columns * self.blocks + (self.blocks - self.short)
    }

    /// Number of slots at which a window may begin.
    fn starts(&self) -> u64 {
        ((self.blocks - 1) * WIDTH + 1) as u64
    }

    /// Returns the first word of a block, and its number of columns.
    #[inline]
    fn block(&self, number: usize) -> (usize, usize) {
        let long = number.saturating_sub(self.short);
        (self.first + number * self.columns + long, self.columns + usize::from(number >= self.short))
    }

    /// Returns the share of absent keys of the segment that agree with it.
    fn false_positive_rate(&self) -> f64 {
        let rate = |columns: usize| 1.0 / (1u64 << columns) as f64;
        // The last block has one start only.
        let last = self.blocks - 1;
        let short = (self.short.min(last) * WIDTH + usize::from(self.short > last)) as f64;
        let starts = self.starts() as f64;
        (short * rate(self.columns) + (starts - short) * rate(self.columns + 1)) / starts
    }
}

/// What a key asks of the slots.
struct Equation {
    start: usize,
    subset: u128,
    result: u32,
}

impl Equation {
    #[inline]
    fn new(hash: u64, starts: u64) -> Equation {
        let (p, q) = (mix(hash), mix(hash.wrapping_add(GOLDEN)));
        Equation {
            start: part_of(hash, starts) as usize,
            subset: (u128::from(q) << 64 | u128::from(p)) | 1,
            result: ((p ^ q.rotate_left(29)).wrapping_mul(GOLDEN) >> 32) as u32,
        }
    }
}

/// Returns the hash inside its segment, of which there are `segments`.
#[inline]
fn seeded(hash: u64, segments: u64, seed: u8) -> u64 {
    match seed {
        0 => hash.wrapping_mul(segments),
        _ => mix(hash ^ SEED_STEP.wrapping_mul(u64::from(seed))),
    }
}

/// Returns 1 if an odd number of bits is set, else 0.
#[inline]
fn parity(bits: u128) -> u32 {
    let mut folded = (bits as u64) ^ (bits >> 64) as u64;
    folded ^= folded >> 32;
    folded ^= folded >> 16;
    folded ^= folded >> 8;
    folded ^= folded >> 4;
    (0x6996 >> (folded & 15)) & 1
}

/// Equations in row echelon form. The lowest slot of the equation kept at slot i is i; a subset of 0 means none is
/// kept.
#[derive(Default)]
struct Equations {
    subsets: Vec<u128>,
    results: Vec<u32>,
}

impl Equations {
    /// Eliminates the equations of keys with these `hashes` of a segment. Returns whether they agree.
    fn solve(&mut self, hashes: &[u64], blocks: usize) -> bool {
        let slots = blocks * WIDTH;
        self.subsets.clear();
        self.subsets.resize(slots, 0);
        self.results.clear();
        self.results.resize(slots, 0);
        let starts = (slots - WIDTH + 1) as u64;
        hashes.iter().all(|&hash| self.add(Equation::new(hash, starts)))
    }

    /// Adds an equation. Returns `false` if it contradicts the others.
    fn add(&mut self, equation: Equation) -> bool {
        let Equation { start: mut slot, mut subset, mut result } = equation;
        loop {
            // The lowest bit of the subset is set, and the window does not reach behind the last slot.
            if self.subsets[slot] == 0 {
                (self.subsets[slot], self.results[slot]) = (subset, result);
                return true;
            }
            subset ^= self.subsets[slot];
            result ^= self.results[slot];
            if subset == 0 {
                // The equation is a sum of earlier ones: redundant if the results agree, as for an equal hash, else a
                // contradiction.
                return result == 0;
            }
            let skipped = subset.trailing_zeros();
            subset >>= skipped;
            slot += skipped as usize;
        }
    }

    /// Writes the words of `segment`, from the last slot to the first. A slot without equation is 0.
    fn write(&self, segment: &RibbonSegment, words: &mut [u8]) {
        // Bit i of a window is slot i of those that follow the current one.
        let mut windows = [0u128; MOST_COLUMNS];
        let windows = &mut windows[..segment.columns + 1];
        for number in (0..segment.blocks).rev() {
            for slot in (number * WIDTH..(number + 1) * WIDTH).rev() {
                let (subset, result) = (self.subsets[slot], self.results[slot]);
                for (column, window) in windows.iter_mut().enumerate() {
                    *window <<= 1;
                    *window |= u128::from(parity(*window & subset) ^ (result >> column & 1));
                }
            }
            let (first, columns) = segment.block(number);
            let block = words[first * WORD_BYTES..].chunks_exact_mut(WORD_BYTES);
            for (word, window) in block.take(columns).zip(windows.iter()) {
                word.copy_from_slice(&window.to_le_bytes());
            }
        }
    }
}

/// Solves the equations of a segment whose keys have these `hashes`, in order. Returns the number of blocks and the
/// seed, or `None` if there is no solution.
fn solve_segment(hashes: &[u64], segments: u64, equations: &mut Equations) -> Option<(usize, u8)> {
    let mut blocks = blocks_for(hashes.len());
    let mut inside: Vec<u64> = Vec::with_capacity(hashes.len());
    for _ in 0..ENLARGEMENTS {
        for seed in 0..SEEDS as u8 {
            inside.clear();
            inside.extend(hashes.iter().map(|&hash| seeded(hash, segments, seed)));
            if seed > 0 {
                inside.sort_unstable();
            }
            if equations.solve(&inside, blocks) {
                return Some((blocks, seed));
            }
        }
        blocks += blocks / WIDTH + 1;
    }
    None
}

/// Builds module number `module`, or returns `None` with few keys or if no solution was found.
pub(super) fn build(hashes: &[u64], module: usize, bits_per_key: f64) -> Option<Module> {
    if hashes.len() < LEAST_KEYS {
        return None;
    }
    let mut sorted: Vec<u64> = hashes.iter().map(|&hash| module_hash(hash, module)).collect();
    sorted.sort_unstable();
    let segments = sorted.len().div_ceil(SEGMENT_KEYS);
    let words_at = HEADER_BYTES * (1 + segments);
    let bytes = (lines_for(sorted.len(), bits_per_key) as usize * LINE_BYTES)
        .max(words_at.next_multiple_of(LINE_BYTES));
    let words = (bytes - words_at) / WORD_BYTES;
    let mut bits = vec![0u8; bytes];
    bits[..4].copy_from_slice(&(segments as u32).to_le_bytes());
    let (mut equations, mut used, mut rates) = (Equations::default(), 0, 0.0);
    let mut rest = &sorted[..];
    for number in 0..segments {
        let count = rest.partition_point(|&hash| part_of(hash, segments as u64) == number as u64);
        let (keys, later) = rest.split_at(count);
        let (blocks, seed) = solve_segment(keys, segments as u64, &mut equations)?;
        // Words in proportion to keys, so that all segments have about the same rate.
        let end = (words as u128 * (sorted.len() - later.len()) as u128 / sorted.len() as u128) as usize;
        let segment = RibbonSegment::of_words(used, blocks, end - used, seed);
        bits[HEADER_BYTES * (1 + number)..][..HEADER_BYTES].copy_from_slice(&segment.encode());
        equations.write(&segment, &mut bits[words_at..]);
        rates += segment.false_positive_rate();
        (used, rest) = (end, later);
    }
    let false_positive_rate = rates / segments as f64;
    Some(Module { method: Method::Ribbon, bits, probes: 1, false_positive_rate })
}

/// Returns the segment of `hash` in a module, the number of segments, and the words of all segments.
#[inline]
fn segment_of(bits: &[u8], hash: u64) -> Option<(RibbonSegment, u64, &[u8])> {
    let segments = read_u32(bits.first_chunk()?, 0);
    // Also keeps the products below in the range of numbers.
    if segments == 0 || segments >= bits.len() / HEADER_BYTES {
        return None;
    }
    let number = part_of(hash, segments as u64) as usize;
    let words = bits.get(HEADER_BYTES * (1 + segments)..)?;
    let description = bits.get(HEADER_BYTES * (1 + number)..)?.first_chunk()?;
    Some((RibbonSegment::decode(description, words.len() / WORD_BYTES)?, segments as u64, words))
}

/// Returns whether the key with this `hash` may be in the table. See [`super::may_contain`].
#[inline]
pub(super) fn may_contain(bits: &[u8], module: usize, hash: u64) -> bool {
    let hash = module_hash(hash, module);
    let Some((segment, segments, words)) = segment_of(bits, hash) else { return true };
    let Equation { start, subset, result } =
        Equation::new(seeded(hash, segments, segment.seed), segment.starts());
    let (first, columns) = segment.block(start / WIDTH);
    let offset = (start % WIDTH) as u32;
    let word = |number: usize| {
        let bytes = words.get(number * WORD_BYTES..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u128::from_le_bytes(*bytes))
    };
    (0..columns).all(|column| {
        let mut window = word(first + column) >> offset;
        if offset > 0 {
            // The words of the next block follow those of this one.
            window |= word(first + columns + column) << (WIDTH as u32 - offset);
        }
        parity(window & subset) == result >> column & 1
    })
}

#[cfg(test)]
mod tests {
    use super::super::module::{MAX_MODULES, key_hash};
    use super::*;
    use proptest::prelude::*;

    fn number(i: u64) -> u64 {
        key_hash(&i.to_be_bytes(), 0x0123_4567_89ab_cdef)
    }

    fn built(keys: u64, bits: f64) -> Module {
        let hashes: Vec<u64> = (0..keys).map(number).collect();
        let module = build(&hashes, 0, bits).expect("enough keys");
        assert!(hashes.iter().all(|&hash| may_contain(&module.bits, 0, hash)), "{keys} keys, {bits} bits");
        module
    }

    /// The measured rate is the computed one. With 3 to 3.5 % more slots than keys, it is also near 2^-(bits / 1.035),
    /// mixed from two numbers of columns.
    #[test]
    fn false_positives_are_as_designed() {
        let absent: Vec<u64> = (1_000_000..2_000_000).map(number).collect();
        for (bits, expected) in
            [(1.0, 0.522), (2.0, 0.259), (4.0, 0.0701), (5.5, 0.0251), (8.0, 0.00475), (16.0, 2.2e-5)]
        {
            let module = built(100_000, bits);
            let passed = absent.iter().filter(|&&hash| may_contain(&module.bits, 0, hash)).count();
            let (rate, measured) = (module.false_positive_rate, passed as f64 / 1e6);
            let tolerance = 4.0 * (rate * (1.0 - rate) / 1e6).sqrt() + 1e-6;
            assert!((measured - rate).abs() <= tolerance, "{bits} bits: {measured} against {rate}");
            assert!((rate / expected - 1.0).abs() < 0.05, "{bits} bits: {rate} against {expected}");
            assert!((module.bits.len() as f64 * 8.0 / 1e5 - bits).abs() < 0.01);
        }
    }

    fn segments(bits: &[u8]) -> Vec<RibbonSegment> {
        let count = read_u32(bits.first_chunk().expect("a header"), 0);
        let words = bits.len() / WORD_BYTES - 1 - count;
        let at = |number: usize| bits[HEADER_BYTES * (1 + number)..].first_chunk().expect("a segment");
        (0..count).map(|number| RibbonSegment::decode(at(number), words).expect("sound")).collect()
    }

    #[test]
    fn filters_of_all_sizes_are_found() {
        for keys in [2048, 2049, 5000, 20_000, 32_768, 32_769, 77_777, 300_000] {
            let module = built(keys, 4.0);
            let segments = segments(&module.bits);
            assert_eq!(segments.len() as u64, keys.div_ceil(SEGMENT_KEYS as u64));
            let words: usize = segments.iter().map(RibbonSegment::words).sum();
            assert_eq!(words, module.bits.len() / WORD_BYTES - 1 - segments.len(), "all words are used");
            let slots: usize = segments.iter().map(|segment| segment.blocks * WIDTH).sum();
            assert!((1.0..1.1).contains(&(slots as f64 / keys as f64)), "{keys} keys: {slots}");
        }
        let hashes: Vec<u64> = (0..2047).map(number).collect();
        assert!(build(&hashes, 0, 4.0).is_none());
    }

    /// Hashes that are equal are one equation; hashes that are alike share a start, and there are too many for it.
    #[test]
    fn odd_hashes_end() {
        let same = vec![77; 5000];
        let module = build(&same, 0, 3.0).expect("one equation");
        let others = (0..1000).map(number).filter(|&hash| may_contain(&module.bits, 0, hash)).count();
        assert!(
            may_contain(&module.bits, 0, 77) && (80..180).contains(&others),
            "{others} of 1000 pass 3 columns"
        );
        let few: Vec<u64> = (0..5000).map(|i| number(i % 50)).collect();
        assert!(build(&few, 1, 3.0).is_some_and(|m| few.iter().all(|&hash| may_contain(&m.bits, 1, hash))));
        // Seeds other than 0 spread what has one start at first.
        let alike: Vec<u64> = (0..5000).collect();
        let module = build(&alike, 0, 3.0).expect("another seed");
        assert_ne!(segments(&module.bits)[0].seed, 0);
        assert!(alike.iter().all(|&hash| may_contain(&module.bits, 0, hash)));
    }

    #[test]
    fn malformed_modules_say_perhaps() {
        let module = built(3000, 4.0);
        let (present, absent) =
            (number(5), (1_000_000..).map(number).find(|h| !may_contain(&module.bits, 0, *h)));
        let absent = absent.expect("some key is rejected");
        assert!(may_contain(&module.bits, 0, present));
        assert!(may_contain(&[], 0, absent) && may_contain(&module.bits[..8], 0, absent));
        for (at, byte) in [(0, 0), (0, 255), (3, 255), (19, 255), (23, 255), (27, 255), (28, 255), (28, 20)] {
            let mut bits = module.bits.clone();
            bits[at] = byte;
            assert!(may_contain(&bits, 0, absent), "byte {at} = {byte}");
        }
        let mut bits = module.bits.clone();
        bits[20..24].fill(0);
        assert!(may_contain(&bits, 0, absent), "a segment without blocks");
        let cut = &module.bits[..module.bits.len() - LINE_BYTES];
        assert!(may_contain(cut, 0, absent), "fewer words than the header says");
    }

    #[test]
    fn modules_are_independent() {
        let hashes: Vec<u64> = (0..50_000).map(number).collect();
        let modules: Vec<Module> = (0..2).map(|m| build(&hashes, m, 3.0).expect("enough keys")).collect();
        let passes = |hash| (0..2).all(|m| may_contain(&modules[m].bits, m, hash));
        let measured = (50_000..350_000).map(number).filter(|&h| passes(h)).count() as f64 / 300_000.0;
        let together = modules[0].false_positive_rate * modules[1].false_positive_rate;
        assert!((measured / together - 1.0).abs() < 0.05, "{measured} against {together}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        #[test]
        fn no_key_is_ever_denied(
            seed in any::<u64>(),
            keys in 2048usize..9000,
            bits in 0.01f64..20.0,
            module in 0usize..MAX_MODULES,
        ) {
            let hashes: Vec<u64> = (0..keys as u64).map(|i| mix(seed ^ i)).collect();
            let built = build(&hashes, module, bits).expect("enough keys");
            for &hash in &hashes {
                prop_assert!(may_contain(&built.bits, module, hash));
            }
            prop_assert!((0.0..=1.0).contains(&built.false_positive_rate));
        }

        #[test]
        fn any_bytes_are_an_answer(mut bits in proptest::collection::vec(any::<u8>(), 0..600), hash in any::<u64>()) {
            may_contain(&bits, 0, hash);
            // With a header that may be sound.
            bits.iter_mut().take(30).enumerate().for_each(|(at, byte)| if at % 4 != 0 { *byte = 0 });
            may_contain(&bits, 0, hash);
        }
    }
}
