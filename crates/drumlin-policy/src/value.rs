//! Which value files are collected, and when a compaction is started for them.
//!
//! A value file holds records that no table points to any more: garbage. A compaction that meets a pointer into a
//! *collected* file copies the value to a new file, so the old file loses its references and is removed.
//!
//! The *space factor* A is the number of bytes of all records in value files for each byte of records that tables point
//! to. While A exceeds the target S, files are chosen for collection, those with the highest score first, until A would
//! fall to 0.99 S, and only files with a share of garbage g >= 1 - 1/S. The mean share, 1 - 1/A, is then above this
//! bound, so there is such a file. A file of `age` writes has the score
//!
//! ```text
//! g sqrt(age) / (2 - g)
//! ```
//!
//! Reading and copying a file costs 2 - g for the g that it frees. An old file is taken rather than a young one with as
//! much garbage: what is still alive in it has been alive for long, so little of it will become garbage soon. This is
//! the benefit/cost ratio of Rosenblum and Ousterhout (ACM TOCS 10(1), 1992, utilization 1 - g), with the root of the
//! age instead of the age.
//!
//! Copying the live records of a collected file costs (1 - g)/g <= 1/(S - 1) bytes for each byte of garbage in it. A
//! value that a user wrote becomes garbage at most once. So all copies together are at most 1/(S - 1) times the bytes
//! that flushes wrote to value files, plus the copies of jobs that failed. A file's space is freed when no table points
//! to it any more; until then its copied values take space twice.
//!
//! The collectors of TerarkDB and Titan go by a ratio of garbage alone. Here the ratio follows from the space target.
//! What tables point to is an upper bound: an overwritten version counts until a compaction drops it, and a table that
//! is partly replaced counts with its whole list. So garbage is found late, never too early.
//!
//! The *known excess* is the number of bytes above the target: total - S * referenced. Newer runs may supersede all but
//! the values of the run that points to most bytes. The *possible excess* counts only those as referenced. By them
//! [`ValueSpace::next_step`] starts a compaction:
//!
//! - With several runs, a *merge* of all tables into one run finds the garbage. It starts if the possible excess is at
//!   least the bytes of all tables, or the known excess at least a quarter of them.
//! - With one run, a *rewrite* of the tables that point to the chosen files copies their values. It starts if the known
//!   excess is at least a quarter of the bytes of these tables.
//!
//! Both need an excess of at least 1/64 of all record bytes, so that they do not start for every flush.

use crate::real::power;
use alloc::vec::Vec;

/// Sizes of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ValueFileSizes {
    /// Bytes of all records.
    pub total: u64,
    /// Bytes of the records that tables point to.
    pub referenced: u64,
    /// Writes to the store since the file was created, which is not when its values were written. Equal ages order
    /// files by their share of garbage.
    pub age: u64,
}

impl ValueFileSizes {
    /// Returns the bytes of garbage.
    #[must_use]
    pub fn garbage(&self) -> u64 {
        self.total.saturating_sub(self.referenced)
    }

    /// Returns the share of garbage, within 0 and 1.
    #[must_use]
    pub fn garbage_share(&self) -> f64 {
        self.garbage() as f64 / self.total.max(1) as f64
    }

    /// Returns how much collecting the file pays, compared with other files.
    #[must_use]
    pub fn score(&self) -> f64 {
        let share = self.garbage_share();
        share * power(self.age.max(1) as f64, 0.5) / (2.0 - share)
    }
}

/// Returns the space factor of `files`: bytes of records per referenced byte; 1 without files.
pub fn space_factor(files: impl Iterator<Item = ValueFileSizes>) -> f64 {
    let (mut total, mut referenced) = (0.0, 0.0);
    for file in files {
        total += file.total as f64;
        referenced += file.referenced.min(file.total) as f64;
    }
    if total == 0.0 { 1.0 } else { total / f64::max(referenced, 1.0) }
}

/// Share of the space target at which no more files are chosen.
const STOP_SHARE: f64 = 0.99;

/// Returns the indices of the files to collect for the space target `target`, which is above 1. Those with the highest
/// score come first. From the second one on, all together have at most `most_copied` referenced bytes.
#[must_use]
pub fn to_collect(files: &[ValueFileSizes], target: f64, most_copied: u64) -> Vec<usize> {
    if space_factor(files.iter().copied()) <= target {
        return Vec::new();
    }
    let least = 1.0 - 1.0 / target;
    let is_candidate = |index: &usize| files[*index].total > 0 && files[*index].garbage_share() >= least;
    let mut chosen: Vec<usize> = (0..files.len()).filter(is_candidate).collect();
    // Of equal scores the larger share of garbage goes first, and then the order of the files, the oldest first.
    chosen.sort_by(|a, b| {
        let [a, b] = [a, b].map(|index| files[*index]);
        b.score().total_cmp(&a.score()).then(b.garbage_share().total_cmp(&a.garbage_share()))
    });
    let sum = |part: fn(&ValueFileSizes) -> u64| files.iter().map(|file| part(file) as f64).sum::<f64>();
    let referenced = sum(|file| file.referenced.min(file.total));
    let mut above = sum(|file| file.total) - STOP_SHARE * target * referenced;
    let mut copied = 0u64;
    let chosen = chosen.into_iter().enumerate().take_while(|(number, index)| {
        let is_needed = above > 0.0;
        above -= files[*index].garbage() as f64;
        copied = copied.saturating_add(files[*index].referenced);
        is_needed && (*number == 0 || copied <= most_copied)
    });
    chosen.map(|(_, index)| index).collect()
}

/// What the tables of a keyspace point to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ValueSpace {
    /// Bytes of all records in value files.
    pub total: f64,
    /// Bytes of the records that tables point to.
    pub referenced: f64,
    /// The same for the run that points to most bytes.
    pub largest_run: f64,
    /// Number of runs.
    pub runs: usize,
    /// Bytes of all tables.
    pub table_bytes: f64,
}

/// A compaction that is started for value files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectionStep {
    /// Merges the tables of several runs into one run, and so finds the garbage.
    Merge,
    /// Rewrites those tables of the only run that point to collected files.
    Rewrite,
}

/// A compaction starts only if the excess is at least this fraction, as a divisor, of all record bytes.
const LEAST_EXCESS: f64 = 64.0;
/// Fraction of all records, as a divisor, that one compaction may copy.
const COPIED_SHARE: f64 = 16.0;
/// Most bytes of tables that are rewritten for each byte of known excess that is freed.
const MOST_REWRITTEN: f64 = 4.0;

/// Bytes of value files above the space target.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SpaceExcess {
    /// Total - target * referenced bytes, at least 0.
    pub known: f64,
    /// Excess that is added if only the values of the largest run count as referenced.
    pub hidden: f64,
}

impl SpaceExcess {
    /// Returns the excess if newer runs supersede all that they can.
    #[must_use]
    pub fn possible(&self) -> f64 {
        self.known + self.hidden
    }
}

impl ValueSpace {
    /// Returns the referenced bytes if newer runs supersede all that they can.
    fn least_referenced(&self) -> f64 {
        self.largest_run.min(self.referenced)
    }

    /// Returns the space factor, and the one if newer runs supersede all that they can.
    #[must_use]
    pub fn factors(&self) -> [f64; 2] {
        [self.referenced, self.least_referenced()].map(|live| self.total / live.max(1.0))
    }

    /// Returns the bytes above the space target `target`.
    #[must_use]
    pub fn excess(&self, target: f64) -> SpaceExcess {
        let above = |live: f64| (self.total - target * live).max(0.0);
        let known = above(self.referenced);
        SpaceExcess { known, hidden: above(self.least_referenced()) - known }
    }

    /// Returns whether an `excess` is enough to start a compaction that costs `cost` bytes.
    fn pays(&self, excess: f64, cost: f64) -> bool {
        excess > 0.0 && excess >= f64::max(self.total / LEAST_EXCESS, cost)
    }

    /// Returns the compaction to start for the space target `target`, if one pays. With `may_merge` unset it is no
    /// merge.
    #[must_use]
    pub fn next_step(&self, target: f64, may_merge: bool) -> Option<CollectionStep> {
        let excess = self.excess(target);
        if self.runs <= 1 || !may_merge {
            return self.pays(excess.known, 0.0).then_some(CollectionStep::Rewrite);
        }
        let is_due = self.pays(excess.known, self.table_bytes / MOST_REWRITTEN)
            || self.pays(excess.possible(), self.table_bytes);
        is_due.then_some(CollectionStep::Merge)
    }

    /// Returns whether a rewrite of `bytes` bytes of tables pays that frees `garbage` bytes.
    #[must_use]
    pub fn rewrite_pays(&self, target: f64, garbage: f64, bytes: f64) -> bool {
        let known = self.excess(target).known;
        self.pays(known, 0.0) && garbage.min(known) >= bytes / MOST_REWRITTEN
    }

    /// Returns the bytes that one compaction may copy: a share of all records, or as much as a rewrite of all tables
    /// needs to pay. Copies of c bytes free at least (S - 1) c bytes.
    #[must_use]
    pub fn copy_limit(&self, target: f64) -> u64 {
        f64::max(self.total / COPIED_SHARE, self.table_bytes / (MOST_REWRITTEN * (target - 1.0))) as u64
    }

    /// Returns whether collection goes before other compactions: values may take more than S + (S - 1)/2 times the
    /// referenced bytes, for the target S.
    #[must_use]
    pub fn is_pressing(&self, target: f64) -> bool {
        self.excess(target).possible() > (target - 1.0) / 2.0 * self.referenced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;
    use alloc::vec;

    fn file(total: u64, referenced: u64) -> ValueFileSizes {
        ValueFileSizes { total, referenced, age: 100 }
    }

    #[test]
    fn old_files_go_before_young_ones() {
        let of = |garbage: u64, age| ValueFileSizes { total: 10, referenced: 10 - garbage, age };
        let files = [of(5, 400), of(3, 2500), of(8, 100), of(2, 10_000)];
        for (file, score) in files.iter().zip([6.6667, 8.8235, 6.6667, 11.1111]) {
            assert!((file.score() - score).abs() < 1e-4, "{file:?}");
        }
        assert_eq!(to_collect(&files, 1.25, 0), [3], "the highest score");
        assert_eq!(to_collect(&files, 1.5, 0), [2], "only files from a third on; equal scores, more garbage");
    }

    #[test]
    fn files_are_collected_only_above_the_target() {
        let files = [file(100, 100), file(100, 60), file(100, 90)];
        assert!((space_factor(files.iter().copied()) - 1.2).abs() < 1e-12);
        assert_eq!(to_collect(&files, 1.5, u64::MAX), []);
        assert_eq!(to_collect(&files, 1.1, u64::MAX), [1], "with it the factor is 1.04");
        assert_eq!(to_collect(&files, 1.01, u64::MAX), [1, 2]);
        assert_eq!((to_collect(&files, 1.01, 150), to_collect(&files, 1.01, 149)), (vec![1, 2], vec![1]));
        assert_eq!(to_collect(&files, 1.01, 0), [1], "at least one");
        assert_eq!(space_factor([].into_iter()), 1.0);
        assert_eq!(to_collect(&[file(0, 0)], 1.1, u64::MAX), []);
        // More references than records, as tables that share entries may report: no garbage.
        assert_eq!(file(100, 150).garbage_share(), 0.0);
    }

    #[test]
    fn garbage_is_found_and_then_collected() {
        // Five flushes of 100 bytes that may all supersede the same values.
        let flushes =
            ValueSpace { total: 600.0, referenced: 600.0, largest_run: 200.0, runs: 5, table_bytes: 20.0 };
        assert_eq!(flushes.excess(1.5), SpaceExcess { known: 0.0, hidden: 300.0 });
        assert_eq!(flushes.next_step(1.5, true), Some(CollectionStep::Merge));
        assert_eq!(flushes.next_step(1.5, false), None, "nothing came since the last merge");
        let costly = ValueSpace { table_bytes: 400.0, ..flushes };
        assert_eq!(costly.next_step(1.5, true), None, "more would be rewritten than can be freed");
        // They did.
        let merged = ValueSpace { referenced: 200.0, runs: 1, ..flushes };
        assert_eq!(merged.next_step(1.5, true), Some(CollectionStep::Rewrite));
        assert_eq!(merged.excess(1.5), SpaceExcess { known: 300.0, hidden: 0.0 });
        assert!(merged.rewrite_pays(1.5, 400.0, 1200.0) && !merged.rewrite_pays(1.5, 400.0, 1201.0));
        assert!(merged.rewrite_pays(1.5, 100.0, 400.0) && !merged.rewrite_pays(1.5, 100.0, 401.0));
        let large = ValueSpace { table_bytes: 400.0, ..merged };
        assert_eq!((merged.copy_limit(1.5), large.copy_limit(1.5)), (37, 200));
        assert!(merged.is_pressing(1.5) && !ValueSpace { total: 349.0, ..merged }.is_pressing(1.5));
        assert_eq!((flushes.factors(), merged.factors()), ([1.0, 3.0], [3.0, 3.0]));
        let little = ValueSpace { total: 304.0, ..merged };
        assert_eq!(little.next_step(1.5, true), None, "less than 1/64 is above it");
        assert_eq!(ValueSpace::default().next_step(1.5, true), None);
    }

    /// Above the target there is a file to collect, and copying it costs at most 1 / (target - 1) per freed byte.
    #[test]
    fn there_is_a_file_and_copying_it_is_bounded() {
        let mut random = SplitMix::new(7);
        for _ in 0..2000 {
            let files: Vec<ValueFileSizes> = (0..1 + random.below(12))
                .map(|_| {
                    let total = 1 + random.below(1000) as u64;
                    file(total, random.below(total as usize + 1) as u64)
                })
                .collect();
            let target = 1.05 + random.below(900) as f64 / 100.0;
            let chosen = to_collect(&files, target, u64::MAX);
            assert_eq!(
                chosen.is_empty(),
                space_factor(files.iter().copied()) <= target,
                "{files:?} {target}"
            );
            let mut left = files.clone();
            for index in chosen {
                let ValueFileSizes { total, referenced, .. } = files[index];
                let freed = (total - referenced) as f64;
                assert!(referenced as f64 <= freed / (target - 1.0) * (1.0 + 1e-9), "{files:?} {target}");
                assert!(space_factor(left.iter().copied()) > STOP_SHARE * target, "more than needed");
                left[index].total = referenced;
            }
        }
    }
}
