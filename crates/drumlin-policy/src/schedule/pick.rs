//! Order in which level pairs get free slots.
//!
//! Slots go top-down with back-pressure: the uppermost pair whose output level is not too full goes first. The work
//! of upper levels is short and most urgent, and the slots that it leaves free go to lower levels. Where all output
//! levels are full, slots are shared by the highest averages of work times fill. A source that is over its own size
//! presses on: its output level may be fuller by the same factor, up to two. Otherwise level 0 would grow, and
//! writers would stop, for the sake of a level that could wait.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// Class of work with one place in the order. At equal precedence, the smaller value goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PickKind {
    /// Source level.
    pub source: u8,
    /// Output level.
    pub out: u8,
    /// Whether the work is only tidying (intra-level compaction), which comes last.
    pub is_tidying: bool,
    /// Whether its tickets have begun.
    pub has_begun: bool,
}

/// Work of one level pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pair {
    /// Levels and class of the work.
    pub kind: PickKind,
    /// Bytes of ready and running pieces times the fill of the source.
    pub weight: f64,
    /// Number of running pieces.
    pub running: u32,
    /// Fill of the source level.
    pub source_fill: f64,
    /// Fill of the output level.
    pub target_fill: f64,
}

/// Upper bound on the fill of a source in the back-pressure rule. It bounds how far a full source may overfill the
/// level below.
const PRESSES: f64 = 2.0;

/// Returns whether an output level is too full for its source to go first.
pub fn is_full(source_fill: f64, target_fill: f64, back_pressure: f64) -> bool {
    target_fill > back_pressure * source_fill.clamp(1.0, PRESSES)
}

/// Sorts `pairs` into the order in which they get the next slot.
pub fn order(mut pairs: Vec<Pair>, back_pressure: f64) -> Vec<Pair> {
    pairs.sort_by(|a, b| compare(a, b, back_pressure));
    pairs
}

pub(super) fn compare(a: &Pair, b: &Pair, back_pressure: f64) -> Ordering {
    let is_full = |pair: &Pair| is_full(pair.source_fill, pair.target_fill, back_pressure);
    let average = |pair: &Pair| pair.weight / f64::from(pair.running + 1);
    let level = |pair: &Pair| (pair.kind.source, pair.kind.out);
    let class = |pair: &Pair| (pair.kind.is_tidying, is_full(pair));
    class(a).cmp(&class(b)).then_with(|| match is_full(a) {
        false => level(a).cmp(&level(b)),
        true => average(b).total_cmp(&average(a)).then_with(|| level(a).cmp(&level(b))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(source: u8, weight: f64, target_fill: f64) -> Pair {
        let kind = PickKind { source, out: source + 1, is_tidying: false, has_begun: false };
        Pair { kind, weight, running: 0, source_fill: 1.0, target_fill }
    }

    /// Returns the slots that three pairs with full output levels get.
    fn shares(weights: [f64; 3], slots: u32) -> [u32; 3] {
        let mut pairs: Vec<Pair> = (0..3).map(|i| pair(i, weights[usize::from(i)], 9.0)).collect();
        for _ in 0..slots {
            let first = order(pairs.clone(), 3.0)[0].kind.source;
            pairs[usize::from(first)].running += 1;
        }
        [pairs[0].running, pairs[1].running, pairs[2].running]
    }

    #[test]
    fn full_pairs_share_by_highest_averages() {
        assert_eq!(shares([600.0, 4800.0, 3000.0], 16), [1, 9, 6]);
        assert_eq!(shares([600.0, 4800.0, 3000.0], 4), [0, 3, 1]);
    }

    #[test]
    fn upper_pairs_go_first_while_their_target_has_room() {
        let first = |pairs: Vec<Pair>| order(pairs, 3.0)[0].kind.source;
        assert_eq!(first(vec(&[(0, 1.0, 3.0), (1, 99.0, 1.0)])), 0);
        assert_eq!(first(vec(&[(0, 1.0, 3.1), (1, 99.0, 1.0)])), 1);
        assert_eq!(first(vec(&[(0, 1.0, 3.1), (1, 99.0, 3.1)])), 1);
        let mut pressed = vec(&[(0, 1.0, 3.1), (1, 99.0, 1.0)]);
        pressed[0].source_fill = 1.1;
        assert_eq!(first(pressed.clone()), 0, "what presses is over its size as well");
        (pressed[0].source_fill, pressed[0].target_fill) = (9.0, 6.1);
        assert_eq!(first(pressed), 1, "but the level below has a bound");
        let mut tidy = vec(&[(0, 9.0, 0.0), (1, 1.0, 9.0)]);
        tidy[0].kind.is_tidying = true;
        assert_eq!(first(tidy), 1);
    }

    fn vec(pairs: &[(u8, f64, f64)]) -> Vec<Pair> {
        pairs.iter().map(|&(source, weight, fill)| pair(source, weight, fill)).collect()
    }
}
