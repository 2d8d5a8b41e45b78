//! Metrics of one keyspace, and the counters behind them.

use super::latency::{Latencies, LatencyHistogram};
use super::metrics::MergeCounts;
use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters and gauges of one keyspace at one time. [`Keyspace::metrics`](crate::Keyspace::metrics) returns them.
///
/// Counters start at 0 when the store is opened. Fields that begin with *Gauge* are values of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceMetrics {
    /// Point lookups. Like `scans` and `writes`, the number lags by up to 127 operations for each thread that uses one
    /// keyspace alone. For threads that alternate between keyspaces, and for those that end after a few operations, it
    /// is an estimate from samples, which may be too high.
    pub gets: u64,
    /// Iterators created, and seeks of cursors.
    pub scans: u64,
    /// Operations written: puts, deletes, range deletes and merges. A batch over several keyspaces is estimated from
    /// samples.
    pub writes: u64,
    /// Latencies of sampled calls of `get`.
    pub get_latency: LatencyHistogram,
    /// Latencies of the first step of sampled iterators, and of sampled seeks of cursors.
    pub scan_latency: LatencyHistogram,
    /// Latencies of sampled writes that succeeded, with all waits and syncs. A batch over several keyspaces counts in
    /// each.
    pub write_latency: LatencyHistogram,
    /// Microseconds that writes were stopped or slowed, failed ones included. A batch over several keyspaces counts in
    /// the first.
    pub stall_micros: u64,
    /// Flushes installed.
    pub flushes: u64,
    /// Bytes of tables written by flushes.
    pub flush_bytes_written: u64,
    /// Subcompactions installed.
    pub compactions: u64,
    /// Bytes of tables read by compactions.
    pub compaction_bytes_read: u64,
    /// Bytes of tables written by compactions.
    pub compaction_bytes_written: u64,
    /// Trivial moves.
    pub moves: u64,
    /// Entries that flushes and compactions dropped as hidden or deleted, or merged into another entry.
    pub entries_dropped: u64,
    /// Gauge: bytes in memtables.
    pub memtable_bytes: u64,
    /// Gauge: immutable memtables that wait for their flush.
    pub sealed_memtables: u64,
    /// Gauge: bytes of tables in the current tree.
    pub table_bytes: u64,
    /// Gauge: table files in the current tree.
    pub files: u64,
    /// Gauge: runs in the current tree.
    pub runs: u64,
    /// Gauge: bytes of the filters of its tables.
    pub filter_bytes: u64,
}

/// Counters of a keyspace since open.
#[derive(Default)]
pub(crate) struct Activity {
    pub(crate) get_latency: Latencies,
    pub(crate) scan_latency: Latencies,
    pub(crate) write_latency: Latencies,
    flushes: AtomicU64,
    flush_bytes_written: AtomicU64,
    compactions: AtomicU64,
    compaction_bytes_read: AtomicU64,
    compaction_bytes_written: AtomicU64,
    moves: AtomicU64,
    entries_dropped: AtomicU64,
}

impl Activity {
    pub(crate) fn flushed(&self, counts: &MergeCounts, bytes: u64) {
        self.flushes.fetch_add(1, Relaxed);
        self.flush_bytes_written.fetch_add(bytes, Relaxed);
        self.entries_dropped.fetch_add(counts.dropped(), Relaxed);
    }

    pub(crate) fn compacted(&self, counts: &MergeCounts, bytes_in: u64, bytes_out: u64) {
        self.compactions.fetch_add(1, Relaxed);
        self.compaction_bytes_read.fetch_add(bytes_in, Relaxed);
        self.compaction_bytes_written.fetch_add(bytes_out, Relaxed);
        self.entries_dropped.fetch_add(counts.dropped(), Relaxed);
    }

    pub(crate) fn moved(&self) {
        self.moves.fetch_add(1, Relaxed);
    }

    /// Reads all counters. The caller fills in the load and the gauges.
    pub(crate) fn read(&self) -> KeyspaceMetrics {
        KeyspaceMetrics {
            get_latency: self.get_latency.read(),
            scan_latency: self.scan_latency.read(),
            write_latency: self.write_latency.read(),
            flushes: self.flushes.load(Relaxed),
            flush_bytes_written: self.flush_bytes_written.load(Relaxed),
            compactions: self.compactions.load(Relaxed),
            compaction_bytes_read: self.compaction_bytes_read.load(Relaxed),
            compaction_bytes_written: self.compaction_bytes_written.load(Relaxed),
            moves: self.moves.load(Relaxed),
            entries_dropped: self.entries_dropped.load(Relaxed),
            ..KeyspaceMetrics::default()
        }
    }
}
