//! Disk space: how much may be written before the disk, or the budget for it, is full.
//!
//! 1. Free space is the smaller of the free space of the file system and the rest of `disk_budget`. Log segments count
//!    against the budget from their creation, tables from their completion, and both until they are unlinked. What
//!    unfinished tables may take is reserved. A file that cannot be unlinked still counts, and is tried again with a
//!    growing delay.
//! 2. Flushes come first: disk space for all memtables is kept back from compactions. A compaction starts only if the
//!    rest has space for an output as large as its input, in addition to the outputs of running compactions. Otherwise
//!    it waits, which the decision log reports. It is checked again when files are removed, or a second later.
//! 3. A flush must leave compactions a part of the budget, or what those under way may still take if that is more.
//!    Otherwise it fails as on a full disk: without disk space no compaction could ever free any. While flushes fail,
//!    the space that they cannot use is not kept back for them.
//! 4. The log is counted at the length that it may reach, but at most an eighth of the budget: its growth must not take
//!    the space of compactions that have begun. While flushes fail, the log cannot grow, and its real length counts.
//! 5. Policies see the used part of the budget, with the sealed memtables that are about to become tables, and the
//!    bytes that running compactions may still write. The budget that they see excludes the part that flushes leave, so
//!    that they can free disk space before flushes fail.
//! 6. The log leaves compactions the same part as flushes do (`write/budget.rs`). Before a flush fails, only one
//!    memtable is flushed instead of several, and spare log segments are removed. If no compaction runs, the flush may
//!    then take the part that is left to compactions.
//! 7. Once a flush fails, or a write finds no space for a log segment, every policy is called. If no policy plans
//!    anything, the keyspace with the most entries outside its largest run is compacted as a whole
//!    (`scheduler/space.rs`).
//! 8. Policies slow writers when the budget is nearly used up. Policies that do so are called again after space was
//!    freed, and all policies after a change of the budget. Nothing else would call the policy of a keyspace that
//!    nobody uses.
//!
//! The file system is queried before the control lock is taken, so that nothing waits for a compaction or flush under
//! the lock. The only I/O under the lock is: edits of the manifest, reads of a block or two to count the entries of a
//! part of a file, unlinks of outputs that cannot be installed, and the read of the manifest by `verify`.

use super::{Store, left_to_compactions};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::metrics::Counters;
use crate::compaction::control::KeyspaceControl;
use crate::keyspace::View;
use crate::memtable::Memtable;
use crate::version::ObsoleteFile;
use drumlin_env::sync::{Arc, atomic};
use drumlin_types::contract::LimitView;

/// At most one part in this many of the budget is reserved for the log.
const LOG_RESERVE: u64 = 8;

/// Returns the bytes that a flush of `memtables` may write.
pub(crate) fn bytes_of(memtables: &[Arc<Memtable>]) -> u64 {
    memtables.iter().map(|memtable| memtable.bytes() as u64).sum()
}

impl Store {
    /// Returns the bytes that tables and log segments use on disk.
    fn disk_bytes(&self) -> u64 {
        self.files.obsolete.bytes_on_disk() + self.commit_lock.state.lock().log.bytes_on_disk()
    }

    /// Returns the bytes of `budget` that are in use, with what the log may still grow by. The log grows while flushes
    /// fall behind. Without that reserve it would take the disk space of compactions that have begun.
    fn disk_bytes_with_log(&self, budget: u64) -> u64 {
        let log = self.commit_lock.state.lock().log.bytes_on_disk();
        self.with_log_reserve(budget, log)
    }

    /// Returns the bytes of `budget` that are in use, for a log of `log` bytes and what it may still grow by.
    fn with_log_reserve(&self, budget: u64, log: u64) -> u64 {
        self.files.obsolete.bytes_on_disk() + log.max(self.sizes.log.min(budget / LOG_RESERVE))
    }

    /// Returns the bytes that compactions may write from now on.
    pub(crate) fn space_for_compactions(&self) -> u64 {
        // While flushes fail, memtables are full, so the log does not grow either. While the log finds no space, no
        // memtable grows. Compactions then use what is kept for both.
        let is_full = self.health.lacks_space();
        let budget = match (self.options.load().disk_budget, is_full) {
            (0, _) => u64::MAX,
            (budget, false) => budget.saturating_sub(self.disk_bytes_with_log(budget)),
            (budget, true) => budget.saturating_sub(self.disk_bytes()),
        };
        // If the file system cannot report its free space, a full disk is noticed when a write fails.
        let free = self.files.env.fs().free_space(&self.files.dir).unwrap_or(u64::MAX);
        let for_flushes = match is_full {
            true => 0,
            false => self.keyspaces().iter().map(|k| k.held_bytes() as u64).sum(),
        };
        free.min(budget).saturating_sub(for_flushes)
    }

    /// Returns the bytes of sealed memtables. Their tables are about to take disk space.
    fn waiting_to_flush(&self) -> u64 {
        let sealed = |view: &View| view.sealed.iter().map(|memtable| memtable.bytes() as u64).sum::<u64>();
        self.keyspaces().iter().map(|keyspace| sealed(&keyspace.view())).sum()
    }

    /// Frees disk space after the log found none for a segment. A flush releases segments, or shows that tables must be
    /// compacted first.
    pub(crate) fn log_found_no_space(&self) {
        self.seal(&self.keyspaces());
        if !self.health.log_full.swap(true, atomic::Ordering::AcqRel) {
            self.call_policies_for_space();
        }
    }

    /// Records that the log found space for a segment.
    pub(crate) fn log_found_space(&self) {
        self.health.log_full.store(false, atomic::Ordering::Release);
    }

    /// Schedules a call of every policy, because only compactions can free disk space, or because the budget has
    /// changed.
    pub(crate) fn call_policies_for_space(&self) {
        self.control.lock().keyspaces.iter_mut().for_each(KeyspaceControl::call_policy_soon);
        self.background.wake();
    }

    /// Returns the disk space limits for policies.
    pub(crate) fn disk_limits(&self) -> LimitView {
        match self.options.load().disk_budget {
            0 => LimitView::default(),
            budget => LimitView {
                disk_budget: budget - left_to_compactions(budget),
                disk_used: self.disk_bytes_with_log(budget) + self.waiting_to_flush(),
                ..LimitView::default()
            },
        }
    }

    /// Reserves disk space to flush all of `memtables` together. Returns whether it did. If not, only one of them is to
    /// be flushed.
    pub(crate) fn may_flush_all(&self, memtables: &[Arc<Memtable>]) -> bool {
        if self.options.load().disk_budget == 0 && self.health.disk_full.load(atomic::Ordering::Acquire) {
            // The disk had no space for the last flush. Spare segments take what one memtable may need.
            self.release_spare_log();
            return false;
        }
        // Only compactions bring use back below an exceeded budget. They do so sooner if one flush writes all memtables
        // as one run.
        let log = || self.commit_lock.state.lock().log.bytes_on_disk();
        self.try_reserve_for_flush(memtables).is_ok()
            || self.disk_budget.is_exceeded(log()) && self.reserve_as_last_resort(memtables)
    }

    /// Reserves disk space to flush `memtables`. Frees obsolete files and spare log segments for it if necessary. As a
    /// last resort, a flush may take the part of the budget that is left to compactions.
    pub(crate) fn reserve_for_flush(&self, memtables: &[Arc<Memtable>]) -> Result<()> {
        loop {
            let result = self.try_reserve_for_flush(memtables);
            if result.is_ok() {
                return result;
            }
            match self.files.obsolete.next(self.files.now()) {
                Some(file) => self.remove_obsolete(&file),
                None if self.release_spare_log() => {}
                None if self.reserve_as_last_resort(memtables) => return Ok(()),
                None => return result,
            }
        }
    }

    /// Reserves disk space to flush `memtables`. Returns an error if the budget has none.
    pub(crate) fn try_reserve_for_flush(&self, memtables: &[Arc<Memtable>]) -> Result<()> {
        let budget = self.options.load().disk_budget;
        if budget == 0 {
            return Ok(());
        }
        let wanted = bytes_of(memtables);
        // Range tombstones free disk space once they are compacted, so they may use half of the part left to
        // compactions.
        let deletes = memtables.iter().any(|memtable| memtable.has_range_tombstones());
        let for_compactions = match deletes {
            true => self.disk_budget.for_compactions().max(left_to_compactions(budget) / 2),
            false => self.reserved_for_compactions(budget).max(left_to_compactions(budget)),
        };
        // Under this lock the log takes no disk space between the check and the reservation.
        let locked = self.commit_lock.state.lock();
        let used = self.with_log_reserve(budget, locked.log.bytes_on_disk());
        if used.saturating_add(wanted).saturating_add(for_compactions) <= budget {
            self.disk_budget.reserve_for_flush(wanted);
            return Ok(());
        }
        drop(locked);
        let what = format!(
            "disk_budget of {budget} bytes is used up: {used} are in use or reserved for the log, {for_compactions} \
             are reserved for compactions, and a flush needs {wanted}; delete ranges, drop keyspaces or raise \
             disk_budget"
        );
        Err(Error::new(ErrorKind::NoSpace, what))
    }

    /// Reserves disk space to flush `memtables` in the part left to compactions, if none runs. Returns whether it did.
    /// The flush releases log segments, and may bring tombstones into tables, where a compaction drops what they hide.
    /// If the budget was lowered below what is in use, a flush may exceed it by less than the log holds.
    fn reserve_as_last_resort(&self, memtables: &[Arc<Memtable>]) -> bool {
        let control = self.control.lock();
        let is_merging = control.writing() > 0;
        let (budget, tables) = (self.options.load().disk_budget, self.files.obsolete.bytes_on_disk());
        let wanted = bytes_of(memtables);
        // Under this lock and the control lock, neither the log nor a compaction takes the same disk space.
        let locked = self.commit_lock.state.lock();
        let used = tables + locked.log.bytes_on_disk();
        let is_exceeded = self.disk_budget.is_exceeded(locked.log.bytes_on_disk());
        let leads_back = is_exceeded && wanted < locked.log.live_bytes();
        let may = !is_merging && (used.saturating_add(wanted) <= budget || leads_back);
        if may {
            self.disk_budget.reserve_for_flush(wanted);
        }
        drop(locked);
        may
    }

    /// Unlinks spare log segments if they take disk space that compactions need. Otherwise the log would reuse them
    /// without a check of the budget.
    pub(crate) fn trim_spare_log(&self) {
        let budget = self.options.load().disk_budget;
        if budget > 0 && self.disk_bytes().saturating_add(left_to_compactions(budget)) > budget {
            self.release_spare_log();
        }
    }

    /// Returns the bytes that compactions under way may still take, or 0 if they wait for disk space in any case.
    fn reserved_for_compactions(&self, budget: u64) -> u64 {
        let used = self.disk_bytes_with_log(budget);
        let control = self.control.lock();
        if control.shortage.is_some() { 0 } else { control.reserved(budget.saturating_sub(used)) }
    }

    /// Returns an error if all remaining compactions wait for disk space.
    pub(crate) fn check_space_to_compact(&self) -> Result<()> {
        match &self.control.lock().shortage {
            Some(shortage) if self.files.obsolete.all_tried() => {
                Err(Error::new(ErrorKind::NoSpace, shortage.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Removes an obsolete file. If that fails, its bytes still count, and it is tried again later.
    pub(crate) fn remove_obsolete(&self, file: &ObsoleteFile) {
        match self.files.remove(file) {
            Ok(()) => {
                self.forget_shortage(|| self.files.obsolete.removed(file));
                if let ObsoleteFile::Table(_) | ObsoleteFile::Value(_) = file {
                    self.clear_space_errors();
                }
                self.background.progressed();
            }
            Err(error) => {
                let now = self.files.now();
                if let Some((attempts, due)) = self.files.obsolete.failed(file, now) {
                    let seconds = due.saturating_sub(now) / 1_000_000;
                    let what = format!("an obsolete file stays for {seconds} s: {attempts} failed removals");
                    self.control.lock().decisions.note(now, "", what, error.to_string());
                }
                Counters::add(&self.metrics.unlinks_failed, 1);
                self.background_failed("maintenance", &error);
            }
        }
    }

    /// Calls `frees`, which frees disk space, and clears the shortage of compactions, so that they check again. Both
    /// happen under one lock: once no file is left to remove, callers treat a shortage as final, so they must not see
    /// an outdated one. The caller wakes the lanes.
    pub(crate) fn forget_shortage(&self, frees: impl FnOnce()) {
        let mut control = self.control.lock();
        frees();
        control.shortage = None;
        self.health.count_freed();
        // Policies depend on disk space only under a budget.
        if self.options.load().disk_budget > 0 {
            control.recall_slowing();
        }
    }

    /// Clears the recorded errors and shortages of disk space, so that jobs check again.
    pub(crate) fn clear_space_errors(&self) {
        self.health.space_freed();
        self.keyspaces().iter().for_each(|keyspace| keyspace.compaction_failures.space_freed());
        let mut control = self.control.lock();
        control.shortage = None;
        let keyspaces = control.keyspaces.iter_mut();
        let looks = keyspaces.fold(false, |looks, keyspace| keyspace.look_for_room() | looks);
        drop(control);
        if looks {
            self.background.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::base::error::ErrorKind;
    use crate::compaction::control::Shortage;
    use crate::write::pacing::UNLIMITED;
    use drumlin_env::MemEnv;
    use drumlin_env::sync::atomic::Ordering::Acquire;
    use drumlin_types::contract::{Pace, PaceScope};

    #[test]
    fn a_log_without_space_for_a_segment_seals_memtables_and_calls_policies_until_it_finds_some() {
        let builder = Db::builder("/s").env(MemEnv::new(65).env());
        let builder = builder.set("memory_budget", "8MiB").and_then(|b| b.set("log_segment_bytes", "128KiB"));
        let db = builder.and_then(crate::Builder::open).expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let (store, put) = (&keys.store, || keys.put("key", vec![7; 20_000]));
        put().expect("a first put");
        assert!(!keys.state.has_sealed());
        store.disk_budget.set_limit(1, 0);
        let refused = (0..50).find_map(|_| put().err()).expect("the next segment is refused");
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert!(keys.state.has_sealed(), "a flush may release segments");
        assert!(store.health.log_full.load(Acquire) && store.health.lacks_space());
        assert!(!store.health.disk_full.load(Acquire), "no flush has failed");
        assert!(store.control.lock().keyspaces.iter().all(|entry| entry.due), "policies are called");
        store.disk_budget.set_limit(0, 0);
        put().expect("the limit is gone");
        assert!(!store.health.lacks_space());
    }

    #[test]
    fn a_removed_file_ends_a_shortage_before_callers_take_it_for_final() {
        let db = Db::builder("/s").env(MemEnv::new(66).env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = &keys.store;
        let path = std::path::PathBuf::from("/s/000099.log");
        drop(store.files.env.fs().create(&path, drumlin_env::FileKind::Log).expect("a file"));
        store.files.obsolete.push_file(path, 1000);
        let before = store.health.times_freed();
        store.control.lock().shortage = Some(Shortage { wanted: 1000, left: 10 });
        store.check_space_to_compact().expect("the file is not removed yet");
        let file = store.files.obsolete.next(store.files.now()).expect("the file");
        store.remove_obsolete(&file);
        store.check_space_to_compact().expect("its space is free");
        assert!(store.files.obsolete.all_tried() && store.health.times_freed() > before);
    }

    #[test]
    fn freed_disk_space_ends_the_slowing_by_a_keyspace_that_nobody_uses() {
        let mem = MemEnv::new(67);
        let db = Db::builder("/s").env(mem.env()).set("disk_budget", "1GiB").and_then(crate::Builder::open);
        let db = db.expect("open");
        let [idle, free] = ["idle", "free"].map(|name| db.keyspace(name).expect("keyspace"));
        for keys in [&idle, &free] {
            keys.put("key", "value").expect("put");
            keys.flush().expect("flush");
        }
        let store = &idle.store;
        let slow = || {
            db.wait_idle().expect("idle");
            let mut control = store.control.lock();
            // As under a full budget.
            let pace = Pace { slow: 0.0, ..Pace::free(PaceScope::All, 64.0) };
            control.keyspace(&idle.state).expect("its control").pace = Some(pace);
            store.refresh_pace(&control);
            drop(control);
            db.wait_idle().expect("idle");
            assert_ne!(store.throttles.writers.rate(), UNLIMITED, "nothing has called the policy yet");
        };
        slow();
        let path = std::path::PathBuf::from("/s/000099.log");
        drop(store.files.env.fs().create(&path, drumlin_env::FileKind::Log).expect("a file"));
        store.files.obsolete.push_file(path, 1000);
        store.remove_obsolete(&store.files.obsolete.next(store.files.now()).expect("the file"));
        assert!(store.control.lock().keyspaces.iter().all(|k| k.due == (k.state.id == idle.state.id)));
        db.wait_idle().expect("idle");
        assert_eq!(store.throttles.writers.rate(), UNLIMITED, "a file was removed");
        for budget in ["2GiB", "0"] {
            slow();
            db.set_option("disk_budget", budget).expect("an option");
            db.wait_idle().expect("idle");
            assert_eq!(store.throttles.writers.rate(), UNLIMITED, "the budget has changed");
        }
    }
}
