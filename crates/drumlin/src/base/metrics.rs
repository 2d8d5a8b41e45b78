//! Counters and gauges of the store. Counters only grow since open; gauges are marked as such.

use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of entries that a flush or compaction read, wrote and dropped, by reason.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct MergeCounts {
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Entries hidden by a newer version that the same snapshots see.
    pub(crate) superseded: u64,
    /// Obsolete tombstones, and values that range tombstones cover.
    pub(crate) deleted: u64,
    /// Point tombstones among `deleted`: nothing older of their keys is left.
    pub(crate) obsolete_tombstones: u64,
    /// Merge operands combined into another entry.
    pub(crate) merged: u64,
    /// Calls of the merge operator that panicked.
    pub(crate) operator_panics: u64,
}

impl MergeCounts {
    /// Returns the number of entries dropped for any reason.
    pub(crate) fn dropped(&self) -> u64 {
        self.superseded + self.deleted + self.merged
    }
}

/// Names of the gauges among the metrics.
const GAUGES: [&str; 13] = [
    "compaction_slots",
    "cache_bytes",
    "memtable_bytes",
    "log_bytes_live",
    "filter_bytes",
    "table_bytes",
    "value_files",
    "value_record_bytes",
    "value_bytes_referenced",
    "runs",
    "snapshots",
    "iterators",
    "compactions_unfinished",
];

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The store's counters, updated by all threads.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Values of the store's counters and gauges at one time. [`Db::metrics`](crate::Db::metrics) returns them.
        ///
        /// Counters only grow, from 0 at open. Two of them leave out dropped keyspaces, so they fall when a keyspace is
        /// dropped: `scan_entries_passed` and `scan_spans_skipped`. Fields that begin with *Gauge* are values of the
        /// moment ([`is_gauge`](Metrics::is_gauge)), those that begin with *Largest* or *Longest* are maxima. The
        /// fields are read one after the other while other threads write, so they may not match exactly.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Reads all counters. The caller fills in the gauges.
            pub(crate) fn read(&self) -> Metrics {
                Metrics { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl Metrics {
            /// Returns every value with its name, in the order of declaration, for exporters.
            ///
            /// ```
            /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
            /// # let db = drumlin::Db::open(dir.path())?;
            /// for (name, value) in db.metrics().to_pairs() {
            ///     println!("drumlin_{name} {value}");
            /// }
            /// # Ok::<(), drumlin::Error>(())
            /// ```
            pub fn to_pairs(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Returns whether the metric `name` is a gauge. All others are counters.
            pub fn is_gauge(name: &str) -> bool {
                GAUGES.contains(&name)
            }
        }
    };
}

metrics! {
    /// Commits written.
    commits,
    /// Operations written: puts, deletions, range deletions and merges.
    operations,
    /// Key and value bytes of written operations.
    user_bytes_written,
    /// Bytes of log records.
    log_bytes_written,
    /// Syncs of log segments.
    log_syncs,
    /// Sync calls on files and directories. Stores that were opened by clones of one [`Builder`](crate::Builder) share
    /// this counter, so it may not begin at 0.
    syncs,
    /// Point lookups.
    gets,
    /// Tables that lookups skipped because the filter excluded the key.
    filter_negatives,
    /// Tables that lookups searched without finding a version of the key: false positives of filters, and tables
    /// without a filter or with one that lookups skip.
    lookup_tables_absent,
    /// Tables that lookups searched and that had a version of the key.
    lookup_tables_found,
    /// Point lookups whose result came from a table.
    lookups_from_tables,
    /// Iterators and cursors created. Seeks of cursors do not count, unlike in
    /// [`KeyspaceMetrics`](crate::KeyspaceMetrics).
    scans,
    /// Entries that scans skipped: deleted, hidden, or older versions.
    scan_entries_passed,
    /// Times that a scan skipped a range of deleted keys that an earlier scan had found.
    scan_spans_skipped,
    /// Flushes installed.
    flushes,
    /// Bytes of tables written by flushes.
    flush_bytes_written,
    /// Subcompactions installed.
    compactions,
    /// Bytes of tables written by compactions.
    compaction_bytes_written,
    /// Bytes of tables read by compactions. A table that a compaction takes in part counts with that part.
    compaction_bytes_read,
    /// Largest number of subcompactions that ran at the same time.
    compactions_max_parallel,
    /// Gauge: compaction slots, the number of subcompactions that may run at the same time.
    compaction_slots,
    /// Microseconds during which compactions into two or more levels ran at the same time.
    compactions_cross_level_micros,
    /// Entries read by compactions.
    compaction_entries_read,
    /// Entries that compactions and flushes dropped because newer versions hide them.
    entries_superseded,
    /// Entries that compactions and flushes dropped as deleted: tombstones and the entries that they hide.
    entries_deleted,
    /// Merge operands that compactions and flushes combined into another entry.
    entries_merged,
    /// Calls of merge operators by compactions and flushes that panicked. The operands were kept.
    operator_panics,
    /// Bytes of records that installed flushes and compactions wrote to value files: values, compressed, with their
    /// checksums and lengths. Not part of `flush_bytes_written` and `compaction_bytes_written`.
    value_bytes_written,
    /// Part of `value_bytes_written`: records that compactions copied from collected value files.
    value_bytes_copied,
    /// Largest number of bytes of tables that a subcompaction wrote.
    compaction_largest_bytes,
    /// Trivial moves: subcompactions whose files changed level or run without being read.
    moves,
    /// Calls of compaction policies for a decision.
    policy_calls,
    /// CPU nanoseconds of policy calls, including the admission of their plans.
    policy_nanos,
    /// Longest policy call in elapsed nanoseconds.
    policy_longest_nanos,
    /// CPU nanoseconds of background searches of policies.
    search_nanos,
    /// Failed background jobs.
    background_errors,
    /// Failed attempts to remove an obsolete file. Its bytes count against `disk_budget` until an attempt succeeds.
    unlinks_failed,
    /// Writes that waited or were slowed because there were too many runs, as counted by the policy (see
    /// [`StallCause::Runs`](crate::StallCause::Runs)).
    stalls_runs,
    /// Microseconds by which writes were delayed for that reason.
    stall_micros_runs,
    /// Writes that waited because the memtables were full.
    stalls_memory,
    /// Microseconds that writes waited for that reason.
    stall_micros_memory,
    /// Longest wait of a write for one of these reasons, in microseconds.
    stall_longest_micros,
    /// Durable writes and calls of `Db::sync`, each of which waits until the log is durable.
    sync_waits,
    /// Microseconds that they waited. It is 0 for a call that finds the log durable.
    sync_wait_micros,
    /// Longest such wait, in microseconds.
    sync_wait_longest_micros,
    /// Writes that waited 100 us or longer for other commits: for the lock that orders commits, for a new log segment,
    /// or until earlier commits were published.
    commit_waits,
    /// Microseconds that they waited.
    commit_wait_micros,
    /// Longest such wait, in microseconds.
    commit_wait_longest_micros,
    /// Bytes read by open: manifest, log and table tails.
    open_bytes_read,
    /// Commits read from the log by open.
    recovered_commits,
    /// Block cache hits.
    cache_hits,
    /// Block cache misses.
    cache_misses,
    /// Blocks that the block cache evicted to make room.
    cache_evictions,
    /// Blocks that compactions inserted into the block cache as they wrote them, in place of input blocks that readers
    /// use. RocksDB's `prepopulate_block_cache` inserts all blocks of flushes, or of flushes and compactions.
    cache_carried,
    /// Lookups of values in value files that found them in the block cache. Scans and compactions do not count.
    value_cache_hits,
    /// Lookups of values in value files that did not. Values of more than 64 KiB are never cached.
    value_cache_misses,
    /// Gauge: bytes in the block cache.
    cache_bytes,
    /// Gauge: bytes in memtables.
    memtable_bytes,
    /// Gauge: size of the log segments from the log floor on, including preallocated space that holds no records yet.
    log_bytes_live,
    /// Gauge: bytes of the filters of all tables.
    filter_bytes,
    /// Gauge: bytes of tables in the current trees.
    table_bytes,
    /// Gauge: value files that the current trees point to.
    value_files,
    /// Gauge: bytes of all records in them.
    value_record_bytes,
    /// Gauge: bytes of the records that tables point to. The rest of `value_record_bytes` is garbage; more may be found
    /// when compactions drop pointers.
    value_bytes_referenced,
    /// Gauge: runs in all keyspaces.
    runs,
    /// Gauge: live snapshots.
    snapshots,
    /// Gauge: live iterators and cursors.
    iterators,
    /// Gauge: scheduled compactions that have not finished.
    compactions_unfinished,
    /// Compactions that a policy planned and that were scheduled.
    plans_admitted,
    /// Compactions that a policy planned and that were refused, because they conflict with others or with a limit.
    plans_refused,
    /// Bytes of manifest edits.
    manifest_bytes_written,
    /// Manifest rewrites.
    manifest_rewrites,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    fn count_entries(&self, counts: &MergeCounts) {
        Counters::add(&self.operator_panics, counts.operator_panics);
        Counters::add(&self.entries_superseded, counts.superseded);
        Counters::add(&self.entries_deleted, counts.deleted);
        Counters::add(&self.entries_merged, counts.merged);
    }

    pub(crate) fn compacted(&self, counts: &MergeCounts, bytes_in: u64, bytes_out: u64) {
        Counters::add(&self.compactions, 1);
        Counters::add(&self.compaction_bytes_read, bytes_in);
        Counters::add(&self.compaction_bytes_written, bytes_out);
        Counters::add(&self.compaction_entries_read, counts.read);
        self.compaction_largest_bytes.fetch_max(bytes_out, Relaxed);
        self.count_entries(counts);
    }

    /// Counts `times` policy calls, with their CPU time and the elapsed time of the longest.
    pub(crate) fn count_policy_calls(&self, times: u64, nanos: u64, longest_nanos: u64) {
        Counters::add(&self.policy_calls, times);
        Counters::add(&self.policy_nanos, nanos);
        self.policy_longest_nanos.fetch_max(longest_nanos, Relaxed);
    }

    /// Sets the number of unfinished compactions, and of plans so far.
    pub(crate) fn planned(&self, unfinished: u64, admitted: u64, refused: u64) {
        self.compactions_unfinished.store(unfinished, Relaxed);
        self.plans_admitted.store(admitted, Relaxed);
        self.plans_refused.store(refused, Relaxed);
    }

    /// Counts the value bytes that a flush or compaction wrote, and those of them that it copied.
    pub(crate) fn separated(&self, (written, copied): (u64, u64)) {
        Counters::add(&self.value_bytes_written, written);
        Counters::add(&self.value_bytes_copied, copied);
    }

    pub(crate) fn moved(&self) {
        Counters::add(&self.moves, 1);
    }

    pub(crate) fn flushed(&self, counts: &MergeCounts, bytes: u64) {
        Counters::add(&self.flushes, 1);
        Counters::add(&self.flush_bytes_written, bytes);
        self.count_entries(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauges_are_the_metrics_whose_documentation_says_so() {
        let source = include_str!("metrics.rs");
        let mut documented: Vec<&str> = source
            .split("    /// Gauge: ")
            .skip(1)
            .filter_map(|rest| {
                rest.lines().find(|line| !line.trim_start().starts_with("///") && line.ends_with(','))
            })
            .map(|line| line.trim().trim_end_matches(','))
            .collect();
        let mut listed: Vec<&str> = Metrics::default().to_pairs().into_iter().map(|(name, _)| name).collect();
        listed.retain(|name| Metrics::is_gauge(name));
        documented.sort_unstable();
        listed.sort_unstable();
        assert_eq!(documented, listed);
        assert_eq!(listed.len(), GAUGES.len(), "each listed gauge is a metric");
    }
}
