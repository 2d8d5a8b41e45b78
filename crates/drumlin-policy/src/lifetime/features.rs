//! Features of a value, from which the model predicts its lifetime.
//!
//! ```text
//! 0      age of the value          9   mean interval (the rule's prediction)     12..21  decayed writes,
//! 1..8   newest gaps between      10   number of past writes                             per window
//!        writes, newest first     11   bytes before compression
//! ```
//!
//! Features 0 to 11 are binned in steps of half a doubling, 12 to 21 in steps of a quarter. Bin 0 means unknown. A
//! flush has only the table of recent writes: feature 1 is the gap to the last write and 2 the mean of the older
//! gaps; 3 to 8 and 12 to 21 are unknown.

use super::histogram::quarter_steps;
use super::history::{Version, decayed_writes};
use super::recent::Seen;
use super::trees::{BINS, Row};
use drumlin_types::Seq;
use drumlin_types::history::KEPT_GAPS;

const GAPS: usize = 1;
const MEAN: usize = 9;
const WRITES: usize = 10;
const BYTES: usize = 11;
const DECAYED: usize = 12;

/// Returns the bin of `x` in steps of a half or a quarter of its doublings.
fn bin(x: f64, steps: usize) -> u8 {
    if !x.is_finite() {
        return 0;
    }
    let step = quarter_steps(1.0 + x.max(0.0)) * steps / 4;
    1 + step.min(BINS - 2) as u8
}

/// Returns the row of a value that is flushed. `mean` is the rule's prediction.
#[must_use]
pub fn at_flush(seq: Seq, before: Option<Seen>, bytes: u64, mean: f64) -> Row {
    let mut row = Row::default();
    row[0] = bin(0.0, 2);
    row[BYTES] = bin(bytes as f64, 2);
    row[WRITES] = bin(before.map_or(0, |seen| seen.writes) as f64, 2);
    row[MEAN] = bin(mean, 2);
    if let Some(Seen { first, last, writes }) = before {
        row[GAPS] = bin(seq.saturating_sub(last) as f64, 2);
        if writes > 1 {
            row[GAPS + 1] = bin(last.saturating_sub(first) as f64 / (writes - 1) as f64, 2);
        }
    }
    row
}

/// Returns the row of a value that is copied at `now`. `mean` is the rule's prediction.
#[must_use]
pub fn at_copy(version: Version<'_>, now: Seq, bytes: u64, mean: f64) -> Row {
    let mut row = Row::default();
    row[0] = bin(now.saturating_sub(version.seq) as f64, 2);
    row[BYTES] = bin(bytes as f64, 2);
    row[MEAN] = bin(mean, 2);
    row[WRITES] = bin(version.history.map_or(0, |history| history.writes) as f64, 2);
    if let Some(history) = version.history {
        for (to, gap) in row[GAPS..GAPS + KEPT_GAPS].iter_mut().zip(&history.gaps[..history.kept()]) {
            *to = bin(*gap as f64, 2);
        }
    }
    for (to, sum) in row[DECAYED..].iter_mut().zip(decayed_writes(version, now)) {
        *to = bin(sum, 4);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::history::History;

    #[test]
    fn rows() {
        let row = at_flush(1000, None, 4096, f64::INFINITY);
        assert_eq!(
            (row[0], row[GAPS], row[MEAN], row[WRITES], row[BYTES], row[DECAYED]),
            (1, 0, 0, 1, 25, 0)
        );
        let seen = Seen { first: 100, last: 936, writes: 3 };
        let row = at_flush(1000, Some(seen), 4096, 63.0);
        assert_eq!((row[GAPS], row[GAPS + 1], row[GAPS + 2]), (1 + 12, 1 + 17, 0), "64 and 418");
        assert_eq!((row[MEAN], row[WRITES]), (1 + 12, 1 + 4));
        let history = History { writes: 2, gaps: [63, 255, 0, 0, 0, 0, 0, 0], ..History::default() };
        let row = at_copy(Version { seq: 1000, history: Some(&history) }, 1003, 1, 0.0);
        assert_eq!(row[..4], [1 + 4, 1 + 12, 1 + 16, 0]);
        assert!(row[DECAYED] > 0 && row[DECAYED + 9] > row[DECAYED]);
        assert_eq!(at_copy(Version { seq: 0, history: None }, Seq::MAX, u64::MAX, 1e300)[0], 63);
    }
}
