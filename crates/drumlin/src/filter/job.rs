//! The filters of one job: a flush or a piece (subcompaction).
//!
//! For each table that the job finishes, [`JobFilters`] estimates the lookups that the table takes over from the
//! inputs, asks the budget for bits, and reports the filter as built. The job counts as running until its outputs are
//! installed or dropped.

use super::budget::{Basis, FilterBudget, Granted, LeavingPart, MergeScope, Work};
use super::lineage::{Lineage, MergedPart};
use crate::keyspace::KeyspaceState;
use crate::options::{Adaptation, FilterMode};
use crate::table::TableCache;
use crate::version::FileMeta;
use drumlin_env::sync::Arc;
use drumlin_format::filter::Method;
use drumlin_format::table::FilterDescriptor;
use drumlin_policy::filter::allot::{BitsRule, Ledger};
use drumlin_policy::filter::density::Density;
use drumlin_policy::filter::inherit::shares;
use drumlin_policy::filter::method::Outlook;
use drumlin_types::contract::{LevelDesign, LookupStats};
use drumlin_types::{Key, KeyRange};
use std::fmt::Write as _;

/// Upper bound on the expected number of outputs of a job. With more, each is a negligible part of all tables.
const MOST_TABLES: u64 = 1024;

/// What a job merges.
pub(crate) enum MergedInputs {
    /// Memtables with this number of entries.
    Memtables(u64),
    /// Parts of files.
    Parts(Vec<MergedPart>, MergeScope),
}

/// Where the outputs of a job go.
pub(crate) struct OutputTarget {
    /// Level of the outputs.
    pub(crate) level: u8,
    /// Size at which a table is cut, in bytes.
    pub(crate) file_bytes: u64,
    /// Target shape of the levels that the compaction policy designs.
    pub(crate) design: Vec<LevelDesign>,
    /// Mean time of a block that a lookup searches in vain, in ns; 0 if unknown.
    pub(crate) block_ns: f64,
}

/// Filter of a finished table.
struct BuiltFilter {
    keys: f64,
    /// Bits per key, as built.
    bits: f64,
    rule: BitsRule,
    is_ribbon: bool,
}

/// Filters of a job.
pub(crate) struct JobFilters {
    budget: Arc<FilterBudget>,
    keyspace: Arc<KeyspaceState>,
    number: u64,
    /// Level of the outputs.
    level: u8,
    inputs: MergedInputs,
    /// Number of entries of the inputs.
    entries: u64,
    /// Lookups of each part when the job began.
    lookups: Vec<LookupStats>,
    /// Density of the keyspace's lookups when the job began.
    density: Density,
    outputs: Vec<BuiltFilter>,
    basis: Option<Basis>,
    /// Lives of the inputs that this job merges to their end: the level of each, and the number of lookups that it
    /// lived for.
    deaths: Vec<(u8, u64)>,
    is_done: bool,
}

impl JobFilters {
    /// Registers a job.
    pub(crate) fn begin(
        budget: &Arc<FilterBudget>,
        keyspace: &Arc<KeyspaceState>,
        inputs: MergedInputs,
        destination: OutputTarget,
    ) -> JobFilters {
        let density = keyspace.density.density();
        let passed = keyspace.density.passed() as f64;
        let entries = match &inputs {
            MergedInputs::Memtables(entries) => *entries,
            MergedInputs::Parts(parts, _) => parts.iter().map(|part| part.entries).sum(),
        };
        let level = destination.level;
        let (lookups, work) = match &inputs {
            MergedInputs::Memtables(_) => (Vec::new(), flush(keyspace, entries as f64, passed, destination)),
            MergedInputs::Parts(parts, merged) => {
                let lookups = match FilterBudget::counts_lookups(keyspace) {
                    true => lookups_of(parts, &density),
                    false => Vec::new(),
                };
                let empty = Lineage::empty_of_all(parts, &lookups, &density);
                let work = piece(keyspace, parts, *merged, empty, destination);
                (lookups, work)
            }
        };
        JobFilters {
            number: budget.begin(work),
            level,
            budget: budget.clone(),
            keyspace: keyspace.clone(),
            inputs,
            entries,
            lookups,
            density,
            outputs: Vec::new(),
            basis: None,
            deaths: Vec::new(),
            is_done: false,
        }
    }

    /// Returns the filter for a table with `keys` distinct keys between `start` and `end`. The job has read `read`
    /// entries of its inputs.
    pub(crate) fn allot(
        &mut self,
        tables: &TableCache,
        keys: u64,
        start: &Key,
        end: Option<&[u8]>,
        read: u64,
    ) -> Granted {
        let range = KeyRange::new(start.clone(), end.map(Key::new));
        let empty = match &self.inputs {
            _ if !FilterBudget::counts_lookups(&self.keyspace) => 0.0,
            MergedInputs::Memtables(_) => {
                let share = self.density.shares(std::slice::from_ref(&range));
                self.keyspace.density.passed() as f64 * share.first().copied().unwrap_or(1.0)
            }
            MergedInputs::Parts(parts, _) => {
                Lineage::empty_in(&range, parts, &self.lookups, tables, &self.density)
            }
        };
        let progress = (read as f64 / self.entries.max(1) as f64).min(1.0);
        let granted = self.budget.allot(self.number, keys as f64, empty, progress);
        self.basis = Some(granted.basis.with(keys as f64 * granted.allotment.bits));
        granted
    }

    /// Notes the filter of a table as it was built, from what was `granted`.
    pub(crate) fn built(&mut self, keys: u64, filter: &FilterDescriptor, granted: &Granted) {
        let (keys, bits) = (keys as f64, filter.bits_per_key());
        let is_ribbon = filter.method() == Some(Method::Ribbon);
        self.outputs.push(BuiltFilter { keys, bits, rule: granted.allotment.rule, is_ribbon });
        self.budget.built(self.number, keys, bits);
    }

    /// Notes that all outputs were built. Returns their lineage, and the parts that were merged.
    pub(crate) fn finish(
        &mut self,
        tables: &TableCache,
        outputs: &[Arc<FileMeta>],
    ) -> (Lineage, Vec<MergedPart>) {
        self.is_done = true;
        self.budget.done(self.number);
        self.note_lives(outputs);
        match std::mem::replace(&mut self.inputs, MergedInputs::Memtables(0)) {
            MergedInputs::Memtables(_) => (Lineage::default(), Vec::new()),
            MergedInputs::Parts(parts, _) => {
                let lineage = Lineage::of(&parts, tables, outputs, &self.keyspace.density.density());
                (lineage, parts)
            }
        }
    }

    /// Starts the lives of the outputs. Computes those of the inputs, which end when the outputs are installed.
    fn note_lives(&mut self, outputs: &[Arc<FileMeta>]) {
        let now = self.keyspace.density.all();
        outputs.iter().for_each(|file| file.access.born(now));
        let MergedInputs::Parts(parts, _) = &self.inputs else { return };
        // A file that is merged part by part counts once, with its last part.
        let whole = parts.iter().filter(|part| part.entries == part.file.counts.entries);
        // Of the life of a table from before the open, only a lower bound is known. It counts if no mean is known, or
        // if it is not below the mean.
        let counts =
            |level: u8, life: u64| self.keyspace.lives.of(level).is_none_or(|mean| life as f64 >= mean);
        self.deaths = whole
            .filter_map(|part| {
                let (life, is_whole) = part.file.access.life(now);
                (is_whole || counts(part.level, life)).then_some((part.level, life))
            })
            .collect();
    }

    /// Notes that the outputs are installed, so that the inputs are merged away.
    pub(crate) fn installed(&mut self) {
        let is_frozen = self.keyspace.options.load().adaptation == Adaptation::Frozen;
        if FilterBudget::counts_lookups(&self.keyspace) && !is_frozen {
            self.keyspace.lives.note(&std::mem::take(&mut self.deaths));
        }
        self.end();
    }

    /// Removes the job from the budget: its outputs are durable, or are dropped.
    pub(crate) fn end(&self) {
        self.budget.end(self.number, self.is_done);
    }

    /// Returns an explanation of the outputs' bits for the decision log. Returns `None` if all tables have equal bits,
    /// or if the last explained job of this level gave about as many.
    pub(crate) fn explain(&self) -> Option<(String, String)> {
        let basis =
            self.basis.filter(|basis| basis.mode != FilterMode::Uniform && !self.outputs.is_empty())?;
        let keys: f64 = self.outputs.iter().map(|filter| filter.keys).sum();
        let bits: f64 = self.outputs.iter().map(|filter| filter.keys * filter.bits).sum();
        let ribbon = self.outputs.iter().filter(|filter| filter.is_ribbon).count();
        if !self.budget.is_news(self.keyspace.id, self.level, bits / keys.max(1.0), ribbon > 0) {
            return None;
        }
        let plural = if self.outputs.len() == 1 { "" } else { "s" };
        let what = format!(
            "filters of {} table{plural}: {:.1} bits per key",
            self.outputs.len(),
            bits / keys.max(1.0)
        );
        let mut why = String::new();
        for rule in [
            BitsRule::Price,
            BitsRule::Most,
            BitsRule::OneBit,
            BitsRule::Worthless,
            BitsRule::Ceiling,
            BitsRule::NoPrice,
            BitsRule::Mode,
        ] {
            let count = self.outputs.iter().filter(|filter| filter.rule == rule).count();
            if count > 0 {
                _ = write!(why, "{}{count} by {rule}", if why.is_empty() { "" } else { ", " });
            }
        }
        if ribbon > 0 {
            _ = write!(why, ", {ribbon} as Ribbon filter");
        }
        let Ledger { keys, .. } = basis.ledger;
        _ = write!(
            why,
            "; {}: all tables have {:.2} bits per key",
            basis.mode.name(),
            basis.ledger.average()
        );
        _ = write!(why, ", budget {:.2}, {keys:.0} keys", basis.budget.average);
        if let Some(price) = basis.price {
            _ = write!(
                why,
                ", one more bit of filters avoids {:.3e} block reads in recent lookups",
                price.blocks_per_bit()
            );
        }
        if let Some(Outlook { keys, life, vain, block_ns, .. }) = basis.outlook {
            _ = write!(
                why,
                "; a table of {keys:.0} keys lives for {life:.0} lookups, {:.0} of them in vain",
                life * vain
            );
            _ = write!(why, ", a block takes {block_ns:.0} ns");
        }
        Some((what, why))
    }
}

impl Drop for JobFilters {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the work of a flush.
fn flush(keyspace: &Arc<KeyspaceState>, entries: f64, passed: f64, to: OutputTarget) -> Work {
    Work {
        keyspace: keyspace.clone(),
        level: to.level,
        parts: Vec::new(),
        keys_in: entries,
        merged: None,
        tables: 1.0,
        empty: passed,
        hull: KeyRange::all(),
        design: to.design,
        block_ns: to.block_ns,
    }
}

/// Returns the work of a piece.
fn piece(
    keyspace: &Arc<KeyspaceState>,
    parts: &[MergedPart],
    merged: MergeScope,
    empty: f64,
    to: OutputTarget,
) -> Work {
    let hull = parts.iter().map(|part| part.range.clone()).reduce(|a, b| a.hull(&b));
    let bytes: u64 = parts.iter().map(|part| part.file.counts.part(part.entries).bytes).sum();
    let leaving: Vec<LeavingPart> = parts.iter().map(leaving).collect();
    Work {
        keyspace: keyspace.clone(),
        level: to.level,
        keys_in: leaving.iter().map(|part| part.keys).sum(),
        merged: Some(merged),
        tables: bytes.div_ceil(to.file_bytes.max(1)).clamp(1, MOST_TABLES) as f64,
        empty,
        hull: hull.unwrap_or_else(KeyRange::all),
        parts: leaving,
        design: to.design,
        block_ns: to.block_ns,
    }
}

fn leaving(part: &MergedPart) -> LeavingPart {
    let counts = &part.file.counts;
    let keys = counts.part(part.entries).keys as f64;
    LeavingPart {
        table: part.file.id(),
        start: part.range.start.clone(),
        keys,
        bits: keys * f64::from(part.file.filter_bits),
    }
}

/// Returns the current lookups of each part: its share of the lookups of its file.
fn lookups_of(parts: &[MergedPart], density: &Density) -> Vec<LookupStats> {
    let of_part = |part: &MergedPart| {
        let rest = part.file.counts.entries.saturating_sub(part.entries);
        let sizes = [(&part.range, part.entries), (&part.file.bounds, rest)];
        part.file.lookups().part(shares(sizes, density)[0])
    };
    parts.iter().map(of_part).collect()
}
