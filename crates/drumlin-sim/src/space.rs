//! Disk space of tables while compactions replace them piece by piece.
//!
//! A table is removed when no file refers to any part of it. Bytes that a running piece has still to write count as
//! written.

use alloc::collections::BTreeMap;
use drumlin_types::TableId;
use drumlin_types::contract::TreeView;

/// Tables by their full sizes, which are recorded when the tables are new.
#[derive(Default)]
pub(super) struct Space {
    tables: BTreeMap<TableId, u64>,
    /// Largest space per byte of the tree.
    most: f64,
}

impl Space {
    /// Counts the tables of `tree`, and `running` bytes that are being written.
    pub(super) fn count(&mut self, tree: &TreeView, running: u64) {
        let mut tables: BTreeMap<TableId, u64> = BTreeMap::new();
        for (_, _, file) in tree.files() {
            let size = self.tables.get(&file.table).copied().unwrap_or(0);
            // A new table that was cut right after its creation is seen in parts.
            let parts = tables.entry(file.table).or_insert(0);
            *parts = if size > 0 { size } else { *parts + file.bytes };
        }
        let used = tables.values().sum::<u64>() + running;
        self.most = self.most.max(used as f64 / tree.bytes().max(1) as f64);
        self.tables = tables;
    }

    /// Returns the largest space so far, and resets it.
    pub(super) fn take_most(&mut self) -> f64 {
        core::mem::take(&mut self.most)
    }
}
