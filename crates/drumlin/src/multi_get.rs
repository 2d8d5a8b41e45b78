//! Looking up many keys at once.
//!
//! The keys go down the tree together, one level at a time, and each leaves as soon as it is decided. In a level the
//! blocks that the lookups will want, by the filters, and that are not in memory are read side by side first; then the
//! keys are looked up in order, so that neighbours share files and blocks.

use crate::error::Result;
use crate::keyspace::KeyspaceState;
use crate::lookup::{MemSource, is_sampled};
use crate::read::{GetState, Resolver, Source};
use crate::slice::Slice;
use crate::stats::Kind;
use crate::store::Store;
use crate::table::ahead;
use crate::version::{FileMeta, Run};
use drumlin_env::sync::Arc;
use drumlin_format::filter::key_hash;
use drumlin_types::Seq;
use std::cell::{Cell, OnceCell};

/// Most blocks read side by side for one level.
const BLOCKS_AHEAD: usize = 256;

/// What they may take of memory until they are used: of the block cache one part in so many. The rest is read by the
/// lookups, one block after the other.
const CACHE_SHARE: usize = 8;

impl Store {
    /// The values of `keys`, all as of one moment.
    pub(crate) fn multi_get(
        &self,
        keyspace: &Arc<KeyspaceState>,
        keys: &[&[u8]],
        snapshot: Option<Seq>,
    ) -> Result<Vec<Option<Slice>>> {
        self.background.interleave();
        self.check_open()?;
        keyspace.check_alive()?;
        let first = self.lookups.gets(keys.len() as u64);
        if let Some(key) = keys.first().filter(|_| keyspace.meter.counts(Kind::Point, keys.len() as u64)) {
            keyspace.meter.wants(Kind::Point, key);
        }
        let (view, visible) = self.view_at(keyspace);
        let seq = snapshot.unwrap_or(visible);
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let wanted: Vec<Wanted<'_>> = (first..)
            .zip(&order)
            .map(|(number, &i)| Wanted {
                key: keys[i],
                hash: key_hash(keys[i], self.filter_seed),
                sampled: is_sampled(number),
            })
            .collect();
        let memtables: Vec<MemSource<'_>> =
            view.memtables().filter(|m| !m.is_empty()).map(MemSource).collect();
        let levels = view.tree.levels.iter().map(|level| {
            |open: &[usize]| {
                let files: Vec<Shared<'_>> =
                    level.runs.iter().flat_map(|run| shared_files(run, &wanted, open)).collect();
                self.fetch(&files, &wanted);
                files
            }
        });
        let reached = vec![Cell::new(false); keys.len()];
        let lookup = |(file, i): (&Arc<FileMeta>, usize), state: &mut GetState| {
            let Wanted { key, hash, sampled } = wanted[i];
            let reached = &reached[i];
            self.file_source(file, reached, (sampled, None)).lookup(key, hash, seq, state)
        };
        let pairs: Vec<(&[u8], u64)> = wanted.iter().map(|w| (w.key, w.hash)).collect();
        let states = crate::read::get_many(&pairs, seq, &memtables, levels, lookup)?;
        self.lookups.returned(reached.iter().filter(|reached| reached.get()).count() as u64);
        let resolver =
            Resolver { keyspace: &keyspace.name, operator: keyspace.operator.as_deref(), pointers: None };
        // All as of one moment: what ends then ends for all of them.
        let now = OnceCell::new();
        let mut values = vec![None; keys.len()];
        for (state, i) in states.into_iter().zip(order) {
            values[i] = state.finish(keys[i], &resolver, || *now.get_or_init(|| self.unix_micros()))?;
        }
        Ok(values)
    }

    /// Reads the blocks that lookups of the keys in `files` will want. A failure is left for the lookups to find.
    fn fetch(&self, files: &[Shared<'_>], wanted: &[Wanted<'_>]) {
        let mut missing = Vec::new();
        let mut last = None;
        let mut room = self.cache.capacity() / CACHE_SHARE;
        for (file, i) in files.iter().flat_map(|(_, file, keys)| keys.iter().map(move |i| (file, *i))) {
            let Ok(table) = file.table.open(&self.tables) else { return };
            let Ok(block) = table.missing(wanted[i].key, wanted[i].hash) else { continue };
            // Keys come in order, so that a block that is wanted twice is wanted twice in a row.
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
            ahead::read(&self.env, &missing);
        }
    }
}

/// A key that a lookup of several wants.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    key: &'a [u8],
    hash: u64,
    sampled: bool,
}

/// A file with its largest sequence number, and the keys that it may hold.
type Shared<'a> = (Seq, &'a Arc<FileMeta>, Vec<usize>);

/// The files of `run` that hold some of the keys `open`, which are in key order, each with those of them.
fn shared_files<'a>(run: &'a Run, wanted: &[Wanted<'_>], open: &[usize]) -> Vec<Shared<'a>> {
    let mut files: Vec<Shared<'a>> = Vec::new();
    for &i in open {
        let key = wanted[i].key;
        match files.last_mut() {
            // Keys rise: what is before the end of the last file is in it.
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
