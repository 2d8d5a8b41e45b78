//! Values that are derived from several options, and options from the pairs that a manifest holds.

use super::defs::{KeyspaceOptions, Options};
use super::values::FilterMode;
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_format::compression::Compression;
use drumlin_types::contract::Pin;

/// Maximum number of segments that the log keeps, since each has an open file.
const LOG_SEGMENTS: u64 = 64;
/// Maximum length of the live log, however large the memory budget: a segment is preallocated, and its size is one part
/// in `LOG_SEGMENTS` of this.
const LOG_MOST: u64 = 64 << 30;

/// Options of keyspaces that only builds with the feature `experiments` have, each with its default.
pub(super) const EXPERIMENTS: &[(&str, &str)] = &[("arce_pin", "none")];

/// Returns whether this build lacks the option `name`, and `value` is its default. Builds with the feature
/// `experiments` write every option into the manifest, so others find it there, and ignore it.
pub(crate) fn is_left_out(name: &str, value: &str) -> bool {
    default_elsewhere(name) == Some(value)
}

/// Returns the default of the option `name` in builds with the feature `experiments`, if this build lacks it.
fn default_elsewhere(name: &str) -> Option<&'static str> {
    let (_, default) = EXPERIMENTS.iter().find(|(experiment, _)| *experiment == name)?;
    KeyspaceOptions::defs().iter().all(|def| def.name != name).then_some(*default)
}

impl Options {
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

    /// Returns the size of a log segment. With a large memory budget, segments become larger. A disk budget limits it
    /// further ([`DiskBudget::segment_most`](crate::write::budget::DiskBudget::segment_most)).
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
    /// Returns the length of the smallest values that are separated; the largest number if none are.
    pub(crate) fn least_separated(&self) -> u64 {
        if self.value_threshold == 0 { u64::MAX } else { self.value_threshold }
    }

    /// Returns whether tables may have different filter bits per key.
    pub(crate) fn has_different_filters(&self) -> bool {
        self.filter_mode != FilterMode::Uniform && self.filter_bits != Some(0.0)
    }

    /// Returns the default options, changed by `pairs` of name and value.
    pub(crate) fn from_pairs(pairs: &[(String, String)]) -> Result<KeyspaceOptions> {
        let mut options = KeyspaceOptions::default();
        pairs.iter().try_for_each(|(name, value)| options.set(name, value))?;
        Ok(options)
    }

    /// Checks an option that an edit of a manifest sets. One that only builds with the feature `experiments` have may
    /// stand there: the last value decides, when the store opens.
    pub(crate) fn check_stored(name: &str, value: &str) -> Result<()> {
        match default_elsewhere(name) {
            Some(_) => Ok(()),
            None => KeyspaceOptions::default().set(name, value),
        }
    }

    /// Returns the options that the manifest holds for the keyspace `keyspace`. An option that this build does not have
    /// is refused, like any other change of a manifest that a build does not understand.
    pub(crate) fn from_manifest(keyspace: &str, pairs: &[(String, String)]) -> Result<KeyspaceOptions> {
        let mut options = KeyspaceOptions::default();
        for (name, value) in pairs.iter().filter(|(name, value)| !is_left_out(name, value)) {
            if let Some(default) = default_elsewhere(name) {
                let what = format!(
                    "keyspace {keyspace:?} has {name} = {value}, which this build does not support; set it to \
                     {default} with a build that has the feature `experiments`, as the command `drumlin` does"
                );
                return Err(Error::new(ErrorKind::InvalidOption, what));
            }
            options.set(name, value)?;
        }
        Ok(options)
    }

    /// Returns the parameters at which experiments fix the policy `arce`.
    pub(crate) fn pin(&self) -> Option<Pin> {
        #[cfg(feature = "experiments")]
        let pin = self.arce_pin;
        #[cfg(not(feature = "experiments"))]
        let pin = None;
        pin
    }

    /// Returns the compression of files in the bottom level.
    pub fn bottom_compression(&self) -> Compression {
        self.compression_bottom.unwrap_or(self.compression)
    }
}
