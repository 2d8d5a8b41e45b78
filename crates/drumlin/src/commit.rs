//! Writing a batch: admission, reservation, log, memtables, publishing, sync.

use crate::batch::Batch;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Counters;
use crate::options::Durability;
use crate::pacing::{OPEN, SHUT, StallReason, owed};
use crate::stats::{EACH, Kind as SampleKind};
use crate::store::Store;
use crate::write::lane::{Request, Reserved};
use drumlin_env::sync::atomic;
use drumlin_env::{Note, region};
use drumlin_format::batch::{Operation, range_end};
use drumlin_format::log::{self as format, RecordHeader, RecordKind};
use drumlin_types::{Key, KeyRange, Kind, Seq};
use std::cell::RefCell;

/// Bytes that an entry takes in a memtable besides key and value, for admission.
const ENTRY_OVERHEAD: u64 = 64;

thread_local! {
    /// The encoded record of the commit under way on this thread.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Store {
    /// Writes `batch` as one commit and gives its commit sequence: the sequence number of its last
    /// operation. An empty batch writes nothing and gives the visible sequence.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<Seq> {
        self.background.interleave();
        batch.check()?;
        self.check_open()?;
        self.check_read_only()?;
        if batch.is_empty() {
            return Ok(self.publisher.visible());
        }
        if batch.size() as u64 > self.max_batch_bytes() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a batch of {} bytes is larger than {}, a quarter of memory_budget; split it or raise memory_budget",
                    batch.size(),
                    self.max_batch_bytes()
                ),
            ));
        }
        for keyspace in &batch.keyspaces {
            self.check_own(keyspace)?;
            keyspace.check_alive()?;
        }
        let logged = durability != Durability::None;
        if !logged && batch.keyspaces.len() > 1 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a batch over several keyspaces needs the log to be atomic: use Durability::Buffered or Sync",
            ));
        }
        let sampled = match batch.keyspaces.as_slice() {
            [] => false,
            [keyspace] => keyspace.meter.counts(SampleKind::Write, batch.len() as u64),
            [first, ..] => first.meter.samples_several(),
        };
        if sampled && self.gate.rate() != OPEN {
            self.refresh_pace_if_free();
        }
        let waited = self.admit(batch.size() as u64 + ENTRY_OVERHEAD * batch.len() as u64)?;
        if waited > 0
            && let Some(keyspace) = batch.keyspaces.first()
        {
            keyspace.meter.waited(waited);
        }
        self.check_poison()?;
        let began = if sampled { self.env.clock().monotonic_nanos() } else { 0 };
        let request = Request {
            keyspaces: &batch.keyspaces,
            operations: batch.len() as u64,
            record_len: logged.then(|| format::record_len(batch.size())),
        };
        let reserved = self.lane.reserve(&request, &self.publisher, || self.fresh_number())?;
        let last_seq = reserved.first_seq + batch.len() as u64 - 1;
        let applied = self.log_and_insert(batch, &reserved);
        for (_, memtable) in reserved.memtables.iter() {
            memtable.end_write();
        }
        if let Err(error) = applied {
            self.poison(&error);
            return Err(error.with_kind(ErrorKind::Poisoned));
        }
        self.publisher.finish(reserved.place)?;
        let has_begun = reserved.log.as_ref().is_some_and(|place| place.has_begun);
        if reserved.sealed || has_begun || region::is_asked_for() {
            self.background.wake();
        }
        if sampled {
            self.sampled_write(batch, began);
        }
        Counters::add(&self.metrics.commits, 1);
        Counters::add(&self.metrics.operations, batch.len() as u64);
        Counters::add(&self.metrics.user_bytes_written, batch.user_bytes);
        if durability == Durability::Sync
            && let Some(log) = &reserved.log
        {
            self.sync_log(log.end)?;
            self.env.note(Note::AckSynced { seq: last_seq });
        }
        Ok(last_seq)
    }

    /// Takes in a sampled commit, which began at `began`. One on several keyspaces counts for all those that it stands for.
    fn sampled_write(&self, batch: &Batch, began: u64) {
        let nanos = self.env.clock().monotonic_nanos().saturating_sub(began);
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

    fn log_and_insert(&self, batch: &Batch, reserved: &Reserved) -> Result<()> {
        if let Some(log) = &reserved.log {
            let header = RecordHeader {
                kind: RecordKind::Batch,
                synced_mark: if drumlin_types::bug!("B5") { 0 } else { self.log.durable_end() },
                first_seq: reserved.first_seq,
                count: batch.writer.count(),
            };
            self.env.note(Note::Logged { log: log.segment.file()?.path(), first: reserved.first_seq });
            RECORD.with_borrow_mut(|record| {
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
    fn admit(&self, bytes: u64) -> Result<u64> {
        let (mut waited, mut patience) = (0, None);
        if self.memtables_full() {
            let patience = patience.get_or_insert_with(|| self.patience());
            waited += self.stall(
                StallReason::Memory,
                patience,
                "a writer waits for memtables to be flushed",
                || !self.memtables_full(),
            )?;
        }
        if self.gate.rate() == SHUT {
            let patience = patience.get_or_insert_with(|| self.patience());
            waited +=
                self.stall(StallReason::Runs, patience, "a writer waits for runs to be merged", || {
                    self.gate.rate() != SHUT
                })?;
        }
        let rate = self.gate.rate();
        let micros = self.gate.pay(bytes, self.now());
        if micros > 0 {
            let patience = patience.get_or_insert_with(|| self.patience());
            let mut slept = 0;
            let may_go = self.sleep(micros, rate, patience, &mut slept);
            self.count_stall(StallReason::Runs, slept);
            may_go.inspect_err(|_| self.gate.refund(bytes))?;
            waited += slept;
        }
        Ok(waited)
    }

    /// Sleeps as long as the gate asked for at `rate`, or until it is open; `slept` counts the microseconds. Where the
    /// rate has risen meanwhile, what is owed takes less.
    fn sleep(&self, micros: u64, mut rate: u64, patience: &Patience, slept: &mut u64) -> Result<()> {
        let mut left = micros;
        while left > 0 {
            let slice = left.min(LONGEST_SLEEP).min(patience.left(self.now()).max(1));
            self.env.clock().sleep_micros(slice);
            *slept += slice;
            left -= slice;
            let now = self.gate.rate();
            if left == 0 || now == OPEN {
                break;
            }
            (left, rate) = (owed(left, rate, now), rate.max(now));
            self.check_open()?;
            self.check_poison()?;
            patience.check(self.now(), "a writer is slowed until runs are merged")?;
        }
        Ok(())
    }

    /// How long a write that begins to wait now may do so.
    fn patience(&self) -> Patience {
        let limit = match self.options.load().write_timeout_ms {
            0 => u64::MAX,
            millis => millis.saturating_mul(1000),
        };
        Patience { began: self.now(), limit }
    }

    /// Whether the memtables hold all the memory that they may.
    fn memtables_full(&self) -> bool {
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
        if bytes < self.memory.most() {
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
        let began = self.now();
        self.background.wake();
        let failed = self.failed_flushes();
        let result = self.background.wait_at_most(patience.limit, what, || {
            if free() {
                return Ok(true);
            }
            self.check_poison()?;
            self.check_flushes(failed)?;
            if reason == StallReason::Memory && self.disk_full.load(atomic::Ordering::Acquire) {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "memtables are full and the disk has no room to flush them",
                ));
            }
            if reason == StallReason::Runs {
                self.check_room_to_merge()?;
            }
            patience.check(self.now(), what)?;
            Ok(false)
        });
        let micros = self.now().saturating_sub(began);
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

/// Puts an operation into a memtable.
pub(crate) fn insert(
    memtable: &crate::memtable::Memtable,
    operation: &Operation<'_>,
    seq: Seq,
) -> Result<()> {
    if operation.kind == Kind::DeleteRange {
        let end = range_end(operation.value).map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        let range = KeyRange::new(Key::new(operation.key), end.map(Key::new));
        memtable.insert_range_tombstone(range, seq);
    } else {
        memtable.insert(operation.key, seq, operation.kind, operation.value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::control::Shortage;
    use crate::db::Db;
    use drumlin_env::MemEnv;

    #[test]
    fn a_slowed_writer_waits_no_longer_than_it_may() {
        let mem = MemEnv::new(5);
        let builder = Db::builder("/s").env(mem.env()).set("write_timeout_ms", "1000").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = keys.store.clone();
        store.gate.set_rate(1000);
        assert_eq!(store.admit(10_000).expect("nothing is owed"), 0);
        let began = store.now();
        for _ in 0..3 {
            let error = store.admit(10_000).expect_err("it would wait for ten seconds");
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
        assert!((3_000_000..3_100_000).contains(&(store.now() - began)), "a second each, and nothing paid");
        let metrics = db.metrics();
        assert_eq!((metrics.stalls_runs, metrics.stall_micros_runs / 100_000), (3, 30));
        store.gate.set_rate(OPEN);
        assert_eq!(store.admit(10_000).expect("nobody is slowed any more"), 0);
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
        let reserved = store.lane.reserve(&request, &store.publisher, || store.fresh_number());
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
        assert!(error.to_string().contains("a merge that may write 1000 bytes waits"), "{error}");
        stall(true).expect("merges were not needed");
    }
}
