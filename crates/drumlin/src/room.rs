//! Room on the disk: what may be written before the disk, or the budget for it, is full.
//!
//! 1. What is left is the smaller of the free space of the file system and the rest of `disk_budget`. Tables and log
//!    segments count against the budget from their making to their removal.
//! 2. Flushes come first: room for all that is in memtables is kept from merges. A merge starts only when the rest
//!    takes its input once more, beside the inputs of those that run. Otherwise it waits, which the decision log
//!    tells, and is looked at again when files go, or a second later.
//! 3. A flush that would not leave merges a part of the budget fails as on a full disk: without room no merge could
//!    ever make any. While flushes fail, what they cannot use is not kept for them.
//! 4. Policies are told what is in use of the budget, and what merges under way may still write. They see the budget without
//!    the part that flushes leave: so they can free disk before flushes fail.
//!
//! Asking the file system comes before the control lock, under which nothing waits for a merge or a flush: of I/O there
//! are edits of the manifest alone, and reads of a block or two where one needs the entries of a part of a file.

use crate::error::{Error, ErrorKind, Result};
use crate::memtable::Memtable;
use crate::store::{PIECE_BYTES, Store};
use drumlin_env::sync::{Arc, atomic};
use drumlin_policy::schedule::start::with_margin;
use drumlin_types::contract::LimitView;

/// The part of the budget that flushes leave to merges is one in so many, and at most what two pieces take.
const MERGE_SHARE: u64 = 8;

/// The part of `budget` that flushes leave to merges.
fn left_to_merges(budget: u64) -> u64 {
    (budget / MERGE_SHARE).min(2 * with_margin(PIECE_BYTES))
}

impl Store {
    /// Bytes that tables and log segments take on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.obsolete.bytes_on_disk() + self.lane.state.lock().log.bytes_on_disk()
    }

    /// Bytes that merges may write from now on.
    pub(crate) fn room_for_merges(&self) -> u64 {
        let budget = match self.options.load().disk_budget {
            0 => u64::MAX,
            budget => budget.saturating_sub(self.disk_bytes()),
        };
        // A disk that cannot be asked is found to be full when it is.
        let free = self.env.fs().free_space(&self.dir).unwrap_or(u64::MAX);
        let for_flushes = match self.disk_full.load(atomic::Ordering::Acquire) {
            true => 0,
            false => self.keyspaces().iter().map(|k| k.peek().memtable_bytes() as u64).sum(),
        };
        free.min(budget).saturating_sub(for_flushes)
    }

    /// What policies are told of the disk.
    pub(crate) fn disk_limits(&self) -> LimitView {
        match self.options.load().disk_budget {
            0 => LimitView::default(),
            budget => LimitView {
                disk_budget: budget - left_to_merges(budget),
                disk_used: self.disk_bytes(),
                ..LimitView::default()
            },
        }
    }

    /// Fails when the budget has no room to flush `memtables`.
    pub(crate) fn check_room_to_flush(&self, memtables: &[Arc<Memtable>]) -> Result<()> {
        let budget = self.options.load().disk_budget;
        if budget == 0 {
            return Ok(());
        }
        let wanted: u64 = memtables.iter().map(|m| m.bytes() as u64).sum();
        let for_merges = left_to_merges(budget);
        let used = self.disk_bytes();
        if used.saturating_add(wanted).saturating_add(for_merges) <= budget {
            return Ok(());
        }
        let what = format!(
            "disk_budget is {budget} bytes: {used} are in use, {for_merges} are left to merges, and a flush takes {wanted}"
        );
        Err(Error::new(ErrorKind::NoSpace, what))
    }

    /// Fails when all merges that are left wait for room on the disk.
    pub(crate) fn check_room_to_merge(&self) -> Result<()> {
        match &self.control.lock().shortage {
            Some(shortage) if self.obsolete.is_empty() => {
                Err(Error::new(ErrorKind::NoSpace, shortage.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Room may have come: whether merges lack any is found out anew.
    pub(crate) fn look_for_room(&self) {
        self.disk_full.store(false, atomic::Ordering::Release);
        self.merge_short.store(false, atomic::Ordering::Release);
        self.control.lock().shortage = None;
    }
}
