//! Which tables a lookup probes, for tests and experiments that check the lookup statistics.

use crate::base::error::Result;
use crate::keyspace::KeyspaceState;
use crate::ops::get::{FileSource, LookupOptions, MemSource, Reached};
use crate::read::{GetState, Source};
use crate::stats::LookupCounts;
use crate::store::Store;
use drumlin_format::filter::key_hash;
use drumlin_types::Seq;
use std::cell::{Cell, RefCell};

/// A table that a lookup probes: a file reference of the tree whose bounds contain the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedTable {
    /// Number of the table.
    pub table: u64,
    /// First key of the bounds. With the number it identifies the reference.
    pub first: Vec<u8>,
    /// Whether the table holds a version of the key.
    pub is_found: bool,
}

/// A file that notes each probe.
struct NotedSource<'a> {
    file: FileSource<'a>,
    probed: &'a RefCell<Vec<ProbedTable>>,
}

impl Source for NotedSource<'_> {
    fn max_seq(&self) -> Seq {
        self.file.max_seq()
    }

    fn lookup(&self, key: &[u8], hash: u64, snapshot: Seq, state: &mut GetState) -> Result<()> {
        self.file.reached.set(Reached::Memtables);
        self.file.lookup(key, hash, snapshot, state)?;
        let meta = self.file.file;
        let is_found = self.file.reached.get() == Reached::Version;
        let first = meta.bounds.start.to_vec();
        self.probed.borrow_mut().push(ProbedTable { table: meta.id().0, first, is_found });
        Ok(())
    }
}

impl Store {
    /// Returns the tables that a lookup of `key` probes, in the order of the lookup. No statistic counts it.
    pub(crate) fn probed_tables(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Vec<ProbedTable>> {
        self.health.check_open()?;
        keyspace.check_alive()?;
        let (view, visible) = self.view_at(keyspace);
        let (counts, reached, probed) = (LookupCounts::default(), Cell::default(), RefCell::default());
        let options = LookupOptions { counts_files: false, timed: None, pin: None };
        let memtables = view.memtables().filter(|memtable| !memtable.is_empty());
        let operator = keyspace.operator.as_deref();
        let memtables = memtables.map(|memtable| MemSource { memtable, operator, postponed: None });
        let levels = view.tree.levels.iter().map(|level| {
            level.runs.iter().filter_map(|run| run.file_for(key)).map(|file| {
                let tables = &self.files.tables;
                let file = FileSource { file, tables, counts: &counts, reached: &reached, options };
                NotedSource { file, probed: &probed }
            })
        });
        crate::read::get(key, key_hash(key, self.files.filter_seed), visible, memtables, levels)?;
        Ok(probed.into_inner())
    }
}
