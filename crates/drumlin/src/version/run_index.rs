//! Index of a run: finds the file that may hold a key without touching the metadata of the files.
//!
//! The bounds of the files often have a common prefix. The index holds the next eight bytes of each bound as a
//! big-endian integer, so integers compare as the bytes do. A search compares integers that lie next to each other in
//! memory. It compares keys only where eight bytes do not decide, or for a key without the common prefix.
//!
//! Invariant: the index was built from the files that it is used with.

use super::file::FileMeta;
use drumlin_env::sync::Arc;
use std::cmp::Ordering;

/// Bytes of a start and of an end, behind the common prefix.
#[derive(Clone, Copy, Debug)]
struct RunBounds {
    start: u64,
    /// The largest number for a file without an end.
    end: u64,
}

/// Index over the files of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunIndex {
    common: Vec<u8>,
    bounds: Vec<RunBounds>,
}

/// Returns the first eight bytes of `bytes` as a number that orders as they do, with zeros in place of missing ones.
fn number(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => bytes.iter().rev().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56),
    }
}

impl RunIndex {
    /// Creates the index of `files`, which are in key order and disjoint. A manifest may hold others. The check of the
    /// tree refuses them afterwards, so their index is never used.
    pub(super) fn new(files: &[Arc<FileMeta>]) -> RunIndex {
        let (Some(first), Some(last)) = (files.first(), files.last()) else { return RunIndex::default() };
        // All bounds lie between these two.
        let (first, last) = (&first.bounds.start, last.bounds.end.as_ref().unwrap_or(&last.bounds.start));
        let common = first.iter().zip(last.iter()).take_while(|(a, b)| a == b).count();
        let bounds = files.iter().map(|file| RunBounds {
            start: number(file.bounds.start.get(common..).unwrap_or_default()),
            end: file
                .bounds
                .end
                .as_ref()
                .map_or(u64::MAX, |end| number(end.get(common..).unwrap_or_default())),
        });
        RunIndex { common: first[..common].to_vec(), bounds: bounds.collect() }
    }

    /// Returns the one file whose bounds contain `key`.
    #[inline]
    pub(super) fn file_for<'a>(&self, files: &'a [Arc<FileMeta>], key: &[u8]) -> Option<&'a Arc<FileMeta>> {
        // An empty vector has a dangling pointer. The C library's comparison does a masked load from it, which takes a
        // hundred cycles on some processors.
        let rest = match &*self.common {
            [] => key,
            common => match key.strip_prefix(common) {
                Some(rest) => rest,
                None => return search(files, key),
            },
        };
        let number = number(rest);
        let mut after = self.bounds.partition_point(|bounds| bounds.start < number);
        let ties = self.bounds[after..].partition_point(|bounds| bounds.start == number);
        after += files[after..after + ties].partition_point(|file| *file.bounds.start <= *key);
        let at = after.checked_sub(1)?;
        let is_before_end = match number.cmp(&self.bounds[at].end) {
            Ordering::Less => true,
            Ordering::Equal => files[at].bounds.is_before_end(key),
            Ordering::Greater => false,
        };
        is_before_end.then(|| &files[at])
    }
}

/// Finds the file without an index.
#[cold]
fn search<'a>(files: &'a [Arc<FileMeta>], key: &[u8]) -> Option<&'a Arc<FileMeta>> {
    let after = files.partition_point(|file| *file.bounds.start <= *key);
    files[..after].last().filter(|file| file.bounds.is_before_end(key))
}

#[cfg(test)]
mod tests {
    use super::super::pins::{Obsolete, TableHandle};
    use super::super::state::tests::file as record;
    use super::*;
    use drumlin_types::{Key, RunId, TableId};
    use proptest::prelude::*;

    /// Files between each two neighbours of `cuts`, but for those that `gaps` leaves out, and one without an end.
    fn files(cuts: &[Vec<u8>], gaps: &[bool], is_open: bool) -> Vec<Arc<FileMeta>> {
        let queue = Arc::new(Obsolete::default());
        let meta = |at: usize, end: Option<&Vec<u8>>| {
            let id = TableId(at as u64);
            let mut record = record(id, RunId(1), 1, Key::new(&cuts[at]));
            record.end = end.map(|end| Key::new(end));
            {
                let table = TableHandle::new(id, 100, queue.clone());
                Arc::new(FileMeta::from_record(&record, table, Arc::from([])))
            }
        };
        let kept = (0..cuts.len() - 1).filter(|at| !gaps[at % gaps.len()]);
        let mut files: Vec<_> = kept.map(|at| meta(at, Some(&cuts[at + 1]))).collect();
        files.extend(is_open.then(|| meta(cuts.len() - 1, None)));
        files
    }

    proptest! {
        /// Keys of few bytes, often with long common beginnings, so that eight bytes often do not decide.
        #[test]
        fn the_index_finds_what_a_search_finds(
            prefix in prop::collection::vec(prop::sample::select(vec![0, 7, 255]), 0..12),
            cuts in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0, 1, 255]), 0..14), 2..20),
            gaps in prop::collection::vec(any::<bool>(), 1..9),
            is_open in any::<bool>(),
            keys in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![0, 1, 7, 255]), 0..24), 40),
        ) {
            let cuts: Vec<Vec<u8>> = cuts.into_iter().map(|cut| [&*prefix, &*cut].concat()).collect();
            let files = files(&cuts, &gaps, is_open);
            let index = RunIndex::new(&files);
            let around = cuts.iter().flat_map(|cut| {
                [cut.clone(), [&**cut, &[0]].concat(), cut[..cut.len().saturating_sub(1)].to_vec()]
            });
            let behind = keys.iter().map(|key| [&*prefix, &**key].concat());
            for key in around.chain(behind).chain(keys.clone()) {
                let found = index.file_for(&files, &key).map(|file| file.id());
                prop_assert_eq!(found, search(&files, &key).map(|file| file.id()), "{:?}", key);
            }
        }
    }
}
