//! Which part of the log is durable, and the one sync at a time that extends it.

use super::commit_lock::CommitLock;
use super::publish::{CommitPoint, Publisher};
use super::segment::Segment;
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Condvar, Mutex, atomic};
use drumlin_types::Seq;

/// The durable part of the log.
pub(crate) struct DurableLog {
    /// Global position at which the log ended when the store was opened.
    found_end: u64,
    durable_end: atomic::AtomicU64,
    durable_seq: atomic::AtomicU64,
    turn: Mutex<Turn>,
    synced: Condvar,
}

/// The turn to sync the log; one thread has it at a time. The kernel reports lost pages only once, to the first sync
/// after the loss, and then treats them as clean. So no sync may run beside or after one that failed.
#[derive(Default)]
struct Turn {
    taken: bool,
    failed: Option<Error>,
}

impl DurableLog {
    pub(crate) fn new(durable: CommitPoint) -> DurableLog {
        DurableLog {
            found_end: durable.log_end,
            durable_end: atomic::AtomicU64::new(durable.log_end),
            durable_seq: atomic::AtomicU64::new(durable.logged),
            turn: Mutex::new(Turn::default()),
            synced: Condvar::new(),
        }
    }

    /// Returns the global position up to which the log is durable.
    pub(crate) fn durable_end(&self) -> u64 {
        self.durable_end.load(atomic::Ordering::Acquire)
    }

    /// Returns the position up to which the log was made durable since the store was opened, if any. What recovery
    /// found is not included: it may be in the page cache only, until it is in tables.
    pub(crate) fn promised_end(&self) -> Option<u64> {
        Some(self.durable_end()).filter(|end| *end > self.found_end)
    }

    /// Returns the last sequence number that would survive power loss: all logged commits up to it are in the durable
    /// part of the log or in durable tables. A flush of commits that were not logged raises it too.
    pub(crate) fn durable_seq(&self) -> Seq {
        self.durable_seq.load(atomic::Ordering::Acquire)
    }

    /// Records that every commit up to `seq` is in durable tables.
    pub(crate) fn in_tables(&self, seq: Seq) {
        self.durable_seq.fetch_max(seq, atomic::Ordering::AcqRel);
    }

    /// Makes the log durable up to global position `end`, which must be published. One thread syncs for all waiting
    /// threads; those whose records were written after its sync began sync again. Returns the number of syncs that this
    /// call made.
    pub(crate) fn sync_to(&self, end: u64, publisher: &Publisher, commit_lock: &CommitLock) -> Result<u64> {
        let mut calls = 0;
        while self.take_turn(|| self.durable_end() >= end)? {
            self.in_turn(|| self.sync_once(publisher, commit_lock, &mut calls))?;
        }
        Ok(calls)
    }

    /// Makes the header and the directory entry of all open segments durable, so that recovery may start in any of
    /// them.
    pub(crate) fn sync_segment_starts(&self, commit_lock: &CommitLock) -> Result<()> {
        self.take_turn(|| false)?;
        self.in_turn(|| commit_lock.sync_segment_starts())
    }

    /// Makes the records written to `segment` durable.
    pub(crate) fn sync_segment(&self, segment: &Segment) -> Result<()> {
        self.take_turn(|| false)?;
        self.in_turn(|| segment.sync())
    }

    /// Waits for this thread's turn to sync and returns `true`, or returns `false` as soon as `done` holds. Returns an
    /// error if a sync has failed.
    fn take_turn(&self, done: impl Fn() -> bool) -> Result<bool> {
        let mut turn = self.turn.lock();
        loop {
            if done() {
                return Ok(false);
            }
            if let Some(error) = &turn.failed
                && !drumlin_types::bug!("failed-sync-told-once")
            {
                return Err(error.clone());
            }
            if !turn.taken {
                turn.taken = true;
                return Ok(true);
            }
            turn = self.synced.wait(turn);
        }
    }

    /// Does the work of the turn that this thread has taken, and ends the turn, even if `work` panics. Otherwise all
    /// later syncs, and the one of `close`, would wait for ever.
    fn in_turn(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        struct Turn<'a>(&'a DurableLog);
        impl Drop for Turn<'_> {
            fn drop(&mut self) {
                let _ = self.0.end_turn(Err(Error::new(ErrorKind::Bug, "a sync of the log panicked")));
            }
        }
        let turn = Turn(self);
        let result = work();
        std::mem::forget(turn);
        self.end_turn(result)
    }

    fn end_turn(&self, result: Result<()>) -> Result<()> {
        let mut turn = self.turn.lock();
        turn.taken = false;
        // Too many open files means that nothing was synced, so a later turn may try again. Any other failure is final.
        if let Err(error) = &result
            && error.kind() != ErrorKind::TooManyFiles
        {
            turn.failed.get_or_insert_with(|| error.clone());
        }
        self.synced.notify_all();
        result
    }

    /// Records a failure of the log. It is never synced again.
    pub(crate) fn fail(&self, error: &Error) {
        self.turn.lock().failed.get_or_insert_with(|| error.clone());
        self.synced.notify_all();
    }

    fn sync_once(&self, publisher: &Publisher, commit_lock: &CommitLock, calls: &mut u64) -> Result<()> {
        let (segments, published) = {
            let locked = commit_lock.state.lock();
            (locked.log.to_sync(), publisher.last_published())
        };
        for segment in &segments {
            if !drumlin_types::bug!("no-log-sync") {
                let result = segment.sync();
                if drumlin_types::bug!("sync-retried") && result.is_err() { segment.sync() } else { result }?;
            }
            *calls += 1;
        }
        commit_lock.directory.sync_entries(&segments)?;
        // A sync of a segment that was removed or truncated meanwhile makes nothing durable, even if it succeeds.
        commit_lock.directory.check_lock()?;
        let damaged: Vec<_> =
            segments.iter().filter_map(|segment| Some((segment.number, segment.check().err()?))).collect();
        let mut state = commit_lock.state.lock();
        if let Some((_, error)) = damaged.into_iter().find(|(number, _)| state.log.is_live(*number)) {
            return Err(error);
        }
        state.log.synced_up_to(published.log_end);
        if let Some(last) = segments.last() {
            state.log.starts_durable(last.number);
        }
        drop(state);
        self.durable_end.fetch_max(published.log_end, atomic::Ordering::AcqRel);
        self.durable_seq.fetch_max(published.logged, atomic::Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel reports lost pages once: a thread that waits while a sync fails would see its own sync succeed.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits on real threads")]
    fn who_waits_while_a_sync_fails_is_told() {
        let log = DurableLog::new(CommitPoint::default());
        assert!(log.take_turn(|| false).expect("the turn is free"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| log.take_turn(|| log.durable_end() >= 7));
            let error = Error::new(ErrorKind::Io, "a page is lost");
            assert!(log.end_turn(Err(error)).is_err());
            let told = waiting.join().expect("no panic").expect_err("no sync may follow a failed one");
            assert!(told.to_string().contains("a page is lost"), "{told}");
        });
        assert!(!log.take_turn(|| true).expect("a durable position needs no sync"));
    }

    /// A thread that panics in its turn does not keep it.
    #[test]
    fn a_sync_that_panics_fails_the_later_ones() {
        let log = DurableLog::new(CommitPoint::default());
        assert!(log.take_turn(|| false).expect("the turn is free"));
        let panics = std::panic::AssertUnwindSafe(|| log.in_turn(|| panic!("as the test wants")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(log.take_turn(|| false).expect_err("a sync failed").kind(), ErrorKind::Bug);
    }
}
