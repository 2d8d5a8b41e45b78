//! Values that are derived from several options.

use super::defs::{KeyspaceOptions, Options};
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_format::compression::Compression;

/// Least number of log segments that fit into the disk budget.
const LOG_SEGMENTS_LEAST: u64 = 4;

/// Maximum number of segments that the log keeps, since each has an open file.
const LOG_SEGMENTS: u64 = 64;
/// Maximum length of the live log, however large the memory budget: a segment is preallocated, and its size is one part
/// in `LOG_SEGMENTS` of this.
const LOG_MOST: u64 = 64 << 30;

impl Options {
    /// Refuses a disk budget that the log alone would fill.
    pub(crate) fn check_together(&self) -> Result<()> {
        let least = LOG_SEGMENTS_LEAST.saturating_mul(self.segment_bytes());
        if self.disk_budget == 0 || self.disk_budget >= least {
            return Ok(());
        }
        let what = format!(
            "disk_budget = {}: must be at least {LOG_SEGMENTS_LEAST} log segments, which are {least} bytes; lower \
             log_segment_bytes or memory_budget to use less",
            self.disk_budget
        );
        Err(Error::new(ErrorKind::InvalidOption, what))
    }

    /// Returns the default options, changed by `pairs` of name and value.
    pub(crate) fn from_pairs(pairs: &[(String, String)]) -> Result<Options> {
        let mut options = Options::default();
        pairs.iter().try_for_each(|(name, value)| options.set(name, value))?;
        Ok(options)
    }

    /// Returns the bytes of live log at which the oldest memtables are sealed.
    pub(crate) fn log_most(&self) -> u64 {
        (self.memtables_most() * 2).min(LOG_MOST).max(self.log_segment_bytes * 4)
    }

    /// Returns the size of a log segment. With a large memory budget, segments become larger.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.log_segment_bytes.max(self.log_most() / LOG_SEGMENTS)
    }

    /// Returns the largest number of bytes that all memtables together may hold.
    pub(crate) fn memtables_most(&self) -> u64 {
        self.memory_budget * 3 / 8
    }

    /// Returns the memtable size of a keyspace: its option, or else the default that follows from the memory budget. At
    /// most half of what memtables may hold: one memtable is filled while another is flushed.
    pub fn memtable_bytes(&self, keyspace: &KeyspaceOptions) -> u64 {
        match keyspace.memtable_bytes {
            0 => self.usual_memtable(),
            bytes => bytes.min(self.memtables_most() / 2),
        }
    }

    /// Returns the upper bound on the bytes of memtables that one flush of a keyspace takes: its option, or else the
    /// default memtable size.
    pub fn flush_bytes(&self, keyspace: &KeyspaceOptions) -> u64 {
        match keyspace.flush_bytes {
            0 => self.usual_memtable(),
            bytes => bytes,
        }
    }

    fn usual_memtable(&self) -> u64 {
        (self.memory_budget / 8).min(64 << 20)
    }
}

impl KeyspaceOptions {
    /// Returns the default options, changed by `pairs` of name and value.
    pub(crate) fn from_pairs(pairs: &[(String, String)]) -> Result<KeyspaceOptions> {
        let mut options = KeyspaceOptions::default();
        pairs.iter().try_for_each(|(name, value)| options.set(name, value))?;
        Ok(options)
    }

    /// Returns the compression of files in the bottom level.
    pub fn bottom_compression(&self) -> Compression {
        self.compression_bottom.unwrap_or(self.compression)
    }
}
