//! Durability of writes, as a command line names it.

use clap::ValueEnum;

/// Durability of a write.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// Lost if the process ends before the memtable is flushed
    None,
    /// Survives a crash of the process, but not power loss
    Buffered,
    /// Synced to disk; survives power loss
    Sync,
}
