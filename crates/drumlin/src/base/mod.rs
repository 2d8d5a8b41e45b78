//! Types that every other folder uses and that depend on no other folder: errors, events, counters, the internal
//! iterator interface, range tombstones, merge operators, and the rules that resolve versions to a value.

pub(crate) mod cache_padded;
pub(crate) mod cursor;
pub(crate) mod decisions;
pub(crate) mod dir_lock;
pub(crate) mod dir_sync;
#[expect(unsafe_code, reason = "shared pointers without reference counts")]
pub(crate) mod epoch;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod file_sink;
pub(crate) mod key_range;
pub(crate) mod keyspace_metrics;
pub(crate) mod latency;
pub(crate) mod merge_operator;
pub(crate) mod metrics;
pub(crate) mod name;
#[expect(unsafe_code, reason = "the prefetch instruction")]
pub(crate) mod prefetch;
pub(crate) mod rangedel;
pub(crate) mod resolve;
pub(crate) mod slice;
pub(crate) mod snapshots;
pub(crate) mod spin_wait;
pub(crate) mod thread_counters;
pub(crate) mod thread_number;
pub(crate) mod value_read_ahead;

/// Suffix of files that an open sets aside. Only repair reads them.
pub(crate) const SET_ASIDE: &str = ".lost";
