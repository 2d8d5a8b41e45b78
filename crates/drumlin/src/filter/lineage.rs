//! The lookups that the outputs of a piece (subcompaction) take over from its inputs.
//!
//! The shares are found when the piece ends, before any lock is taken, since they need the index of each input. They
//! are applied when the outputs are installed, to the counts of that moment (`drumlin_policy::filter::inherit`).
//!
//! Statistics are advice: where an index cannot be read, entries are taken to lie evenly.

use crate::table::TableCache;
use crate::version::FileMeta;
use drumlin_env::sync::Arc;
use drumlin_policy::filter::density::Density;
use drumlin_policy::filter::inherit::{self, Inherited, InputPart};
use drumlin_policy::share::share;
use drumlin_types::contract::LookupStats;
use drumlin_types::{Key, KeyRange};

/// Largest number of parts whose indexes are searched. With more parts, which may not all be open at once, entries are
/// taken to lie evenly between the bounds of a part.
const MOST_SEARCHED: usize = 16;

/// Part of a file that a piece merges.
pub(crate) struct MergedPart {
    /// Level of the file.
    pub(crate) level: u8,
    pub(crate) file: Arc<FileMeta>,
    /// Keys of the part.
    pub(crate) range: KeyRange,
    /// Number of entries in it.
    pub(crate) entries: u64,
}

impl MergedPart {
    /// Returns the number of entries of the table below `key`, by its index; `None` stands for all.
    fn searched_rank(&self, tables: &TableCache, key: Option<&[u8]>) -> f64 {
        let Some(key) = key else { return self.file.table_entries as f64 + 1.0 };
        let rank = self.file.table.open(tables).and_then(|table| table.rank_by_index(key));
        // The index counts whole blocks. Inside a block, entries lie evenly.
        let inside = self.even_rank(Some(key)) / (self.entries as f64).max(1.0);
        rank.map_or_else(|_| self.even_rank(Some(key)), |rank| rank as f64 + inside)
    }

    /// Returns the number of entries of the part below `key`, as if they lay evenly; `None` stands for all.
    fn even_rank(&self, key: Option<&[u8]>) -> f64 {
        let below = match key {
            Some(key) if *key <= *self.range.start => 0.0,
            Some(key) => share(&self.range, &KeyRange::new(self.range.start.clone(), Some(key.into()))),
            None => 1.0,
        };
        self.entries as f64 * below
    }
}

/// What each output of a piece takes over from each of its parts.
#[derive(Default)]
pub(crate) struct Lineage(Vec<Vec<Inherited>>);

impl Lineage {
    /// Returns the lineage of `outputs`, which are in key order. Without lookups in the keyspace there is nothing to
    /// take over.
    pub(crate) fn of(
        parts: &[MergedPart],
        tables: &TableCache,
        outputs: &[Arc<FileMeta>],
        density: &Density,
    ) -> Lineage {
        let is_read = |part: &MergedPart| part.file.lookups() != LookupStats::default();
        let is_looked_at = density.lookups.iter().any(|lookups| *lookups > 0.0);
        if !is_looked_at && !parts.iter().any(is_read) {
            return Lineage::default();
        }
        let bounds: Vec<KeyRange> = outputs.iter().map(|file| file.bounds.clone()).collect();
        let parts: Vec<&MergedPart> = parts.iter().collect();
        Lineage(taken(&parts, rank_of(parts.len(), tables), &bounds, density))
    }

    /// Estimates the lookups that an output on the keys of `range` will let pass in vain. `lookups` has those of each
    /// part.
    pub(crate) fn empty_in(
        range: &KeyRange,
        parts: &[MergedPart],
        lookups: &[LookupStats],
        tables: &TableCache,
        density: &Density,
    ) -> f64 {
        if lookups.iter().all(|lookups| lookups.empty <= 0.0) {
            return 0.0;
        }
        // Keys before and after the range go to other outputs.
        let before = KeyRange::new(Key::empty(), Some(range.start.clone()));
        let after = range.end.clone().map(|end| KeyRange::new(end, None));
        let outputs: Vec<KeyRange> =
            [Some(before), Some(range.clone()), after].into_iter().flatten().collect();
        let is_near = |part: &MergedPart| part.range.overlaps(range);
        let near: Vec<(&MergedPart, LookupStats)> = parts
            .iter()
            .zip(lookups)
            .filter(|(part, _)| is_near(part))
            .map(|(part, own)| (part, *own))
            .collect();
        let (near, lookups): (Vec<&MergedPart>, Vec<LookupStats>) = near.into_iter().unzip();
        let taken = taken(&near, rank_of(near.len(), tables), &outputs, density);
        inherit::total(&taken[1], &lookups, 0.0, 0.0).empty
    }

    /// Estimates the lookups that the outputs of all `parts` together will let pass in vain. Searches no index.
    pub(crate) fn empty_of_all(parts: &[MergedPart], lookups: &[LookupStats], density: &Density) -> f64 {
        if lookups.iter().all(|lookups| lookups.empty <= 0.0) {
            return 0.0;
        }
        let parts: Vec<&MergedPart> = parts.iter().collect();
        let taken = taken(&parts, MergedPart::even_rank, &[KeyRange::all()], density);
        inherit::total(&taken[0], lookups, 0.0, 0.0).empty
    }

    /// Returns the lookups that output `number` takes over. `parts` has the present lookups of each part, `between` is
    /// the number of lookups that runs between the inputs answer on its keys, and `dropped` is the share of the inputs'
    /// tombstones that the piece has dropped.
    pub(crate) fn total(
        &self,
        number: usize,
        parts: &[LookupStats],
        between: f64,
        dropped: f64,
    ) -> LookupStats {
        let taken = self.0.get(number).map_or(&[][..], |taken| taken);
        inherit::total(taken, parts, between, dropped)
    }
}

/// Returns how entries below a key are counted in each of `parts` parts: by the indexes, if the parts are few.
fn rank_of(parts: usize, tables: &TableCache) -> impl Fn(&MergedPart, Option<&[u8]>) -> f64 {
    let is_searched = parts <= MOST_SEARCHED;
    move |part, key| if is_searched { part.searched_rank(tables, key) } else { part.even_rank(key) }
}

/// Returns what each output takes over from each part.
fn taken(
    parts: &[&MergedPart],
    rank: impl Fn(&MergedPart, Option<&[u8]>) -> f64,
    outputs: &[KeyRange],
    density: &Density,
) -> Vec<Vec<Inherited>> {
    let rank = &rank;
    let ranks: Vec<_> = parts.iter().map(|&part| move |key: Option<&[u8]>| rank(part, key)).collect();
    let parts = parts.iter().zip(&ranks).map(|(part, rank)| InputPart {
        range: part.range.clone(),
        level: part.level,
        max_seq: part.file.max_seq,
        rank,
    });
    inherit::taken(&parts.collect::<Vec<_>>(), outputs, density)
}
