//! Close: stops background work, records a clean end in the log and the manifest, and releases the directory.
//!
//! 1. Stop the background lanes, and refuse new commits.
//! 2. Wait for running commits. If one runs for over 60 s, close fails and the directory stays locked.
//! 3. Make the log durable. If all writes are in tables, begin a new segment. Write the close record, and make it and
//!    the directory entry of its segment durable; without disk space for it there is none. Then record the end and the
//!    floor of the log and the states of the policies in the manifest, and statistics if there is space for them.
//! 4. Keep the tables open that live iterators may still read, and release the directory lock.
//!
//! Memtables are not flushed: the next open replays the log from its floor.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::store::Store;
use crate::version::value_files;
use crate::write::budget::LogShare;
use drumlin_env::sync::atomic;
use drumlin_format::log::{RecordHeader, RecordKind};
use drumlin_format::manifest::{Change, Edit};
use drumlin_types::ValueFileId;
use std::cell::Cell;

thread_local! {
    /// Address of the store that this thread is closing, or 0.
    static CLOSING: Cell<usize> = const { Cell::new(0) };
}

impl Store {
    /// Closes the store. If it is closed already, or another thread closes it, returns the result of that close.
    pub(crate) fn close(&self) -> Result<()> {
        if self.health.closed.swap(true, atomic::Ordering::SeqCst) {
            return self.wait_closed();
        }
        CLOSING.set(std::ptr::from_ref(self).addr());
        let mut closing = Closing { store: self, result: None };
        let result = self.close_once();
        closing.result = Some(result.clone());
        result
    }

    /// Waits until another thread has closed the store, and returns its result. An event listener on a lane's thread or
    /// on the closing thread must not wait, because the close waits for that thread. It gets `Ok` at once.
    fn wait_closed(&self) -> Result<()> {
        if CLOSING.get() == std::ptr::from_ref(self).addr() || self.background.is_lane_thread() {
            return Ok(());
        }
        let mut ended = self.health.close_ended.lock();
        loop {
            if let Some(result) = &*ended {
                return result.clone();
            }
            ended = self.health.close_moved.wait(ended);
        }
    }

    fn close_once(&self) -> Result<()> {
        self.background.stop();
        self.disk_budget.release_reservations();
        self.commit_lock.state.lock().closed = true;
        let ended = self.publisher.wait_ended().map_err(|_| {
            let what = "a write has been running for over 60 s; \
                the directory stays locked until it finishes and all handles are dropped";
            Error::new(ErrorKind::Busy, what)
        });
        // A retired view holds files. It also keeps itself alive: it holds the block cache, which holds the epochs,
        // which hold the view.
        self.files.cache.epochs().collect();
        // Finished outputs that wait for an earlier install are discarded. The next open schedules compactions anew.
        let held = std::mem::take(&mut *self.held.lock());
        drop(held);
        let result = match (&ended, self.health.read_only) {
            (Err(error), _) => Err(error.clone()),
            (Ok(()), true) => Ok(()),
            (Ok(()), false) => {
                self.write_decisions();
                self.save_at_close()
            }
        };
        self.control.lock().closed = true;
        let iterators = self.counts.live_scans();
        if iterators > 0 {
            self.hold_tables();
        }
        // A commit that still runs may copy its record into the log. As long as its handle exists, the directory must
        // stay locked.
        if ended.is_ok() {
            self.files.unlock();
        }
        self.tell(Event::Closed { iterators, snapshots: self.snapshots.len() as u64 });
        result
    }

    /// Opens the tables and value files that live iterators may still read, including those of older versions, and
    /// keeps them open: the next open of the store may remove their files. Ignores a file that cannot be opened, for
    /// example for lack of file descriptors. An iterator that reads it then tries again and may fail.
    fn hold_tables(&self) {
        self.files.tables.keep_all();
        for keyspace in self.keyspaces().iter() {
            for (_, _, file) in keyspace.view().tree.files() {
                let _ = file.table.open(&self.files.tables);
            }
        }
        for table in self.files.obsolete.pinned() {
            let _ = table.open(&self.files.tables);
        }
        let keyspaces = self.keyspaces();
        let views = keyspaces.iter().map(|keyspace| keyspace.view());
        let live: Vec<ValueFileId> = views
            .flat_map(|view| value_files(view.tree.files().map(|(_, _, file)| file)).into_keys())
            .collect();
        self.files.values.keep_all(self.files.obsolete.pinned_values().into_iter().chain(live));
    }

    fn save_at_close(&self) -> Result<()> {
        self.health.check_poison()?;
        self.publisher.drain()?;
        self.sync_log(self.publisher.last_published().log_end)?;
        let log_end = self.write_close_record()?;
        let floor = self.log_floor(&[]);
        let mut control = self.control.lock();
        let changes = control
            .keyspaces
            .iter()
            .map(|k| {
                let (name, blob) = k.durable_policy();
                Change::Policy { keyspace: k.state.id, name, blob }
            })
            .chain([Change::LastSeq(self.log.durable_seq()), Change::ClockMark(self.files.unix_micros())])
            // Recovery trusts the close record only with this mark: the record itself may be in the page cache only.
            .chain(log_end.map(Change::LogEnd))
            .chain([Change::LogFloor(floor)])
            .collect();
        self.append_edit(&mut control, Edit { changes }, || {})?;
        drop(control);
        // Statistics come last: a disk that is too full for them must not make the store look as if it had crashed.
        match self.save_lookups() {
            Err(error) if error.is_shortage() => Ok(()),
            saved => saved,
        }
    }

    /// Writes the close record of the log, which holds the durable length of the manifest. Returns the log position
    /// after it, or `None` if there is no disk space for it: all writes are durable, and the next open replays the log
    /// as after a crash.
    fn write_close_record(&self) -> Result<Option<u64>> {
        let payload = self.control.lock().manifest.vouched().encode();
        let mut locked = self.commit_lock.state.lock();
        if !self.keyspaces().iter().any(|keyspace| keyspace.view().memtables().any(|m| m.holds_writes())) {
            locked.log.begin_for_close(&self.commit_lock.directory, || self.files.fresh_number());
        }
        let last = locked.log.last_seq();
        let len = drumlin_format::log::record_len(payload.len());
        let space = locked
            .log
            .reserve(&self.commit_lock.directory, LogShare::Close, len, last, || self.files.fresh_number());
        let space = match space {
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(None),
            space => space?,
        };
        let header = RecordHeader {
            kind: RecordKind::Close,
            synced_mark: self.log.durable_end(),
            first_seq: 0,
            count: 0,
        };
        let mut record = Vec::new();
        drumlin_format::log::encode_record(
            &mut record,
            space.segment.number,
            space.offset(),
            &header,
            &payload,
        )
        .map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        drop(locked);
        let written = crate::write::log::write(&space, &record, true)
            .and_then(|()| self.log.sync_segment(&space.segment))
            .and_then(|()| self.log.sync_segment_starts(&self.commit_lock));
        written.inspect_err(|error| self.poison(error))?;
        Ok(Some(space.end))
    }
}

/// Running close. When it ends, even by a panic, other callers of close get its result.
struct Closing<'a> {
    store: &'a Store,
    result: Option<Result<()>>,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        CLOSING.set(0);
        let panicked = || Err(Error::new(ErrorKind::Bug, "closing the store panicked"));
        *self.store.health.close_ended.lock() = Some(self.result.take().unwrap_or_else(panicked));
        self.store.health.close_moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::base::epoch::EpochPtrs;
    use crate::table::BlockCache;
    use drumlin_env::MemEnv;
    use drumlin_env::sync::Arc;

    /// A reader that unpins while close collects may leave a retired view behind. The view holds the cache, and the
    /// cache holds the epochs, which hold the view.
    #[test]
    fn values_retired_after_the_collection_of_close_do_not_keep_the_store_alive() {
        let db = Db::builder("/s").env(MemEnv::new(9).env()).open().expect("open");
        let cache = db.keyspace("k").expect("keyspace").store.files.cache.clone();
        db.clone().close().expect("close");
        let retired = EpochPtrs::<BlockCache>::new(1, cache.epochs());
        retired.store(0, Some((cache.clone(), std::ptr::null())), 1, cache.epochs());
        retired.store(0, None, 1, cache.epochs());
        let alive = Arc::downgrade(&cache);
        drop((retired, cache, db));
        assert!(alive.upgrade().is_none(), "the retired value was not dropped");
    }
}
