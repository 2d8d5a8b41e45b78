//! The commit lock, under which commits get their order. Only work that must happen in order is done under it. If no
//! segment is preallocated when one is needed, the commit creates it under the lock.
//!
//! A commit that finds the lock free takes it. Otherwise it adds its request to a list (`write/waiting.rs`). A commit
//! that gets the lock also serves the requests on the list, like the leader of a write group in RocksDB, but only as
//! far as reservations go: each commit writes its own log record and memtable entries. A commit whose request is not
//! answered tries the lock again and then serves the list itself. After about 100 microseconds, or at once if many
//! commits sleep already, it sleeps until it gets the lock.

use super::budget::LogShare;
use super::log::LogTail;
use super::publish::{CommitPoint, Publisher};
use super::request::{Request, Reserved, Targets};
use super::segment::LogDirectory;
use super::waiting::{Answer, Waiting, WaitingRequests};
use crate::base::cache_padded::CachePadded;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::spin_wait::SpinWait;
use drumlin_env::sync::atomic::{AtomicBool, Ordering::Relaxed};
use drumlin_env::sync::{Mutex, MutexGuard};
use drumlin_types::{LogNumber, Seq};

/// State under the lock.
pub(crate) struct CommitState {
    /// Sequence number of the next operation.
    pub(crate) next_seq: Seq,
    pub(crate) log: LogTail,
    /// Whether the store is being closed. No record may follow the close record.
    pub(crate) closed: bool,
}

/// The commit lock, and what its holder needs.
pub(crate) struct CommitLock {
    pub(crate) directory: LogDirectory,
    pub(crate) state: Mutex<CommitState>,
    waiting: CachePadded<WaitingRequests>,
    /// Whether a commit asked to prefault the log.
    wants_prefault: AtomicBool,
    /// Whether prefaulting failed since the store was opened. It is not tried again: it only saves time.
    cannot_prefault: AtomicBool,
}

impl CommitLock {
    pub(crate) fn new(directory: LogDirectory, state: CommitState) -> CommitLock {
        CommitLock {
            directory,
            state: Mutex::new(state),
            waiting: CachePadded::default(),
            wants_prefault: AtomicBool::new(false),
            cannot_prefault: AtomicBool::new(false),
        }
    }

    /// Preallocates the file of the next segment if one is wanted. Returns `false` if none is wanted. A failure here
    /// loses nothing: the commit that needs the segment tries again and reports its error.
    pub(crate) fn make_ready(&self, fresh_number: impl FnOnce() -> u64) -> Result<bool> {
        let Some(recycled) = self.state.lock().log.next_to_make(&self.directory) else { return Ok(false) };
        let made = self.directory.make_ready(LogNumber(fresh_number()), recycled);
        let log = &mut self.state.lock().log;
        match made {
            Ok(made) => log.made_ready(made),
            Err(error) => {
                log.not_made_ready();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Asks the preallocation lane to [prefault the log](CommitLock::prefault_log). Returns `false` if that failed
    /// before.
    pub(crate) fn ask_for_prefault(&self) -> bool {
        if self.cannot_prefault.load(Relaxed) {
            return false;
        }
        self.wants_prefault.store(true, Relaxed);
        true
    }

    /// Returns whether prefaulting has not failed yet.
    #[cfg(test)]
    pub(crate) fn can_prefault(&self) -> bool {
        !self.cannot_prefault.load(Relaxed)
    }

    /// Prefaults the part of the open segment that the next records go into, if a commit asked for it. Otherwise the
    /// first copy into a page faults, and the commits of other threads that copy into it wait asleep: in the worst
    /// case, all commits wait once for each page.
    pub(crate) fn prefault_log(&self) {
        if !self.wants_prefault.load(Relaxed) || !self.wants_prefault.swap(false, Relaxed) {
            return;
        }
        let Some((segment, range)) = self.state.lock().log.next_to_prefault() else { return };
        let Ok(file) = segment.file() else { return };
        if file.prefault_writes(range.start, range.end - range.start) {
            self.state.lock().log.prefaulted_to(&segment, range.end);
        } else {
            self.cannot_prefault.store(true, Relaxed);
        }
    }

    /// Makes the header and the directory entry of every open segment durable. Called by
    /// [`DurableLog::sync_segment_starts`](super::DurableLog::sync_segment_starts) while it holds the sync turn.
    pub(super) fn sync_segment_starts(&self) -> Result<()> {
        let segments = self.state.lock().log.starts_not_durable();
        let Some(last) = segments.last() else { return Ok(()) };
        segments.iter().try_for_each(|segment| segment.sync_header())?;
        self.directory.sync_entries(&segments)?;
        self.state.lock().log.starts_durable(last.number);
        Ok(())
    }

    /// Reserves everything that `request` needs. On an error nothing is reserved.
    pub(crate) fn reserve(
        &self,
        request: &Request<'_>,
        publisher: &Publisher,
        fresh_number: impl Fn() -> u64,
    ) -> Result<Reserved> {
        let leader = Leader { commit_lock: self, publisher, fresh_number };
        let free = if self.waiting.is_empty() { self.state.try_lock() } else { None };
        if let Some(state) = free
            && let Answer::Ended(reserved) = leader.serve_own(state, request)
        {
            return reserved;
        }
        let clock = self.directory.env.clock();
        let began = clock.monotonic_micros();
        loop {
            // A commit that is served while its thread does not run holds back all later ones.
            let answer = match publisher.is_crowded() {
                true => leader.sleep_and_serve(request),
                false => {
                    self.waiting.submit(request, |waiting| self.wait_answered(waiting, request, &leader))
                }
            };
            match answer {
                Answer::RingFull => publisher.wait_for_room()?,
                Answer::Ended(reserved) => {
                    let waited = clock.monotonic_micros().saturating_sub(began);
                    return reserved.map(|reserved| Reserved { waited, ..reserved });
                }
            }
        }
    }

    /// Waits until the request `waiting` is answered. Returns the answer if the thread slept until it got the lock.
    fn wait_answered<N: Fn() -> u64>(
        &self,
        waiting: &Waiting<'_>,
        request: &Request<'_>,
        leader: &Leader<'_, N>,
    ) -> Option<Answer> {
        let mut wait = SpinWait::new(true);
        while !waiting.is_answered() {
            if wait.spin() {
                if let Some(state) = self.state.try_lock() {
                    leader.serve(state, request, |_| ());
                }
            } else if waiting.mark_sleeping() {
                return Some(leader.sleep_and_serve(request));
            } else {
                drumlin_env::yield_now();
            }
        }
        None
    }
}

/// What a commit needs to reserve for itself and for others.
struct Leader<'a, N> {
    commit_lock: &'a CommitLock,
    publisher: &'a Publisher,
    /// Returns a file number that was never used.
    fresh_number: N,
}

impl<N: Fn() -> u64> Leader<'_, N> {
    /// Calls `first`, and then answers the requests on the list. `request` is that of this thread.
    fn serve<T>(
        &self,
        mut state: MutexGuard<'_, CommitState>,
        request: &Request<'_>,
        first: impl FnOnce(&mut CommitState) -> T,
    ) -> T {
        // This pin lasts until the lock is released, so that no retired view is freed under the lock. Pins in `active`
        // and `seal` are nested in it.
        let pin = request.keyspaces.first().map(|keyspace| keyspace.pin());
        let result = first(&mut state);
        let waiting = &self.commit_lock.waiting;
        if !waiting.is_empty() {
            waiting.answer_all(|request| self.answer(&mut state, request));
        }
        drop(state);
        drop(pin);
        result
    }

    /// Answers `request`, and then the requests on the list. Returns the answer to `request`.
    fn serve_own(&self, state: MutexGuard<'_, CommitState>, request: &Request<'_>) -> Answer {
        self.serve(state, request, |state| self.answer(state, request))
    }

    /// Sleeps until it gets the lock, and then does as [`serve_own`](Leader::serve_own).
    fn sleep_and_serve(&self, request: &Request<'_>) -> Answer {
        let state = self.publisher.asleep(|| self.commit_lock.state.lock());
        self.serve_own(state, request)
    }

    fn answer(&self, state: &mut CommitState, request: &Request<'_>) -> Answer {
        if state.closed {
            return Answer::Ended(Err(Error::new(ErrorKind::Closed, "the store was closed")));
        }
        // The log may have failed since the commit was admitted (order rule O10).
        if let Some(error) = self.publisher.failure() {
            return Answer::Ended(Err(error.with_kind(ErrorKind::Poisoned)));
        }
        if !self.publisher.has_room() {
            return Answer::RingFull;
        }
        Answer::Ended(self.reserve(state, request))
    }

    fn reserve(&self, state: &mut CommitState, request: &Request<'_>) -> Result<Reserved> {
        // A keyspace is dropped under this lock, so a commit that comes too late fails here.
        request.keyspaces.iter().try_for_each(|keyspace| keyspace.check_alive())?;
        let (first_seq, last_seq) = (state.next_seq, state.next_seq + request.operations - 1);
        let mut waited = 0;
        let log = match request.record_len {
            Some(len) => {
                let CommitLock { directory, .. } = self.commit_lock;
                let clock = directory.env.clock();
                let share = if request.only_deletes { LogShare::Deletes } else { LogShare::Writes };
                let begins = state.log.begins_segment(len).then(|| clock.monotonic_micros());
                let log = state.log.reserve(directory, share, len, last_seq, &self.fresh_number)?;
                waited = begins.map_or(0, |began| clock.monotonic_micros().saturating_sub(began));
                Some(log)
            }
            None => None,
        };
        let unfinished = Unfinished(self.publisher);
        let mut sealed = false;
        let mut memtables = Targets::default();
        for keyspace in request.keyspaces {
            if keyspace.active_bytes() >= keyspace.memtable_limit() {
                sealed |= keyspace.seal(state.log.segment.number);
            }
            let memtable = keyspace.active();
            memtable.begin_write();
            memtables.push((keyspace.id, memtable));
        }
        state.next_seq = last_seq + 1;
        let (logged, log_end) = (state.log.last_seq(), state.log.position());
        let number = self.publisher.enter(CommitPoint { seq: last_seq, logged, log_end });
        std::mem::forget(unfinished);
        Ok(Reserved { first_seq, log, memtables, number, sealed, waited })
    }
}

/// A reservation that has space in the log and no place among the commits. A panic leaves a hole in the log, so no
/// later commit may be published. The thread whose commit it is poisons the store (`ops/write.rs`).
struct Unfinished<'a>(&'a Publisher);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let error = Error::new(ErrorKind::Bug, "a write panicked while it held the commit lock");
        self.0.fail(error.with_kind(ErrorKind::Poisoned));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_published_behind_an_unfinished_reservation() {
        let publisher = Publisher::new(CommitPoint::default(), 1);
        drop(Unfinished(&publisher));
        let number = publisher.enter(CommitPoint { seq: 1, logged: 1, log_end: 1 });
        let error = publisher.finish(number, || 0).expect_err("the log has a hole before it");
        assert_eq!((error.kind(), publisher.visible()), (ErrorKind::Poisoned, 0));
    }
}
