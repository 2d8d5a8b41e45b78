//! Estimates of how much a keyspace or a range holds, without reading it.
//!
//! Entries come from counts that the tree keeps, bytes from the indexes of tables. Both count versions that are hidden
//! by newer ones and not yet compacted away. Each tombstone in a table subtracts the key that it probably hides.

use crate::base::error::Result;
use crate::keyspace::KeyspaceState;
use crate::store::Store;
use drumlin_types::KeyRange;

impl Store {
    /// Estimates the number of live keys of `keyspace`.
    pub(crate) fn approximate_len(&self, keyspace: &KeyspaceState) -> Result<u64> {
        self.health.check_open()?;
        let view = keyspace.view();
        keyspace.check_alive()?;
        let in_files: u64 = view
            .tree
            .files()
            .map(|(_, _, file)| file.counts.keys.saturating_sub(file.counts.tombstones.saturating_mul(2)))
            .sum();
        let in_memory: u64 = view.memtables().map(|memtable| memtable.entries() as u64).sum();
        Ok(in_files + in_memory)
    }

    /// Estimates the bytes on disk of the tables that hold keys of `range`. Memtables do not count.
    pub(crate) fn approximate_size(&self, keyspace: &KeyspaceState, range: &KeyRange) -> Result<u64> {
        self.health.check_open()?;
        let view = keyspace.view();
        keyspace.check_alive()?;
        let mut bytes = 0;
        for (_, _, file) in view.tree.files().filter(|(_, _, file)| file.bounds.overlaps(range)) {
            bytes += match file.bounds.intersect(range) {
                Some(part) if part == file.bounds => file.counts.bytes,
                Some(part) => file.table.open(&self.files.tables)?.approximate_bytes(&part)?,
                None => 0,
            };
        }
        Ok(bytes)
    }
}
