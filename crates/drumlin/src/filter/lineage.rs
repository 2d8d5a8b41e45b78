//! Lineage: the lookup statistics that the outputs of a piece (subcompaction) take over from its inputs.
//!
//! The shares are found when the piece ends, before any lock is taken, since they need the index of each input. They
//! are applied when the outputs are installed, to the counts of that moment (`drumlin_policy::filter::inherit`).
//!
//! Statistics are advisory: if an index cannot be read, entries are assumed to be evenly spread.

use crate::table::{Table, TableCache};
use crate::version::FileMeta;
use drumlin_env::sync::Arc;
use drumlin_policy::filter::density::Density;
use drumlin_policy::filter::inherit::{self, Inherited, InputPart};
use drumlin_policy::share::KeyScale;
use drumlin_types::contract::LookupStats;
use drumlin_types::{Key, KeyRange};

/// Largest number of parts whose indexes are searched. With more parts, which may not all be open at once, entries are
/// assumed to be evenly spread between the bounds of a part.
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

/// A part with what is needed to count its entries below many keys.
struct RankedPart<'a> {
    part: &'a MergedPart,
    scale: KeyScale,
    /// The table, if its index is searched.
    table: Option<Arc<Table>>,
}

impl<'a> RankedPart<'a> {
    /// Opens the table of `part` if `tables` are given.
    fn of(part: &'a MergedPart, tables: Option<&TableCache>) -> RankedPart<'a> {
        let table = tables.and_then(|tables| part.file.table.open(tables).ok());
        RankedPart { part, scale: KeyScale::of(&part.range), table }
    }

    /// Returns the number of entries below `key`, or of all entries for `None`. Counts the entries of the whole table
    /// if its index is searched, and those of the part otherwise.
    fn rank(&self, key: Option<&[u8]>) -> f64 {
        let searched = self.table.as_ref();
        let Some(key) = key else {
            return searched.map_or(self.part.entries as f64, |_| self.part.file.table_entries as f64 + 1.0);
        };
        let below = if *key <= *self.part.range.start { 0.0 } else { self.scale.below(key) };
        // The index counts whole blocks. Inside a block, the fraction `below` orders the keys.
        let rank = searched.and_then(|table| table.rank_by_index(key).ok());
        rank.map_or_else(|| self.part.entries as f64 * below, |rank| rank as f64 + below)
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
        Lineage(taken(&parts, searched(parts.len(), tables), &bounds, density))
    }

    /// Estimates the vain lookups of an output on the keys of `range`. `lookups` holds the lookups of each part.
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
        let taken = taken(&near, searched(near.len(), tables), &outputs, density);
        inherit::total(&taken[1], &lookups, 0.0, 0.0).empty
    }

    /// Estimates the vain lookups of the outputs of all `parts` together. Searches no index.
    pub(crate) fn empty_of_all(parts: &[MergedPart], lookups: &[LookupStats], density: &Density) -> f64 {
        if lookups.iter().all(|lookups| lookups.empty <= 0.0) {
            return 0.0;
        }
        let parts: Vec<&MergedPart> = parts.iter().collect();
        let taken = taken(&parts, None, &[KeyRange::all()], density);
        inherit::total(&taken[0], lookups, 0.0, 0.0).empty
    }

    /// Returns the lookups that output `number` takes over. `parts` holds the current lookups of each part. `between`
    /// is the number of lookups on its keys that are answered by runs which lookups reach between the inputs. `dropped`
    /// is the share of the inputs' tombstones that the piece has dropped.
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

/// Returns the tables whose indexes are searched for `parts` parts: all, if the parts are few.
fn searched(parts: usize, tables: &TableCache) -> Option<&TableCache> {
    (parts <= MOST_SEARCHED).then_some(tables)
}

/// Returns what each output takes over from each part. Searches the indexes of `tables`, if there are any.
fn taken(
    parts: &[&MergedPart],
    tables: Option<&TableCache>,
    outputs: &[KeyRange],
    density: &Density,
) -> Vec<Vec<Inherited>> {
    let ranked: Vec<RankedPart<'_>> = parts.iter().map(|part| RankedPart::of(part, tables)).collect();
    let ranks: Vec<_> = ranked.iter().map(|part| move |key: Option<&[u8]>| part.rank(key)).collect();
    let parts = parts.iter().zip(&ranks).map(|(part, rank)| InputPart {
        range: part.range.clone(),
        level: part.level,
        max_seq: part.file.max_seq,
        rank,
    });
    inherit::taken(&parts.collect::<Vec<_>>(), outputs, density)
}
