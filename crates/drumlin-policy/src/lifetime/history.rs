//! The past writes of a key: how two versions' histories become one, and what they say at a given time.
//!
//! A flush or compaction that drops an older version in favour of a newer one adds the older version and its history to
//! the newer one's history. Each version is dropped once, so each write is counted once, whatever the order of the
//! compactions. A tombstone ends a history. The newest eight past writes are kept with their distances; all others are
//! decayed sums, DumpKV's exponentially decayed write counters (equation 1):
//!
//! ```text
//! E_i(t) = sum over the writes at w <= t of 2^(-(t - w) / W_i)       W_i = 2^(8 + 2i), i = 0..9
//! ```
//!
//! The decay is continuous, so sums can be added in any order. The published code rounds (t - w) / W_i down.

use crate::real::decay;
use drumlin_types::Seq;
use drumlin_types::history::{History, KEPT_GAPS, WINDOWS};

/// Largest number of past writes that is counted: what the encoded history holds.
const MOST_WRITES: u64 = u32::MAX as u64;

/// Returns the window W_i in sequence numbers.
#[must_use]
pub fn window(index: usize) -> f64 {
    (1u64 << (8 + 2 * index)) as f64
}

/// One version of a key with its history.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// Sequence number of the version.
    pub seq: Seq,
    /// Its past writes.
    pub history: Option<&'a History>,
}

/// Past writes of a key that a history knows exactly, by their sequence numbers.
#[derive(Default)]
struct Past {
    /// Sequence numbers, newest first. There is room for the gaps of two histories and for the dropped version.
    places: [Seq; 2 * KEPT_GAPS + 1],
    len: usize,
}

impl Past {
    fn push(&mut self, seq: Seq) {
        let at = self.places[..self.len].partition_point(|place| *place > seq);
        self.places.copy_within(at..self.len, at + 1);
        self.places[at] = seq;
        self.len += 1;
    }

    fn extend(&mut self, version: Version<'_>) {
        let Some(history) = version.history else { return };
        let mut place = version.seq;
        for gap in &history.gaps[..history.kept()] {
            place = place.saturating_sub(*gap);
            self.push(place);
        }
    }
}

/// Returns the sequence numbers of the oldest write with a gap, and of the oldest write of all.
fn oldest(version: Version<'_>) -> (Seq, Seq) {
    let Some(history) = version.history else { return (version.seq, version.seq) };
    let kept = history.gaps[..history.kept()].iter().fold(version.seq, |seq, gap| seq.saturating_sub(*gap));
    (kept, kept.saturating_sub(history.oldest))
}

/// Returns the history of the newer version after the older one of the same key was dropped in favour of it.
#[must_use]
pub fn fold(newer: Version<'_>, older: Version<'_>) -> History {
    debug_assert!(newer.seq > older.seq, "versions in the wrong order");
    let mut past = Past::default();
    past.extend(newer);
    past.extend(older);
    past.push(older.seq);
    let writes = |version: Version<'_>| version.history.map_or(0, |history| history.writes);
    let all = writes(newer).saturating_add(writes(older)).saturating_add(1).min(MOST_WRITES);
    let mut folded = History { writes: all, ..History::default() };
    let kept = past.len.min(KEPT_GAPS);
    let mut before = newer.seq;
    for (gap, place) in folded.gaps.iter_mut().zip(&past.places[..kept]) {
        // Two writes have different sequence numbers; a damaged history may say otherwise.
        *gap = before.saturating_sub(*place).max(1);
        before = before.saturating_sub(*gap);
    }
    if !folded.has_remainder() {
        return folded;
    }
    let rest = &past.places[kept..past.len];
    let ends =
        [newer, older].into_iter().filter(|version| version.history.is_some_and(History::has_remainder));
    let first = ends.clone().map(|version| oldest(version).1).chain(rest.iter().copied()).min();
    folded.oldest = before.saturating_sub(first.unwrap_or(before)).max(1);
    let mut sums = [0.0; WINDOWS];
    let mut add = |seq: Seq, counts: [f64; WINDOWS]| {
        let left = decays(before.saturating_sub(seq));
        (0..WINDOWS).for_each(|index| sums[index] += counts[index] * left[index]);
    };
    rest.iter().for_each(|place| add(*place, [1.0; WINDOWS]));
    ends.for_each(|version| add(oldest(version).0, remainders(version)));
    folded.remainders = sums.map(to_half);
    folded
}

/// Returns the decayed writes E_i of the key at `now`, this version among them.
#[must_use]
pub fn decayed_writes(version: Version<'_>, now: Seq) -> [f64; WINDOWS] {
    let mut past = Past::default();
    past.extend(version);
    past.push(version.seq);
    let mut sums = [0.0; WINDOWS];
    let mut add = |seq: Seq, counts: [f64; WINDOWS]| {
        let left = decays(now.saturating_sub(seq));
        (0..WINDOWS).for_each(|index| sums[index] += counts[index] * left[index]);
    };
    past.places[..past.len].iter().for_each(|place| add(*place, [1.0; WINDOWS]));
    if version.history.is_some_and(History::has_remainder) {
        add(oldest(version).0, remainders(version));
    }
    sums
}

/// Returns the decayed sums of the writes without a gap.
fn remainders(version: Version<'_>) -> [f64; WINDOWS] {
    version.history.map_or([0.0; WINDOWS], |history| history.remainders.map(half))
}

/// Returns the decayed weight of a write after `elapsed`, per window. Each window is four times as long as the one
/// before, so the fourth power of one decay is that of the next shorter window.
fn decays(elapsed: u64) -> [f64; WINDOWS] {
    let mut left = [0.0; WINDOWS];
    let mut power = decay(elapsed as f64, window(WINDOWS - 1));
    for decayed in left.iter_mut().rev() {
        *decayed = power;
        power *= power;
        power *= power;
    }
    left
}

/// Returns the value of a half-precision number that is finite and not negative.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i64::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let scale = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
    match exponent {
        0 => fraction * scale(-24),
        _ => (fraction + 1024.0) * scale(exponent - 25),
    }
}

/// Returns the half-precision number nearest to `x`, which is not negative. The largest finite one bounds it.
fn to_half(x: f64) -> u16 {
    const LARGEST: u16 = 0x7bff;
    if x.is_nan() || x <= 0.0 {
        return 0;
    }
    // The exponent of the f64; numbers below 2^-14 share the spacing of those from there on.
    let exponent = ((x.to_bits() >> 52) as i64 - 1023).max(-14);
    if exponent > 15 {
        return LARGEST;
    }
    let spacing = f64::from_bits(((1023 + exponent - 10) as u64) << 52);
    let steps = crate::real::round(x / spacing) as u64;
    // For normal numbers, 1024 of the steps are the implicit bit. A carry moves into the exponent.
    let bits = ((exponent + 14) as u64) * 1024 + steps;
    (bits as u16).min(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;
    use alloc::vec::Vec;

    fn version(seq: Seq, history: &Option<History>) -> Version<'_> {
        Version { seq, history: history.as_ref() }
    }

    #[test]
    fn the_counters_of_four_writes() {
        let history = Some(History { writes: 3, gaps: [600, 700, 200, 0, 0, 0, 0, 0], ..History::default() });
        let at = |now| decayed_writes(version(1600, &history), now);
        for (sums, expected) in
            [(at(1600), [1.243825, 2.443286, 3.481791]), (at(2000), [0.421114, 1.863736, 3.253908])]
        {
            for (sum, expected) in sums.iter().zip(expected) {
                assert!((sum - expected).abs() < 1e-6, "{sum} is not {expected}");
            }
        }
    }

    #[test]
    fn half_precision() {
        for (x, bits) in
            [(0.0, 0), (1.0, 0x3c00), (2048.0, 0x6800), (65504.0, 0x7bff), (1e9, 0x7bff), (0.1, 0x2e66)]
        {
            assert_eq!(to_half(x), bits, "{x}");
        }
        assert_eq!(
            (to_half(5.960_464_477_539_063e-8), to_half(6.103_515_625e-5)),
            (1, 0x400),
            "the smallest ones"
        );
        for bits in 0..0x7c00 {
            assert_eq!(to_half(half(bits)), bits);
        }
    }

    /// Versions that are folded in any legal order count each write once.
    #[test]
    fn the_order_of_folding_does_not_matter() {
        let mut random = SplitMix::new(11);
        let mut worst = 0.0f64;
        for case in 0..3000 {
            let count = 2 + random.below(40);
            let mut seq = 1u64;
            let spread = 1usize << (1 + random.below(16));
            let writes: Vec<Seq> = (0..count)
                .map(|_| {
                    seq += 1 + random.below(spread) as u64;
                    seq
                })
                .collect();
            let mut versions: Vec<(Seq, Option<History>)> = writes.iter().map(|seq| (*seq, None)).collect();
            while versions.len() > 1 {
                let newer = 1 + random.below(versions.len() - 1);
                let older = random.below(newer);
                let (seq, history) = versions.remove(older);
                let into = &mut versions[newer - 1];
                into.1 = Some(fold(version(into.0, &into.1), version(seq, &history)));
            }
            let (last, history) = versions[0];
            let folded = history.expect("it has past writes");
            assert_eq!((last, folded.writes), (seq, count as u64 - 1), "case {case}");
            let reversed: Vec<Seq> = writes.iter().rev().copied().collect();
            let gaps: Vec<u64> = reversed.windows(2).map(|two| two[0] - two[1]).take(KEPT_GAPS).collect();
            assert_eq!(folded.gaps[..folded.kept()], gaps, "case {case}");
            assert_eq!(oldest(version(last, &history)).1, writes[0], "case {case}");
            let sums = decayed_writes(version(last, &history), last + 5);
            for (index, sum) in sums.iter().enumerate() {
                let exact: f64 =
                    writes.iter().map(|write| decay((last + 5 - write) as f64, window(index))).sum();
                worst = worst.max((sum - exact).abs() / exact);
            }
        }
        assert!(worst < 0.002, "relative error {worst}");
    }
}
