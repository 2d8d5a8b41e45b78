//! Lookup statistics over time: old lookups decay, and the counts survive a restart.
//!
//! Reads count one lookup in sixteen at the file references that it reaches (`version::file`). A maintenance step
//! decays all counts to half within [`HALF_LIFE_PER_FILE`] lookups per live file, in sixteen epochs, so that they
//! describe the recent past. The counts are advisory. A manifest snapshot holds them, and they are written at close and
//! once in each half-life. A crash loses the counts since then.

use crate::base::error::Result;
use crate::store::Store;
use drumlin_env::sync::atomic::Ordering::Relaxed;
use drumlin_format::manifest::{Change, Edit, MAX_CHANGES};

/// Lookups per live file after which counts have decayed to half.
const HALF_LIFE_PER_FILE: u64 = 256;
/// Bounds of the half-life, in lookups.
const HALF_LIFE: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 26;
/// Epochs of a half-life.
const EPOCHS: u64 = 16;
/// Factor by which an epoch multiplies a count: the sixteenth root of one half.
const LEFT: f64 = 0.957_603_280_698_573_6;

impl Store {
    /// Ends the decay epoch if it is over. Returns whether it was.
    pub(crate) fn age_lookups(&self) -> Result<bool> {
        let keyspaces = self.keyspaces();
        let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view()).collect();
        let files = || views.iter().flat_map(|view| view.tree.files());
        let half_life =
            (files().count() as u64 * HALF_LIFE_PER_FILE).clamp(*HALF_LIFE.start(), *HALF_LIFE.end());
        let (gets, began) = (self.lookups.total_gets(), self.lookup_epochs.began.load(Relaxed));
        if gets.saturating_sub(began) < half_life / EPOCHS {
            return Ok(false);
        }
        self.lookup_epochs.began.store(gets, Relaxed);
        files().for_each(|(_, _, file)| file.access.decay(LEFT));
        if self.lookup_epochs.count.fetch_add(1, Relaxed) % EPOCHS == EPOCHS - 1 && !self.health.is_poisoned()
        {
            self.save_lookups()?;
        }
        Ok(true)
    }

    /// Writes the counts of all files to the manifest.
    pub(crate) fn save_lookups(&self) -> Result<()> {
        let mut control = self.control.lock();
        let mut changes = Vec::new();
        for keyspace in &control.keyspaces {
            let (keyspace, view) = (keyspace.state.id, keyspace.state.view());
            for (_, _, file) in view.tree.files() {
                let counts = file.lookups();
                let lookups = [counts.empty, counts.found, counts.dead].map(|count| count as f32);
                if lookups.iter().any(|count| *count > 0.0) {
                    let (table, start) = (file.id(), file.bounds.start.clone());
                    changes.push(Change::Lookups { keyspace, table, start, lookups });
                }
            }
        }
        for changes in changes.chunks(MAX_CHANGES) {
            self.append_edit(&mut control, Edit { changes: changes.to_vec() }, || {})?;
        }
        Ok(())
    }
}
