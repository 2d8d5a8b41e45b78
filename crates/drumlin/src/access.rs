//! The access statistics over time: old lookups fade, and what is known outlives the process.
//!
//! Reads count lookups at file references, one in sixteen of them (`version::file`). A maintenance step lets all counts
//! fade by half within [`HALF_LIFE_PER_FILE`] lookups per live file, in sixteen epochs, so that a reading is of the
//! recent past. They are advice: a manifest snapshot holds them, and they are written at close and once in a half-life;
//! a crash takes the counts since.

use crate::error::Result;
use crate::store::Store;
use drumlin_env::sync::atomic::Ordering::Relaxed;
use drumlin_format::manifest::{Change, Edit, MAX_CHANGES};

/// Lookups per live file within which counts fade by half.
const HALF_LIFE_PER_FILE: u64 = 256;
/// Bounds of the half-life, in lookups.
const HALF_LIFE: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 26;
/// Epochs of a half-life.
const EPOCHS: u64 = 16;
/// What an epoch leaves of a count: the sixteenth root of one half.
const LEFT: f64 = 0.957_603_280_698_573_6;

impl Store {
    /// Ends the epoch when it is over; whether it was.
    pub(crate) fn age_lookups(&self) -> Result<bool> {
        let keyspaces = self.keyspaces();
        let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view()).collect();
        let files = || views.iter().flat_map(|view| view.tree.files());
        let half_life =
            (files().count() as u64 * HALF_LIFE_PER_FILE).clamp(*HALF_LIFE.start(), *HALF_LIFE.end());
        let (gets, began) = (self.lookups.total_gets(), self.epoch_began.load(Relaxed));
        if gets.saturating_sub(began) < half_life / EPOCHS {
            return Ok(false);
        }
        self.epoch_began.store(gets, Relaxed);
        files().for_each(|(_, _, file)| file.access.decay(LEFT));
        if self.epochs.fetch_add(1, Relaxed) % EPOCHS == EPOCHS - 1 && !self.is_poisoned() {
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
