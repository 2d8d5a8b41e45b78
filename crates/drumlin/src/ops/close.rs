//! Close: stops background work, records a clean end in the log and the manifest, and releases the directory.
//!
//! 1. Stop the background lanes, and refuse new commits.
//! 2. Wait for running commits. If one runs for over 60 s, close fails and the directory stays locked.
//! 3. Make the log durable, write its close record, and save the states of the policies in the manifest.
//! 4. Keep the tables open that live iterators may still read, and release the directory lock.
//!
//! Memtables are not flushed: the next open replays the log.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::store::Store;
use crate::write::budget::LogShare;
use drumlin_env::sync::atomic;
use drumlin_format::log::{RecordHeader, RecordKind};
use drumlin_format::manifest::{Change, Edit};
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
        self.lane.state.lock().closed = true;
        let ended = self.publisher.wait_ended().map_err(|_| {
            let what = "a write has been running for over 60 s; \
                the directory stays locked until it finishes and all handles are dropped";
            Error::new(ErrorKind::Busy, what)
        });
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
        let iterators = self.metrics.iterators.load(atomic::Ordering::SeqCst);
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

    /// Opens the tables that live iterators may still read, including those of older versions, and keeps them open: the
    /// next open of the store may remove their files. Ignores a table that cannot be opened, for example for lack of
    /// file descriptors. An iterator that reads it then tries again and may fail.
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
    }

    fn save_at_close(&self) -> Result<()> {
        self.health.check_poison()?;
        self.publisher.drain()?;
        self.sync_log(self.publisher.published().log_end)?;
        let log_end = self.write_close_record()?;
        self.save_lookups()?;
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
            .chain([Change::LogEnd(log_end)])
            .collect();
        self.append_edit(&mut control, Edit { changes }, || {})
    }

    /// Writes the close record of the log, which holds the durable length of the manifest. Returns the log position
    /// after it.
    fn write_close_record(&self) -> Result<u64> {
        let payload = self.control.lock().manifest.vouched().encode();
        let mut lane = self.lane.state.lock();
        let last = lane.log.last_seq();
        let len = drumlin_format::log::record_len(payload.len());
        let place = lane
            .log
            .reserve(&self.lane.directory, LogShare::Close, len, last, || self.files.fresh_number())?;
        let header = RecordHeader {
            kind: RecordKind::Close,
            synced_mark: self.log.durable_end(),
            first_seq: 0,
            count: 0,
        };
        let mut record = Vec::new();
        drumlin_format::log::encode_record(
            &mut record,
            place.segment.number,
            place.offset(),
            &header,
            &payload,
        )
        .map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        drop(lane);
        let written = crate::write::log::write(&place, &record)
            .and_then(|()| self.log.sync_segment(&place.segment))
            .and_then(|()| self.log.sync_segment_starts(&self.lane));
        written.inspect_err(|error| self.poison(error))?;
        Ok(place.end)
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
