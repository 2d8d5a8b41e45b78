//! Which value files compactions collect.
//!
//! A value file holds records that no table points to any more: garbage. A compaction that meets a pointer into a
//! *collected* file copies the value to a new file, so the old file loses its references and is removed.
//!
//! The *space factor* A is the number of bytes of all records in value files for each byte of records that tables point
//! to. While A exceeds the target S, files whose share of garbage g is at least 1 - 1/S are collected. The mean share,
//! 1 - 1/A, is then above this bound, so there is such a file.
//!
//! Copying the live records of a collected file costs (1 - g)/g <= 1/(S - 1) bytes for each byte of garbage in it. A
//! value that a user wrote becomes garbage at most once. So all copies together are at most 1/(S - 1) times the bytes
//! that flushes wrote to value files, plus the copies of jobs that failed. A file's space is freed when no table points
//! to it any more; until then its copied values take space twice.
//!
//! The rule is that of the collectors of TerarkDB and Titan, which go by a ratio of garbage. Here the ratio follows
//! from the space target. What tables point to is an upper bound: an overwritten version counts until a compaction
//! drops it, and a table that is partly replaced counts with its whole list. So garbage is found late, never too early.

use alloc::vec::Vec;

/// Sizes of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ValueFileSizes {
    /// Bytes of all records.
    pub total: u64,
    /// Bytes of the records that tables point to.
    pub referenced: u64,
}

impl ValueFileSizes {
    /// Returns the share of garbage, within 0 and 1.
    #[must_use]
    pub fn garbage_share(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        self.total.saturating_sub(self.referenced) as f64 / self.total as f64
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

/// Returns the indices of the files to collect for the space target `target`, which is above 1.
#[must_use]
pub fn to_collect(files: &[ValueFileSizes], target: f64) -> Vec<usize> {
    if space_factor(files.iter().copied()) <= target {
        return Vec::new();
    }
    let least = 1.0 - 1.0 / target;
    let is_collected = |file: &ValueFileSizes| file.total > 0 && file.garbage_share() >= least;
    files.iter().enumerate().filter(|(_, file)| is_collected(file)).map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    fn file(total: u64, referenced: u64) -> ValueFileSizes {
        ValueFileSizes { total, referenced }
    }

    #[test]
    fn files_are_collected_only_above_the_target() {
        let files = [file(100, 100), file(100, 60), file(100, 90)];
        assert!((space_factor(files.iter().copied()) - 1.2).abs() < 1e-12);
        assert_eq!(to_collect(&files, 1.5), []);
        assert_eq!(to_collect(&files, 1.1), [1, 2]);
        assert_eq!(space_factor([].into_iter()), 1.0);
        assert_eq!(to_collect(&[file(0, 0)], 1.1), []);
        // More references than records, as tables that share entries may report: no garbage.
        assert_eq!(file(100, 150).garbage_share(), 0.0);
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
            let chosen = to_collect(&files, target);
            assert_eq!(
                chosen.is_empty(),
                space_factor(files.iter().copied()) <= target,
                "{files:?} {target}"
            );
            for index in chosen {
                let ValueFileSizes { total, referenced } = files[index];
                let freed = (total - referenced) as f64;
                assert!(referenced as f64 <= freed / (target - 1.0) * (1.0 + 1e-9), "{files:?} {target}");
            }
        }
    }
}
