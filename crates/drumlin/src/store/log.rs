//! Which segments of the log an open store needs, and when it releases them.
//!
//! The *floor* is the first segment that holds a record which is not in tables yet. Segments below the durable floor
//! are recycled or unlinked. When the log grows too long, the memtables that hold the floor back are sealed.

use super::Store;
use crate::base::error::{Error, ErrorKind};
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::write::log::Released;
use drumlin_env::sync::Arc;
use drumlin_types::LogNumber;

/// Fraction of the disk budget, as a divisor, at which the log makes memtables be flushed.
const LOG_MOST: u64 = 16;

impl Store {
    /// Returns the log floor once the memtables `flushed` are in tables.
    pub(crate) fn log_floor(&self, flushed: &[Arc<Memtable>]) -> LogNumber {
        let locked = self.commit_lock.state.lock();
        let mut floor = locked.log.segment.number;
        for keyspace in self.keyspaces().iter() {
            let view = keyspace.view();
            for memtable in view.memtables() {
                let is_flushed = flushed.iter().any(|f| Arc::ptr_eq(f, memtable));
                if !is_flushed && memtable.holds_writes() {
                    floor = floor.min(memtable.first_log());
                }
            }
        }
        if drumlin_types::bug!("log-floor-not-durable") { floor } else { locked.log.floor(floor) }
    }

    /// Recycles or unlinks the log segments below `floor`, which is durable.
    pub(crate) fn release_log(&self, floor: LogNumber) {
        let mut locked = self.commit_lock.state.lock();
        let released = locked.log.release_below(floor);
        // Under the lock, so that the disk budget counts their bytes at any time.
        self.unlink_log(&released);
        drop(locked);
    }

    /// Calls `read` with the live segments of the log, oldest first, and with the position up to which every record is
    /// written. No segment is released until `read` returns.
    pub(crate) fn read_log<T>(&self, read: impl FnOnce(&[LogNumber], u64) -> T) -> T {
        let kept = {
            let mut locked = self.commit_lock.state.lock();
            let numbers = locked.log.begin_reading();
            KeptLog { store: self, numbers, written: self.publisher.last_published().log_end }
        };
        read(&kept.numbers, kept.written)
    }

    /// Frees file descriptors if `error` reports that none was left. Closes tables and value files first, then log
    /// segments, which it makes durable: a log that has grown for want of a descriptor would otherwise keep flushes
    /// from ever getting one.
    pub(crate) fn relieve_descriptors(&self, error: &Error) {
        if error.kind() != ErrorKind::TooManyFiles {
            return;
        }
        self.files.tables.relieve(error);
        self.files.values.relieve();
        // Best effort: the next attempt of the job that failed reports what is wrong.
        let _ = self.sync_log(self.publisher.last_published().log_end);
        let mut locked = self.commit_lock.state.lock();
        let released = locked.log.release_descriptors();
        self.unlink_log(&released);
        drop(locked);
    }

    /// Unlinks the log segments that are kept for recycling. Returns whether there were any.
    pub(crate) fn release_spare_log(&self) -> bool {
        let mut locked = self.commit_lock.state.lock();
        let released = locked.log.release_spares();
        self.unlink_log(&released);
        drop(locked);
        released.files().next().is_some()
    }

    fn unlink_log(&self, released: &Released) {
        for (number, bytes) in released.files() {
            self.files.obsolete.push_file(crate::write::segment::path_in(&self.files.dir, number), bytes);
        }
    }

    /// Seals the memtables that hold the log floor back, if the log has grown too long. Under a disk budget that is
    /// sooner: the log must leave space for flushes and compactions.
    pub(crate) fn relieve_log(&self) {
        let most = match self.options.load().disk_budget {
            0 => self.sizes.log,
            budget => {
                self.sizes.log.min((budget / LOG_MOST).max(2 * self.commit_lock.directory.segment_bytes()))
            }
        };
        let locked = self.commit_lock.state.lock();
        if locked.log.live_bytes() <= most {
            return;
        }
        let number = locked.log.segment.number;
        let oldest = self.keyspaces().iter().filter_map(|k| k.first_log()).min();
        // A memtable that is already sealed will be flushed anyway, so newer memtables need not be sealed.
        let holds = |keyspace: &KeyspaceState| Some(keyspace.active().first_log()) == oldest;
        for keyspace in self.keyspaces().iter() {
            if oldest.is_some_and(|oldest| oldest < number) && holds(keyspace) {
                keyspace.seal(number);
            }
        }
    }

    /// Returns whether log segment `number` is kept for recycling.
    pub(crate) fn keeps_log(&self, number: LogNumber) -> bool {
        self.commit_lock.state.lock().log.is_spare(number)
    }
}

/// Live segments of the log, which are kept until this is dropped.
struct KeptLog<'a> {
    store: &'a Store,
    numbers: Vec<LogNumber>,
    written: u64,
}

impl Drop for KeptLog<'_> {
    fn drop(&mut self) {
        let mut locked = self.store.commit_lock.state.lock();
        let released = locked.log.end_reading();
        self.store.unlink_log(&released);
        drop(locked);
    }
}
