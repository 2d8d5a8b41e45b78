//! Counters of the store. Monotonic since open unless said otherwise.

use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Entries read and dropped, by reason.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct MergeCounts {
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Hidden by a newer version of the same stripe.
    pub(crate) superseded: u64,
    /// Tombstones, and values under range tombstones, that nothing needs.
    pub(crate) deleted: u64,
    /// Operands folded into a value.
    pub(crate) folded: u64,
}

impl MergeCounts {
    /// Entries dropped for any reason.
    pub(crate) fn dropped(&self) -> u64 {
        self.superseded + self.deleted + self.folded
    }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// A reading of the store's counters and gauges.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Reads all counters. Gauges are filled in by the caller.
            pub(crate) fn read(&self) -> Metrics {
                Metrics { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl Metrics {
            /// Every figure by name, in the order of declaration.
            pub fn to_pairs(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

metrics! {
    /// Commits written.
    commits,
    /// Operations written.
    operations,
    /// Key and value bytes of written operations.
    user_bytes_written,
    /// Bytes of log records.
    log_bytes_written,
    /// Syncs of log segments.
    log_syncs,
    /// Calls that made files or their names durable, by all stores of the environment.
    syncs,
    /// Point lookups.
    gets,
    /// Tables that lookups left because the filter said no.
    filter_negatives,
    /// Tables that lookups searched and that had no version of the key: with filters, their false positives.
    lookup_tables_absent,
    /// Tables that lookups searched and that had a version of the key.
    lookup_tables_found,
    /// Point lookups whose answer came from a table.
    lookups_from_tables,
    /// Iterators made.
    scans,
    /// Flushes installed.
    flushes,
    /// Bytes of tables written by flushes.
    flush_bytes_written,
    /// Merge pieces installed.
    merges,
    /// Bytes of tables written by merges.
    merge_bytes_written,
    /// Bytes of tables that merges took; of a table taken in part, its share.
    merge_bytes_read,
    /// Most merges at a time.
    merges_most_parallel,
    /// Gauge: merges that may run at a time.
    merge_slots,
    /// Microseconds with merges into two or more levels at once.
    merges_cross_level_micros,
    /// Entries read by merges.
    merge_entries_read,
    /// Entries that merges and flushes dropped: hidden by newer versions.
    entries_superseded,
    /// Entries that merges and flushes dropped: tombstones and what they hide.
    entries_deleted,
    /// Merge operands folded.
    entries_folded,
    /// Bytes of the largest piece that a merge wrote.
    merge_largest_bytes,
    /// Files that changed level or run without being read.
    moves,
    /// Times that policies were asked what to merge.
    policy_asked,
    /// Nanoseconds of CPU that their decisions took, admission of plans included.
    policy_nanos,
    /// The longest of these by the clock, nanoseconds.
    policy_longest_nanos,
    /// Nanoseconds of CPU that searches of policies took, in the background.
    search_nanos,
    /// Background jobs that failed.
    background_errors,
    /// Writers that waited because too many runs await merging.
    stalls_runs,
    /// Microseconds that writers waited for that reason.
    stall_micros_runs,
    /// Writers that waited because the memtables were full.
    stalls_memory,
    /// Microseconds that writers waited for that reason.
    stall_micros_memory,
    /// The longest that a writer waited at once, microseconds.
    stall_longest_micros,
    /// Bytes read by open: manifest, log and table tails.
    open_bytes_read,
    /// Commits read from the log by open.
    recovered_commits,
    /// Block cache hits.
    cache_hits,
    /// Block cache misses.
    cache_misses,
    /// Gauge: bytes in the block cache.
    cache_bytes,
    /// Gauge: bytes in memtables.
    memtable_bytes,
    /// Gauge: bytes of log segments that recovery would read.
    log_bytes_live,
    /// Gauge: bytes of the filters of all tables.
    filter_bytes,
    /// Gauge: bytes of tables in the present versions.
    table_bytes,
    /// Gauge: runs over all keyspaces.
    runs,
    /// Gauge: snapshots alive.
    snapshots,
    /// Gauge: plans under way.
    tickets,
    /// Plans admitted.
    plans_admitted,
    /// Plans refused.
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

    fn dropped(&self, counts: &MergeCounts) {
        Counters::add(&self.entries_superseded, counts.superseded);
        Counters::add(&self.entries_deleted, counts.deleted);
        Counters::add(&self.entries_folded, counts.folded);
    }

    pub(crate) fn merged(&self, counts: &MergeCounts, bytes_in: u64, bytes_out: u64) {
        Counters::add(&self.merges, 1);
        Counters::add(&self.merge_bytes_read, bytes_in);
        Counters::add(&self.merge_bytes_written, bytes_out);
        Counters::add(&self.merge_entries_read, counts.read);
        self.merge_largest_bytes.fetch_max(bytes_out, Relaxed);
        self.dropped(counts);
    }

    /// Policies were asked so many times; what that took, and the longest of them.
    pub(crate) fn asked(&self, times: u64, nanos: u64, longest_nanos: u64) {
        Counters::add(&self.policy_asked, times);
        Counters::add(&self.policy_nanos, nanos);
        self.policy_longest_nanos.fetch_max(longest_nanos, Relaxed);
    }

    pub(crate) fn moved(&self) {
        Counters::add(&self.moves, 1);
    }

    pub(crate) fn flushed(&self, counts: &MergeCounts, bytes: u64) {
        Counters::add(&self.flushes, 1);
        Counters::add(&self.flush_bytes_written, bytes);
        self.dropped(counts);
    }
}
