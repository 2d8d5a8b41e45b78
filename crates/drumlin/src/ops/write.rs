//! Writing a batch: admission, reservation, log, memtables, publishing, sync.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::metrics::Counters;
use crate::options::Durability;
use crate::stats::{EACH, Kind as SampleKind};
use crate::store::Store;
use crate::write::apply::insert;
use crate::write::lane::{Request, Reserved};
use crate::write::operations::Operations;
use crate::write::pacing::{OPEN, SHUT, StallReason, owed};
use drumlin_env::sync::atomic;
use drumlin_env::{Note, local, region};
use drumlin_format::batch::Operation;
use drumlin_format::log::{self as format, RecordHeader, RecordKind};
use drumlin_types::Seq;
use std::cell::RefCell;

/// Deletions may exceed the memory of memtables by one part in this many.
const DELETES_SHARE: usize = 8;
/// Bytes that an entry takes in a memtable besides key and value, for admission.
const ENTRY_OVERHEAD: u64 = 64;

thread_local! {
    /// The encoded record of the commit under way on this thread.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Store {
    /// Writes `batch` as one commit and gives its commit sequence: the sequence number of its last
    /// operation. An empty batch writes nothing and gives the visible sequence.
    pub(crate) fn write(&self, batch: &Operations, durability: Durability) -> Result<Seq> {
        self.background.interleave();
        self.validate(batch, durability)?;
        if batch.is_empty() {
            return Ok(self.publisher.visible());
        }
        let sampled = self.is_sampled_write(batch);
        self.wait_admission(batch, sampled)?;
        let began = if sampled { self.files.env.clock().monotonic_nanos() } else { 0 };
        let reserved = self.reserve(batch, durability)?;
        let under_way = UnderWay { store: self, reserved: &reserved, has_ended: false };
        let applied = self.log_and_insert(batch, &reserved);
        under_way.end(applied)?;
        self.wake_lanes(&reserved);
        if sampled {
            self.sampled_write(batch, began);
        }
        Counters::add(&self.metrics.commits, 1);
        Counters::add(&self.metrics.operations, batch.len() as u64);
        Counters::add(&self.metrics.user_bytes_written, batch.user_bytes);
        let last_seq = reserved.first_seq + batch.len() as u64 - 1;
        if durability == Durability::Sync
            && let Some(log) = &reserved.log
        {
            self.sync_log(log.end)?;
            self.files.env.note(Note::AckSynced { seq: last_seq });
        }
        Ok(last_seq)
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

    /// Returns whether this write stands for others in the load statistics.
    fn is_sampled_write(&self, batch: &Operations) -> bool {
        match batch.keyspaces.as_slice() {
            [] => false,
            [keyspace] => keyspace.meter.counts(SampleKind::Write, batch.len() as u64),
            [first, ..] => first.meter.samples_several(),
        }
    }

    /// Waits until the write may pass.
    fn wait_admission(&self, batch: &Operations, sampled: bool) -> Result<()> {
        if sampled && self.pace.writers.rate() != OPEN {
            self.refresh_pace_if_free();
        }
        let bytes = batch.size() as u64 + ENTRY_OVERHEAD * batch.len() as u64;
        let waited = self.admit(bytes, batch.only_delete())?;
        if waited > 0
            && let Some(keyspace) = batch.keyspaces.first()
        {
            keyspace.meter.waited(waited);
        }
        self.health.check_poison()
    }

    /// Reserves sequence numbers, log space and memtables.
    fn reserve(&self, batch: &Operations, durability: Durability) -> Result<Reserved> {
        let is_logged = durability != Durability::None;
        let request = Request {
            keyspaces: &batch.keyspaces,
            operations: batch.len() as u64,
            record_len: is_logged.then(|| format::record_len(batch.size())),
        };
        let reserved = self.lane.reserve(&request, &self.publisher, || self.files.fresh_number());
        reserved.inspect_err(|error| _ = self.files.tables.relieve(error))
    }

    /// Wakes the lanes that have work after this commit.
    fn wake_lanes(&self, reserved: &Reserved) {
        let has_begun = reserved.log.as_ref().is_some_and(|place| place.has_begun);
        // A flush may have found a memtable not ready because this commit was still writing to it.
        let is_waited_for = reserved.memtables.iter().any(|(_, memtable)| memtable.is_sealed());
        if reserved.sealed || has_begun || is_waited_for || region::is_asked_for() {
            self.background.wake();
        }
    }

    /// Takes in a sampled commit, which began at `began`. One on several keyspaces counts for all those that it stands
    /// for.
    fn sampled_write(&self, batch: &Operations, began: u64) {
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
            keyspace.meter.wants(SampleKind::Write, last);
            keyspace.meter.wrote(count, bytes as u64);
            if batch.keyspaces.len() > 1 {
                keyspace.meter.add(SampleKind::Write, EACH * count);
            }
        }
    }

    fn log_and_insert(&self, batch: &Operations, reserved: &Reserved) -> Result<()> {
        if let Some(log) = &reserved.log {
            let header = RecordHeader {
                kind: RecordKind::Batch,
                synced_mark: if drumlin_types::bug!("B5") { 0 } else { self.log.durable_end() },
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
                Counters::add(&self.metrics.log_bytes_written, record.len() as u64);
                let written = crate::write::log::write(log, record);
                if record.capacity() > RECORD_KEPT {
                    *record = Vec::new();
                }
                written
            })?;
        }
        for (seq, operation) in (reserved.first_seq..).zip(batch.writer.operations()) {
            let operation = operation.map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
            let memtable = reserved.memtables.iter().find(|(id, _)| *id == operation.keyspace);
            let (_, memtable) =
                memtable.ok_or_else(|| Error::new(ErrorKind::Bug, "a batch lost a keyspace"))?;
            insert(memtable, &operation, seq)?;
        }
        Ok(())
    }

    /// Waits until there is room for `bytes`, and as long as the pace says. The microseconds that it took.
    fn admit(&self, bytes: u64, only_deletes: bool) -> Result<u64> {
        let (mut waited, mut patience) = (0, None);
        // On a full disk deletions are what frees space, so memory is kept for them.
        let most = self.memory.most();
        let most = if only_deletes { most + most / DELETES_SHARE } else { most };
        if self.memtables_full(most) {
            let patience = patience.get_or_insert_with(|| self.patience());
            waited += self.stall(
                StallReason::Memory,
                patience,
                "a writer waits for memtables to be flushed",
                || !self.memtables_full(most),
            )?;
        }
        if self.pace.writers.rate() == SHUT {
            let patience = patience.get_or_insert_with(|| self.patience());
            waited +=
                self.stall(StallReason::Runs, patience, "a writer waits for runs to be merged", || {
                    self.pace.writers.rate() != SHUT
                })?;
        }
        let rate = self.pace.writers.rate();
        let micros = self.pace.writers.pay(bytes, self.files.now());
        if micros > 0 {
            let patience = patience.get_or_insert_with(|| self.patience());
            let mut slept = 0;
            let may_go = self.sleep(micros, rate, patience, &mut slept);
            self.count_stall(StallReason::Runs, slept);
            may_go.inspect_err(|_| self.pace.writers.refund(bytes))?;
            waited += slept;
        }
        Ok(waited)
    }

    /// Sleeps as long as the gate asked for at `rate`, or until it is open; `slept` counts the microseconds. Where the
    /// rate has risen meanwhile, what is owed takes less.
    fn sleep(&self, micros: u64, mut rate: u64, patience: &Patience, slept: &mut u64) -> Result<()> {
        let mut left = micros;
        while left > 0 {
            let slice = left.min(LONGEST_SLEEP).min(patience.left(self.files.now()).max(1));
            self.files.env.clock().sleep_micros(slice);
            *slept += slice;
            left -= slice;
            let now = self.pace.writers.rate();
            if left == 0 || now == OPEN {
                break;
            }
            (left, rate) = (owed(left, rate, now), rate.max(now));
            self.health.check_open()?;
            self.health.check_poison()?;
            patience.check(self.files.now(), "a writer is slowed until runs are merged")?;
        }
        Ok(())
    }

    /// How long a write that begins to wait now may do so.
    fn patience(&self) -> Patience {
        let limit = match self.options.load().write_timeout_ms {
            0 => u64::MAX,
            millis => millis.saturating_mul(1000),
        };
        Patience { began: self.files.now(), limit }
    }

    /// Whether the memtables hold all the memory that they may.
    fn memtables_full(&self, most: usize) -> bool {
        let keyspaces = self.keyspaces();
        if let [only] = &keyspaces[..] {
            let view = only.peek();
            if view.sealed.is_empty() {
                self.memory.hold(view.active.bytes());
                return false;
            }
        }
        let bytes: usize = keyspaces.iter().map(|k| k.peek().memtable_bytes()).sum();
        self.memory.hold(bytes);
        if bytes < most {
            return false;
        }
        // With many keyspaces no single memtable may be large: seal the largest so that a flush can help.
        if keyspaces.iter().all(|k| k.peek().sealed.is_empty())
            && let Some(largest) = keyspaces.iter().max_by_key(|k| k.active_bytes())
        {
            let lane = self.lane.state.lock();
            largest.seal(lane.log.segment.number);
            drop(lane);
            self.background.wake();
        }
        true
    }

    fn stall(
        &self,
        reason: StallReason,
        patience: &Patience,
        what: &str,
        free: impl Fn() -> bool,
    ) -> Result<u64> {
        let began = self.files.now();
        self.background.wake();
        let failed = self.health.failed_flushes();
        let result = self.background.wait_at_most(patience.limit, what, || {
            if free() {
                return Ok(true);
            }
            self.health.check_poison()?;
            self.health.check_flushes(failed)?;
            if reason == StallReason::Memory && self.health.disk_full.load(atomic::Ordering::Acquire) {
                let waits = self.control.lock().shortage.map_or(String::new(), |s| format!("; {s}"));
                let what = format!("memtables are full and the disk has no room to flush them{waits}");
                return Err(Error::new(ErrorKind::NoSpace, what));
            }
            if reason == StallReason::Runs {
                self.health.check_merges()?;
                self.check_room_to_merge()?;
            }
            patience.check(self.files.now(), what)?;
            Ok(false)
        });
        let micros = self.files.now().saturating_sub(began);
        self.count_stall(reason, micros);
        result.map(|()| micros)
    }

    fn count_stall(&self, reason: StallReason, micros: u64) {
        let m = &self.metrics;
        let (count, time) = match reason {
            StallReason::Runs => (&m.stalls_runs, &m.stall_micros_runs),
            StallReason::Memory => (&m.stalls_memory, &m.stall_micros_memory),
        };
        Counters::add(count, 1);
        Counters::add(time, micros);
        m.stall_longest_micros.fetch_max(micros, atomic::Ordering::Relaxed);
    }
}

/// A commit that has its places. However it ends, its memtables and the publishing queue hear of it: else a flush, or
/// all commits behind it, would wait for ever.
struct UnderWay<'a> {
    store: &'a Store,
    reserved: &'a Reserved,
    has_ended: bool,
}

impl UnderWay<'_> {
    /// Ends the commit, which was `applied`, and waits until it is published.
    fn end(mut self, applied: Result<()>) -> Result<()> {
        let Err(error) = applied else {
            self.end_writes();
            self.has_ended = true;
            return self.store.publisher.finish(self.reserved.place);
        };
        // Dropped, it ends its place. A listener that panics here does not keep it from that.
        self.store.poison(&error);
        Err(error.with_kind(ErrorKind::Poisoned))
    }

    fn end_writes(&self) {
        for (_, memtable) in self.reserved.memtables.iter() {
            memtable.end_write();
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.end_writes();
        if drumlin_env::is_unwinding() && !self.store.health.is_poisoned() {
            // The state of the commit in the log and the memtables is unknown.
            let what = "a write panicked; durable data is safe and will be there after reopening";
            self.store.poison(&Error::new(ErrorKind::Bug, what));
        }
        // Nothing is published behind a failure.
        let _ = self.store.publisher.finish(self.reserved.place);
    }
}

/// A writer that sleeps for the pace looks about so often, microseconds.
const LONGEST_SLEEP: u64 = 100_000;

/// The time that a write may wait, all its waits together.
struct Patience {
    /// Monotonic microseconds.
    began: u64,
    limit: u64,
}

impl Patience {
    fn left(&self, now: u64) -> u64 {
        self.limit.saturating_sub(now.saturating_sub(self.began))
    }

    fn check(&self, now: u64, what: &str) -> Result<()> {
        match self.left(now) {
            0 => Err(Error::new(ErrorKind::Busy, format!("{what}, for longer than write_timeout_ms"))),
            _ => Ok(()),
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
    use crate::compaction::control::Shortage;
    use drumlin_env::MemEnv;

    #[test]
    fn a_slowed_writer_waits_no_longer_than_it_may() {
        let mem = MemEnv::new(5);
        let builder = Db::builder("/s").env(mem.env()).set("write_timeout_ms", "1000").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = keys.store.clone();
        store.pace.writers.set_rate(1000);
        assert_eq!(store.admit(10_000, false).expect("nothing is owed"), 0);
        let began = store.files.now();
        for _ in 0..3 {
            let error = store.admit(10_000, false).expect_err("it would wait for ten seconds");
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
        assert!(
            (3_000_000..3_100_000).contains(&(store.files.now() - began)),
            "a second each, and nothing paid"
        );
        let metrics = db.metrics();
        assert_eq!((metrics.stalls_runs, metrics.stall_micros_runs / 100_000), (3, 30));
        store.pace.writers.set_rate(OPEN);
        assert_eq!(store.admit(10_000, false).expect("nobody is slowed any more"), 0);
    }

    #[test]
    fn nothing_is_written_behind_the_end_of_the_log() {
        let mem = MemEnv::new(6);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let (store, keyspaces) = (keys.store.clone(), [keys.state.clone()]);
        keys.put("first", "1").expect("put");
        db.close().expect("close");
        // As a writer does that was slowed when the store was closed.
        let request =
            Request { keyspaces: &keyspaces, operations: 1, record_len: Some(format::record_len(9)) };
        let reserved = store.lane.reserve(&request, &store.publisher, || store.files.fresh_number());
        assert!(reserved.is_err_and(|error| error.kind() == ErrorKind::Closed));
        for error in [keys.put("second", "2").err(), keys.set_option("ttl_seconds", "9").err()] {
            assert!(error.is_some_and(|error| error.kind() == ErrorKind::Closed));
        }
        drop((keys, store));
        let db = Db::builder("/s").env(mem.env()).open().expect("open again");
        assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 1);
    }

    #[test]
    fn writers_that_wait_for_merges_without_room_hear_of_it() {
        let mem = MemEnv::new(4);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let store = db.keyspace("k").expect("keyspace").store.clone();
        store.control.lock().shortage = Some(Shortage { wanted: 1000, left: 10 });
        let stall =
            |is_free: bool| store.stall(StallReason::Runs, &store.patience(), "too many runs", || is_free);
        let error = stall(false).expect_err("no merge may start");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("a compaction that may write 1000 bytes waits"), "{error}");
        stall(true).expect("merges were not needed");
    }
}
