//! Lookups of many keys in one call.
//!
//! The keys are searched together, one level at a time. A key is done as soon as its value is known. In each level, the
//! blocks that the filters do not exclude and that are not in memory are first read in parallel. Then the keys are
//! looked up in key order, so that neighbouring keys share files and blocks. Values in value files are read in parallel
//! too, once all pointers are known.
//!
//! A sampled call stands for lookups of one key: it gives the statistics one of its keys, at a place that varies, and
//! the time per key.

use crate::base::error::Result;
use crate::base::slice::Slice;
use crate::base::snapshots::ReadPoint;
use crate::keyspace::KeyspaceState;
use crate::ops::get::{LookupOptions, MemSource, Reached, count_density, is_sampled};
use crate::read::{GetState, Source};
use crate::stats::OperationKind;
use crate::store::Store;
use crate::table::ahead;
use crate::value::WantedValue;
use crate::version::{FileMeta, Run};
use drumlin_env::sync::Arc;
use drumlin_format::filter::key_hash;
use drumlin_types::Seq;
use std::cell::{Cell, LazyCell};

/// Maximum number of blocks read in parallel for one level.
const BLOCKS_AHEAD: usize = 256;

/// Blocks read in parallel take at most one part in this many of the block cache's capacity. The lookups read the
/// remaining blocks themselves, one after another.
const CACHE_SHARE: usize = 8;

impl Store {
    /// Returns the values of `keys`, all as of `snapshot`, or all of the current state.
    pub(crate) fn multi_get(
        &self,
        keyspace: &Arc<KeyspaceState>,
        keys: &[&[u8]],
        snapshot: Option<ReadPoint>,
    ) -> Result<Vec<Option<Slice>>> {
        self.background.step_in_simulation();
        self.health.check_open()?;
        let first = self.lookups.add_gets(keys.len() as u64);
        let is_sampled =
            !keys.is_empty() && keyspace.meter.count_and_sample(OperationKind::Point, keys.len() as u64);
        if !is_sampled {
            return self.look_up_all(keyspace, keys, snapshot, first);
        }
        // The duration counts as that of `keys.len()` equal lookups.
        keyspace.meter.keep_sampled_key(OperationKind::Point, keys[place_of_sample(first, keys.len())]);
        let began = self.files.env.clock().monotonic_nanos();
        let values = self.look_up_all(keyspace, keys, snapshot, first)?;
        let nanos = self.files.env.clock().monotonic_nanos().saturating_sub(began);
        self.costs.got(nanos / keys.len() as u64);
        Ok(values)
    }

    /// Looks `keys` up. `first` is the number of the first of these lookups.
    fn look_up_all(
        &self,
        keyspace: &Arc<KeyspaceState>,
        keys: &[&[u8]],
        snapshot: Option<ReadPoint>,
        first: u64,
    ) -> Result<Vec<Option<Slice>>> {
        let (view, visible) = self.view_at(keyspace);
        // Checked after the view was loaded: a drop marks the keyspace before it empties the view.
        keyspace.check_alive()?;
        let seq = snapshot.map_or(visible, |point| point.seq);
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let wanted: Vec<Wanted<'_>> = (first..)
            .zip(&order)
            .map(|(number, &i)| Wanted {
                key: keys[i],
                hash: key_hash(keys[i], self.files.filter_seed),
                counts_files: is_sampled(number),
            })
            .collect();
        let operator = keyspace.operator.as_deref();
        let memtables = view.memtables().filter(|m| !m.is_empty());
        let memtables: Vec<MemSource<'_>> =
            memtables.map(|memtable| MemSource { memtable, operator, postponed: None }).collect();
        let levels = view.tree.levels.iter().map(|level| {
            |open: &[usize]| {
                let files: Vec<Shared<'_>> =
                    level.runs.iter().flat_map(|run| shared_files(run, &wanted, open)).collect();
                self.fetch(&files, &wanted);
                files
            }
        });
        let reached = vec![Cell::new(Reached::default()); keys.len()];
        let lookup = |(file, i): (&Arc<FileMeta>, usize), state: &mut GetState| {
            let Wanted { key, hash, counts_files } = wanted[i];
            let reached = &reached[i];
            let options = LookupOptions { counts_files, timed: None, pin: None };
            self.file_source(file, reached, options).lookup(key, hash, seq, state)
        };
        let pairs: Vec<(&[u8], u64)> = wanted.iter().map(|w| (w.key, w.hash)).collect();
        let mut states = crate::read::get_many(&pairs, seq, &memtables, levels, lookup)?;
        let from_tables = reached.iter().filter(|reached| reached.get() == Reached::Version);
        self.lookups.returned(from_tables.count() as u64);
        for ((wanted, state), reached) in wanted.iter().zip(&states).zip(&reached) {
            if wanted.counts_files && keyspace.filters_differ() {
                count_density(keyspace, wanted.key, reached.get(), state);
            }
        }
        self.read_values(&wanted, &mut states);
        let resolver = keyspace.resolver();
        // One time for all keys, so that all of them judge expiry alike.
        let time = LazyCell::new(|| self.time_of(snapshot));
        let mut values = vec![None; keys.len()];
        for (state, i) in states.into_iter().zip(order) {
            values[i] = state.finish(keys[i], &resolver, || *time)?;
        }
        Ok(values)
    }

    /// Reads the values that pointers refer to, if there are several. Ignores failures: resolving the pointers reports
    /// them.
    fn read_values(&self, wanted: &[Wanted<'_>], states: &mut [GetState]) {
        let pointers = wanted.iter().zip(&*states).enumerate().filter_map(|(index, (wanted, state))| {
            let (seq, pointer) = state.pointer()?;
            Some((index, WantedValue { key: wanted.key, seq, pointer }))
        });
        let (indexes, pointers): (Vec<usize>, Vec<WantedValue<'_>>) = pointers.unzip();
        if pointers.len() < 2 {
            return;
        }
        let values = self.files.values.read_many(&pointers);
        for (index, value) in indexes.into_iter().zip(values) {
            value.into_iter().for_each(|value| states[index].resolve(value));
        }
    }

    /// Reads the blocks that lookups of the keys in `files` need. Ignores failures: the lookups report them.
    fn fetch(&self, files: &[Shared<'_>], wanted: &[Wanted<'_>]) {
        let mut missing = Vec::new();
        let mut last = None;
        let mut room = self.files.cache.capacity() / CACHE_SHARE;
        for (file, i) in files.iter().flat_map(|(_, file, keys)| keys.iter().map(move |i| (file, *i))) {
            let Ok(table) = file.table.open(&self.files.tables) else { return };
            let skips = file.skips_filter();
            let Ok(block) = table.missing(wanted[i].key, wanted[i].hash, skips) else { continue };
            // The keys are in order, so keys that share a block are adjacent.
            if let Some(block) = block.filter(|block| last.replace(block.place()) != Some(block.place())) {
                let Some(rest) = room.checked_sub(block.bytes()) else { break };
                room = rest;
                missing.push(block);
            }
            if missing.len() == BLOCKS_AHEAD {
                break;
            }
        }
        if missing.len() > 1 {
            ahead::read(&self.files.env, &missing);
        }
    }
}

/// Returns which of the `keys` of a sampled call is recorded, if its first lookup has the number `first`. Callers may
/// list keys in an order of their own, and calls of one length begin at multiples of it, so the number is mixed.
fn place_of_sample(first: u64, keys: usize) -> usize {
    (first.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % keys
}

/// Key to look up.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    key: &'a [u8],
    hash: u64,
    counts_files: bool,
}

/// Largest sequence number of a file, the file, and the indexes of the keys that it may hold.
type Shared<'a> = (Seq, &'a Arc<FileMeta>, Vec<usize>);

/// Returns the files of `run` that may hold some of the keys `open`, which are in key order, each with its keys.
fn shared_files<'a>(run: &'a Run, wanted: &[Wanted<'_>], open: &[usize]) -> Vec<Shared<'a>> {
    let mut files: Vec<Shared<'a>> = Vec::new();
    for &i in open {
        let key = wanted[i].key;
        match files.last_mut() {
            // The keys ascend, so a key before the end of the last file is inside its bounds.
            Some((_, file, keys)) if file.bounds.is_before_end(key) => keys.push(i),
            _ => {
                if let Some(file) = run.file_for(key) {
                    files.push((file.max_seq, file, vec![i]));
                }
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::base::merge_operator::MergeOperator;
    use drumlin_env::sync::Arc;
    use drumlin_env::{Env, MemEnv};
    use std::collections::BTreeSet;

    /// Merges take 10 us each.
    struct Slow(Env);

    impl MergeOperator for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
            self.0.clock().sleep_micros(10);
            Some(Vec::new())
        }
    }

    #[test]
    fn a_sampled_call_is_timed_and_gives_one_key_of_any_place() {
        let mem = MemEnv::new(1);
        let builder = Db::builder("/s").env(mem.env()).merge_operator("k", Arc::new(Slow(mem.env())));
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let names = ["0", "1", "2", "3", "4"];
        for name in names {
            keys.merge(name, "operand").expect("merge");
        }
        let none: [&str; 0] = [];
        assert_eq!(keys.multi_get(none).expect("no keys").len(), 0);
        for _ in 0..8000 {
            assert_eq!(keys.multi_get(names).expect("several keys").len(), 5);
        }
        let costs = keys.store.costs.view();
        assert_eq!(costs.get_ns, 10_000.0, "the time of each key");
        let sampled: BTreeSet<_> = keys.state.meter.sample().wanted.into_iter().collect();
        assert_eq!(sampled.len(), names.len(), "{sampled:?}");
    }
}
