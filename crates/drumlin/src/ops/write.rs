//! Writing a batch.
//!
//! 1. Encode: `write/operations.rs` encoded the operations when they were added; `validate` checks them as a whole.
//! 2. Admit: `ops/admission.rs` waits for memory, and for the rate that compactions allow (a write stall).
//! 3. Reserve: `write/commit_lock.rs` reserves sequence numbers, log space, memtables and a place in the publishing
//!    ring. The commit that holds the lock also does so for others that wait for it.
//! 4. Log: `write/log.rs` writes the record into the reserved space.
//! 5. Apply: `write/apply.rs` inserts the operations into the memtables (`memtable/memtable.rs`). It finds the place of
//!    the first operation before step 4, and prefetches what the insert reads.
//! 6. Publish: `write/publish.rs` makes the commit visible once all earlier ones are.
//! 7. Sync: with `Durability::Sync`, `write/sync.rs` lets one writer at a time call fsync, for all that wait.
//!    `store/sync.rs` poisons the store if that fails, and `ops/sync.rs` counts the wait.
//!
//! A commit is visible before it is durable: other threads read it while its writer waits for the fsync. If the fsync
//! fails, the store takes no more writes, and the commit may be missing after the next open.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::metrics::Counters;
use crate::options::Durability;
use crate::stats::{EACH, OperationKind};
use crate::store::Store;
use crate::write::operations::Operations;
use crate::write::request::{Request, Reserved};
use drumlin_env::sync::plain::atomic;
use drumlin_env::{Note, local, region};
use drumlin_format::batch::Operation;
use drumlin_format::log::{self as format, RecordHeader, RecordKind};
use drumlin_types::Seq;
use std::cell::RefCell;

/// Shortest wait for other commits that is counted, in microseconds.
const COMMIT_WAIT_LEAST: u64 = 100;

/// Context of the error of a write whose sync found no file descriptor.
const WRITTEN_UNSYNCED: &str = "the write is done but not durable yet: call sync, do not repeat the write";

/// Text of the error of a write that panicked.
const PANICKED: &str = "a write panicked; durable data is safe and will be there after reopening";

thread_local! {
    /// The encoded record of the commit under way on this thread.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Store {
    /// Writes `batch` as one commit and gives its commit sequence: the sequence number of its last
    /// operation. An empty batch writes nothing and gives the visible sequence.
    pub(crate) fn write(&self, batch: &Operations, durability: Durability) -> Result<Seq> {
        self.background.step_in_simulation();
        self.validate(batch, durability)?;
        if batch.is_empty() {
            return Ok(self.publisher.visible());
        }
        let clock = self.files.env.clock();
        let is_sampled = self.begin_sampled_write(batch);
        let now = || if is_sampled { clock.monotonic_nanos() } else { 0 };
        let call_began = now();
        let admitted = self.wait_admission(batch, is_sampled)?;
        let commit_began = now();
        let reserved = self.reserve(batch, durability)?;
        let under_way = ReservedCommit { store: self, reserved: &reserved, has_ended: false };
        let applied = self.log_and_insert(batch, &reserved, durability);
        let waited = under_way.end(applied)?;
        drop(admitted);
        self.count_commit_wait(reserved.waited + waited);
        self.wake_lanes(&reserved, durability);
        if is_sampled {
            self.record_sampled_write(batch, commit_began);
        }
        self.counts.committed(batch.len() as u64, batch.user_bytes);
        let last_seq = reserved.first_seq + batch.len() as u64 - 1;
        if durability == Durability::Sync
            && let Some(log) = &reserved.log
        {
            self.sync_for_caller(log.end).map_err(|error| match error.kind() {
                ErrorKind::TooManyFiles => {
                    error.with_kind(ErrorKind::NotDurable).with_context(WRITTEN_UNSYNCED)
                }
                _ => error,
            })?;
            self.files.env.note(Note::AckSynced { seq: last_seq });
        }
        if is_sampled {
            let nanos = now().saturating_sub(call_began);
            batch.keyspaces.iter().for_each(|keyspace| keyspace.activity.write_latency.record(nanos));
        }
        Ok(last_seq)
    }

    /// Counts a write that waited `micros` for other commits.
    fn count_commit_wait(&self, micros: u64) {
        if micros >= COMMIT_WAIT_LEAST {
            Counters::add(&self.metrics.commit_waits, 1);
            Counters::add(&self.metrics.commit_wait_micros, micros);
            self.metrics.commit_wait_longest_micros.fetch_max(micros, atomic::Ordering::Relaxed);
        }
    }

    /// Refuses a write that the store cannot take as a whole.
    fn validate(&self, batch: &Operations, durability: Durability) -> Result<()> {
        self.health.check_open()?;
        batch.check()?;
        self.health.check_read_only()?;
        let (bytes, most) = (batch.size() as u64, self.max_batch_bytes());
        let refused = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
        if bytes > most {
            return refused(format!(
                "a batch of {bytes} bytes is larger than {most}, a quarter of memory_budget; split it or raise \
                 memory_budget"
            ));
        }
        for keyspace in &batch.keyspaces {
            self.check_own(keyspace)?;
        }
        if durability == Durability::None && batch.keyspaces.len() > 1 {
            return refused(
                "a batch over several keyspaces needs the log to be atomic: use Durability::Buffered or Sync"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Counts a write in the load statistics. Returns whether it is a sample: it is timed and stands for others.
    fn begin_sampled_write(&self, batch: &Operations) -> bool {
        match batch.keyspaces.as_slice() {
            [] => false,
            [keyspace] => keyspace.meter.count_and_sample(OperationKind::Write, batch.len() as u64),
            [first, ..] => first.meter.samples_several(),
        }
    }

    /// Reserves sequence numbers, log space and memtables.
    fn reserve(&self, batch: &Operations, durability: Durability) -> Result<Reserved> {
        let is_logged = durability != Durability::None;
        let request = Request {
            keyspaces: &batch.keyspaces,
            operations: batch.len() as u64,
            record_len: is_logged.then(|| format::record_len(batch.size())),
            only_deletes: batch.only_delete(),
        };
        let reserved = {
            let _reserving = Reserving(self);
            self.commit_lock.reserve(&request, &self.publisher, || self.files.fresh_number())
        };
        match &reserved {
            Ok(reserved) if reserved.log.as_ref().is_some_and(|log| log.has_begun) => self.log_found_space(),
            Err(error) => {
                self.relieve_descriptors(error);
                if error.kind() == ErrorKind::NoSpace {
                    self.log_found_no_space();
                }
            }
            Ok(_) => {}
        }
        reserved
    }

    /// Wakes the lanes that have work after this commit.
    fn wake_lanes(&self, reserved: &Reserved, durability: Durability) {
        let has_begun = reserved.log.as_ref().is_some_and(|log| log.has_begun);
        // Synced commits write their records by system calls, which fault in no pages.
        let asks_for_prefault = durability == Durability::Buffered
            && reserved.log.as_ref().is_some_and(|log| log.should_prefault(self.log.durable_end()))
            && self.commit_lock.ask_for_prefault();
        // A flush may have found a memtable not ready because this commit was still writing to it.
        let is_waited_for = reserved.memtables.iter().any(|(_, memtable)| memtable.is_sealed());
        if reserved.sealed || has_begun || asks_for_prefault || is_waited_for || region::is_asked_for() {
            self.background.wake();
        }
    }

    /// Records a sampled commit, which began at `began`. A commit on several keyspaces is weighted by the
    /// sampling interval.
    fn record_sampled_write(&self, batch: &Operations, began: u64) {
        let nanos = self.files.env.clock().monotonic_nanos().saturating_sub(began);
        let operations = batch.len() as u64;
        self.costs.wrote(nanos / operations.max(1));
        for keyspace in &batch.keyspaces {
            let own = |operation: &Operation<'_>| operation.keyspace == keyspace.id;
            let (mut count, mut bytes) = (0, 0);
            let mut last: &[u8] = &[];
            for operation in batch.writer.operations().flatten().filter(own) {
                (count, bytes) = (count + 1, bytes + operation.key.len() + operation.value.len());
                last = operation.key;
            }
            keyspace.meter.keep_sampled_key(OperationKind::Write, last);
            keyspace.meter.wrote(count, bytes as u64);
            if batch.keyspaces.len() > 1 {
                keyspace.meter.add(OperationKind::Write, EACH * count);
            }
        }
    }

    fn log_and_insert(&self, batch: &Operations, reserved: &Reserved, durability: Durability) -> Result<()> {
        // Each operation is prepared one ahead, and the first before the log is written: meanwhile its memory arrives.
        let operations = (reserved.first_seq..).zip(batch.writer.operations());
        let mut operations = operations.map(|(seq, operation)| reserved.upcoming(seq, operation));
        let mut next = operations.next().transpose()?;
        if let Some(log) = &reserved.log {
            let header = RecordHeader {
                kind: RecordKind::Batch,
                // With this position, recovery distinguishes damage before it from an incomplete end of the log.
                synced_mark: if drumlin_types::bug!("no-synced-mark") { 0 } else { self.log.durable_end() },
                first_seq: reserved.first_seq,
                count: batch.writer.count(),
            };
            self.files.env.note(Note::Logged { log: log.segment.file()?.path(), first: reserved.first_seq });
            local::with(&RECORD, |record| {
                record.clear();
                format::encode_record(
                    record,
                    log.segment.number,
                    log.offset(),
                    &header,
                    batch.writer.payload(),
                )
                .map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
                self.counts.logged(record.len() as u64);
                let written = crate::write::log::write(log, record, durability == Durability::Sync);
                if record.capacity() > RECORD_KEPT {
                    *record = Vec::new();
                }
                written
            })?;
        }
        while let Some(present) = next {
            next = operations.next().transpose()?;
            present.apply()?;
        }
        Ok(())
    }
}

/// A commit that reserves its place. If that panics so that the log has a hole, the store is poisoned: flushes would
/// wait for the memtables of this commit.
struct Reserving<'a>(&'a Store);

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        if drumlin_env::is_unwinding() && self.0.publisher.has_failed() && !self.0.health.is_poisoned() {
            self.0.poison(&Error::new(ErrorKind::Bug, PANICKED));
        }
    }
}

/// A commit that has reserved its place. However it ends, it leaves its memtables and the publishing ring. Otherwise a
/// flush and all later commits would wait forever.
struct ReservedCommit<'a> {
    store: &'a Store,
    reserved: &'a Reserved,
    has_ended: bool,
}

impl ReservedCommit<'_> {
    /// Ends the commit, which was `applied`, and waits until it is published. Returns the microseconds that it waited.
    fn end(mut self, applied: Result<()>) -> Result<u64> {
        let Err(error) = applied else {
            self.end_writes();
            self.has_ended = true;
            return self.store.publisher.finish(self.reserved.number, || self.store.files.now());
        };
        // The drop of `self` abandons the commit, even if a listener that `poison` calls panics.
        self.store.poison(&error);
        Err(error.with_kind(ErrorKind::Poisoned))
    }

    fn end_writes(&self) {
        for (_, memtable) in self.reserved.memtables.iter() {
            memtable.end_write();
        }
    }
}

impl Drop for ReservedCommit<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.end_writes();
        // The state of the commit in the log and the memtables is unknown. Another thread may be about to poison the
        // store, so the publisher must learn of the failure here.
        let error = Error::new(ErrorKind::Bug, PANICKED);
        self.store.publisher.abandon(self.reserved.number, error.with_kind(ErrorKind::Poisoned));
        if drumlin_env::is_unwinding() && !self.store.health.is_poisoned() {
            self.store.poison(&error);
        }
    }
}

/// Capacity of the record buffer that a thread keeps.
const RECORD_KEPT: usize = 1 << 20;

#[cfg(test)]
mod life;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::db::Db;
    use drumlin_env::MemEnv;

    #[test]
    fn nothing_is_written_behind_the_end_of_the_log() {
        let mem = MemEnv::new(6);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let (store, keyspaces) = (keys.store.clone(), [keys.state.clone()]);
        keys.put("first", "1").expect("put");
        db.close().expect("close");
        // As a writer does that was slowed when the store was closed.
        let request = Request {
            keyspaces: &keyspaces,
            operations: 1,
            record_len: Some(format::record_len(9)),
            only_deletes: false,
        };
        let reserved = store.commit_lock.reserve(&request, &store.publisher, || store.files.fresh_number());
        assert!(reserved.is_err_and(|error| error.kind() == ErrorKind::Closed));
        for error in [keys.put("second", "2").err(), keys.set_option("ttl_seconds", "9").err()] {
            assert!(error.is_some_and(|error| error.kind() == ErrorKind::Closed));
        }
        drop((keys, store));
        let db = Db::builder("/s").env(mem.env()).open().expect("open again");
        assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 1);
    }

    #[test]
    fn the_log_is_prefaulted_unless_it_is_often_synced() {
        let dir = drumlin_env::TempDir::new("drumlin-prefault").expect("a directory");
        let db = Db::builder(dir.path()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let log = &keys.store.commit_lock;
        let write = |puts: u32, is_synced: bool| {
            for n in 0..puts {
                keys.put(n.to_be_bytes(), vec![7; 100_000]).expect("put");
                if is_synced {
                    db.sync().expect("sync");
                }
            }
        };
        let prefaulted = || log.state.lock().log.prefaulted();
        write(20, true);
        assert_eq!(prefaulted(), 0, "each sync would write the prefaulted pages");
        if !log.state.lock().log.segment.file().expect("a segment").is_mapped() {
            return;
        }
        // 13 MB are in the first segment, of 16 MiB; the lane works in the background.
        write(110, false);
        let written = {
            let state = log.state.lock();
            state.log.position() - state.log.segment.base
        };
        let clock = keys.store.files.env.clock();
        let deadline = clock.monotonic_nanos() + 30_000_000_000;
        while prefaulted() <= written && log.can_prefault() {
            assert!(clock.monotonic_nanos() < deadline, "{} of {written} bytes", prefaulted());
            drumlin_env::yield_now();
        }
        assert!(prefaulted() <= written + (2 << 20), "{} of {written} bytes", prefaulted());
    }
}
