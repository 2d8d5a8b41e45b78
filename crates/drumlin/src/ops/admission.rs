//! Admission: a write waits here until memtables have room for it, and for as long as the write rate limit demands.
//!
//! 1. Memory. Memtables may hold three eighths of the memory budget. A write that finds them full waits for a flush. A
//!    *large* write also reserves its bytes until they are in a memtable, so that several large writes do not overshoot
//!    together. Small writes reserve nothing, which saves a shared counter; they are small even when many come at once.
//!    While a large write waits, small ones leave the memory that it needs, until one large write was admitted.
//! 2. Runs. If there are too many runs, as the policy counts them, the write waits for a compaction. If compactions
//!    lack disk space, deletions do not wait, since they free disk space.
//! 3. Rate. Near that limit, writes pay for their bytes at the rate at which compactions keep up. A slowed writer pays
//!    into a token bucket and sleeps, in turn. It interrupts a long sleep from time to time, to check whether it may go
//!    on or has waited too long.
//!
//! Every wait is counted by reason.
//!
//! `write_timeout_ms` bounds all waits of one write together.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::{Event, StallCause};
use crate::base::metrics::Counters;
use crate::keyspace::View;
use crate::store::Store;
use crate::write::operations::Operations;
use crate::write::pacing::{STOPPED, UNLIMITED, owed};
use drumlin_env::sync::atomic;

/// Deletions may exceed the memory of memtables by one part in this many.
const DELETES_SHARE: usize = 8;
/// Bytes that an entry takes in a memtable besides key and value, for admission.
const ENTRY_OVERHEAD: u64 = 64;
/// A write is large if it takes more than one part in this many of the memory of memtables.
const LARGE_SHARE: usize = 256;
/// A writer that is slowed checks the rate at least this often, in microseconds.
const LONGEST_SLEEP: u64 = 100_000;

/// A write that was admitted. Dropping it releases the memory that a large write has reserved.
pub(crate) struct Admitted<'a> {
    store: &'a Store,
    reserved: usize,
    /// Number of large writes that were admitted before this write asked first.
    large_before: usize,
}

impl Admitted<'_> {
    /// Begins with a write that was not admitted yet.
    fn begin(store: &Store) -> Admitted<'_> {
        Admitted { store, reserved: 0, large_before: store.memory.large_admitted() }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.store.memory.release_write(self.reserved);
            // Other large writes may be waiting for this memory.
            self.store.background.progressed();
        }
    }
}

/// A large write that waits for memory. Dropping it ends the wait.
struct LargeWait<'a> {
    store: &'a Store,
    bytes: usize,
}

impl LargeWait<'_> {
    /// Begins a wait for `bytes`; 0 for a small write, for which nobody makes way.
    fn begin(store: &Store, bytes: usize) -> LargeWait<'_> {
        store.memory.large_waits(bytes);
        LargeWait { store, bytes }
    }
}

impl Drop for LargeWait<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.store.memory.large_waited(self.bytes);
            // Small writes may go on.
            self.store.background.progressed();
        }
    }
}

impl Store {
    /// Waits until `batch` may be written.
    pub(super) fn wait_admission(&self, batch: &Operations, is_sampled: bool) -> Result<Admitted<'_>> {
        // No compaction may end for a while, so slowed writers refresh the rate themselves.
        if is_sampled && self.throttles.writers.rate() != UNLIMITED {
            self.refresh_pace_if_free();
        }
        let bytes = batch.size() as u64 + ENTRY_OVERHEAD * batch.len() as u64;
        let mut waited = 0;
        let admitted = self.admit(bytes, batch.only_delete(), &mut waited);
        if waited > 0
            && let Some(keyspace) = batch.keyspaces.first()
        {
            keyspace.meter.waited(waited);
        }
        let admitted = admitted?;
        self.health.check_poison()?;
        Ok(admitted)
    }

    /// Waits until memtables have room for `bytes`, and for as long as the write rate limit demands. Adds the
    /// microseconds that it took to `waited`, also if it fails.
    fn admit(&self, bytes: u64, only_deletes: bool, waited: &mut u64) -> Result<Admitted<'_>> {
        let mut deadline = None;
        // On a full disk, deletions lead to free space, so some memory is kept for them.
        let most = self.memory.most();
        let most = if only_deletes { most + most / DELETES_SHARE } else { most };
        let large = if bytes as usize > self.memory.most() / LARGE_SHARE { bytes as usize } else { 0 };
        let mut admitted = Admitted::begin(self);
        if !self.try_admit_memory(most, large, &mut admitted) {
            let _waiting = LargeWait::begin(self, large);
            let deadline = deadline.get_or_insert_with(|| self.deadline());
            self.stall(
                StallCause::Memory,
                (&*deadline, &mut *waited),
                "waited for memtables to be flushed",
                || self.try_admit_memory(most, large, &mut admitted),
            )?;
        }
        if self.throttles.writers.rate() == STOPPED {
            let deadline = deadline.get_or_insert_with(|| self.deadline());
            self.stall(
                StallCause::Runs,
                (&*deadline, &mut *waited),
                "waited for compactions to reduce runs",
                || {
                    self.throttles.writers.rate() != STOPPED
                        || only_deletes && self.control.lock().shortage.is_some()
                },
            )?;
        }
        let rate = self.throttles.writers.rate();
        let micros = self.throttles.writers.pay(bytes, self.files.now());
        if micros > 0 {
            let deadline = deadline.get_or_insert_with(|| self.deadline());
            let mut slept = 0;
            let may_go = self.sleep(micros, rate, deadline, &mut slept);
            self.count_stall(StallCause::Runs, slept);
            *waited += slept;
            may_go.inspect_err(|_| self.throttles.writers.refund(bytes))?;
        }
        Ok(admitted)
    }

    /// Sleeps for `micros`, the delay at `rate`, or until there is no rate limit. Adds the microseconds to `slept`. If
    /// the rate rises during the sleep, the rest is shortened accordingly.
    fn sleep(&self, micros: u64, mut rate: u64, deadline: &Deadline, slept: &mut u64) -> Result<()> {
        let mut left = micros;
        while left > 0 {
            let slice = left.min(LONGEST_SLEEP).min(deadline.left(self.files.now()).max(1));
            self.files.env.clock().sleep_micros(slice);
            *slept += slice;
            left -= slice;
            let now = self.throttles.writers.rate();
            if left == 0 || now == UNLIMITED {
                break;
            }
            (left, rate) = (owed(left, rate, now), rate.max(now));
            self.health.check_open()?;
            self.health.check_poison()?;
            deadline.check(self.files.now(), "was slowed until compactions catch up")?;
        }
        Ok(())
    }

    /// Returns the deadline of a write that begins to wait now.
    fn deadline(&self) -> Deadline {
        let limit = match self.options.load().write_timeout_ms {
            0 => u64::MAX,
            millis => millis.saturating_mul(1000),
        };
        Deadline { began: self.files.now(), limit }
    }

    /// Returns whether memtables have room for a write. If so, and if `large` is not 0, reserves that many bytes in
    /// `admitted`.
    fn try_admit_memory(&self, most: usize, large: usize, admitted: &mut Admitted<'_>) -> bool {
        let keyspaces = self.keyspaces();
        if let [only] = &keyspaces[..] {
            let pin = self.files.cache.epochs().pin();
            let view = only.peek(&pin);
            // A single memtable is sealed at half of the limit.
            if view.sealed.is_empty() && large == 0 && self.memory.large() == 0 {
                self.memory.hold(view.active.bytes());
                return true;
            }
        }
        let held = || {
            let pin = self.files.cache.epochs().pin();
            keyspaces.iter().map(|k| flushable_bytes(k.peek(&pin))).sum::<usize>()
        };
        let fits = match large {
            0 => self.memory.taken(held) < self.memory.most_for_small(most, admitted.large_before),
            _ => self.memory.admit_write(large, most, held),
        };
        self.memory.hold(self.memory.taken(held));
        if fits {
            admitted.reserved = large;
            return true;
        }
        // With many keyspaces, or before a large write, no memtable may be full: seal the largest so that a flush can
        // help.
        if keyspaces.iter().all(|k| !k.has_sealed())
            && let Some(largest) = keyspaces.iter().max_by_key(|k| k.active_bytes())
        {
            let locked = self.commit_lock.state.lock();
            largest.seal(locked.log.segment.number);
            drop(locked);
            self.background.wake();
        }
        false
    }

    /// Waits until `may_proceed` returns `true`. Adds the microseconds that it took to `waited`, also if it fails.
    /// `what` says in the past tense what the writer did.
    fn stall(
        &self,
        reason: StallCause,
        (deadline, waited): (&Deadline, &mut u64),
        what: &str,
        mut may_proceed: impl FnMut() -> bool,
    ) -> Result<()> {
        let began = self.files.now();
        if self.throttles.stopped.enter(reason, began) {
            self.tell(Event::WritesStopped { cause: reason });
        }
        self.background.wake();
        let since = self.health.last_failure();
        let result = self.background.wait_until(deadline.end(), what, || {
            if may_proceed() {
                return Ok(true);
            }
            self.health.check_poison()?;
            match reason {
                StallCause::Memory => self.check_memory_frees(since)?,
                StallCause::Runs => {
                    self.check_slowing_compactions()?;
                    self.check_space_to_compact()?;
                }
            }
            deadline.check(self.files.now(), what)?;
            Ok(false)
        });
        let now = self.files.now();
        let micros = now.saturating_sub(began);
        self.count_stall(reason, micros);
        *waited += micros;
        if let Some(since) = self.throttles.stopped.leave(reason) {
            self.tell(Event::WritesResumed { cause: reason, micros: now.saturating_sub(since) });
        }
        result
    }

    /// Returns an error if no flush that began since failure number `since` can free memory.
    fn check_memory_frees(&self, since: u64) -> Result<()> {
        self.check_flushes(since)?;
        if self.health.disk_full.load(atomic::Ordering::Acquire) {
            let waits = self.control.lock().shortage.map_or(String::new(), |s| format!("; {s}"));
            let what = format!(
                "memtables are full and the disk has no space to flush them{waits}; free disk space or raise \
                 disk_budget, and writes resume by themselves"
            );
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        Ok(())
    }

    /// Returns an error if compactions fail in a keyspace whose runs slow the writers.
    fn check_slowing_compactions(&self) -> Result<()> {
        let control = self.control.lock();
        let mut slowing = control.keyspaces.iter().filter(|entry| entry.slows_writers());
        slowing.try_for_each(|entry| entry.state.compaction_failures.check(0))
    }

    fn count_stall(&self, reason: StallCause, micros: u64) {
        let m = &self.metrics;
        let (count, time) = match reason {
            StallCause::Runs => (&m.stalls_runs, &m.stall_micros_runs),
            StallCause::Memory => (&m.stalls_memory, &m.stall_micros_memory),
        };
        Counters::add(count, 1);
        Counters::add(time, micros);
        m.stall_longest_micros.fetch_max(micros, atomic::Ordering::Relaxed);
    }
}

/// Returns the bytes of the memtables of `view` that a flush would free. An empty memtable has none.
fn flushable_bytes(view: &View) -> usize {
    match view.sealed.is_empty() && view.active.is_empty() {
        true => 0,
        false => view.memtable_bytes(),
    }
}

/// The time until which a write may wait, all its waits together, in monotonic microseconds.
struct Deadline {
    began: u64,
    limit: u64,
}

impl Deadline {
    /// Returns the monotonic time at which the write gives up, in microseconds.
    fn end(&self) -> u64 {
        self.began.saturating_add(self.limit)
    }

    fn left(&self, now: u64) -> u64 {
        self.limit.saturating_sub(now.saturating_sub(self.began))
    }

    fn check(&self, now: u64, what: &str) -> Result<()> {
        match self.left(now) {
            0 => Err(Error::new(ErrorKind::Busy, {
                let millis = self.limit / 1000;
                format!("the write {what} for longer than write_timeout_ms ({millis} ms)")
            })),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::db::Db;
    use crate::compaction::control::Shortage;
    use crate::keyspace::KeyspaceState;
    use drumlin_env::MemEnv;
    use drumlin_types::contract::{Pace, PaceScope};

    /// Returns the microseconds that a write of 10,000 bytes waits.
    fn waited_for(store: &Store) -> Result<u64> {
        let mut waited = 0;
        store.admit(10_000, false, &mut waited).map(|_| waited)
    }

    #[test]
    fn a_slowed_writer_waits_no_longer_than_it_may() {
        let mem = MemEnv::new(5);
        let builder = Db::builder("/s").env(mem.env()).set("write_timeout_ms", "1000").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = keys.store.clone();
        store.throttles.writers.set_rate(1000);
        assert_eq!(waited_for(&store).expect("nothing is owed"), 0);
        let began = store.files.now();
        for _ in 0..3 {
            let error = waited_for(&store).expect_err("it would wait for ten seconds");
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
        assert!(
            (3_000_000..3_100_000).contains(&(store.files.now() - began)),
            "a second each, and nothing paid"
        );
        let metrics = db.metrics();
        assert_eq!((metrics.stalls_runs, metrics.stall_micros_runs / 100_000), (3, 30));
        store.throttles.writers.set_rate(UNLIMITED);
        assert_eq!(waited_for(&store).expect("nobody is slowed any more"), 0);
    }

    #[test]
    fn a_slowed_write_is_counted_by_its_keyspace_too() {
        let mem = MemEnv::new(6);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        keys.put("fast", "value").expect("put");
        let writers = &keys.store.throttles.writers;
        writers.set_rate(10_000);
        keys.put("first", [0; 1000]).expect("nothing is owed yet");
        keys.put("slow", [0; 1000]).expect("put");
        let (metrics, own) = (db.metrics(), keys.metrics());
        assert!((90_000..200_000).contains(&metrics.stall_micros_runs), "{metrics:?}");
        assert_eq!(own.stall_micros, metrics.stall_micros_runs);
        assert_eq!(metrics.stall_longest_micros, metrics.stall_micros_runs);
        // A write that gives up has waited, too.
        db.set_option("write_timeout_ms", "50").expect("an option");
        writers.set_rate(1000);
        assert_eq!(keys.put("late", [0; 1000]).expect_err("it gives up").kind(), ErrorKind::Busy);
        let (metrics, own) = (db.metrics(), keys.metrics());
        assert!(own.stall_micros >= 140_000, "{own:?}");
        assert_eq!(own.stall_micros, metrics.stall_micros_runs);
    }

    #[test]
    fn a_slowed_writer_hears_only_of_the_compactions_that_slow_it() {
        let mem = MemEnv::new(7);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let [slow, other] = ["slow", "other"].map(|name| db.keyspace(name).expect("keyspace"));
        let store = slow.store.clone();
        let fail = |keyspace: &KeyspaceState| {
            (0..3)
                .for_each(|_| store.health.compaction_failed(keyspace, &Error::new(ErrorKind::Io, "a disk")));
        };
        let stop = Pace { hard_stop: true, ..Pace::free(PaceScope::All, 0.0) };
        store.control.lock().keyspace(&slow.state).expect("its control").pace = Some(stop);
        fail(&other.state);
        store.check_slowing_compactions().expect("no compaction failed that the writer waits for");
        fail(&slow.state);
        assert_eq!(store.check_slowing_compactions().expect_err("they fail").kind(), ErrorKind::Io);
        slow.state.compaction_failures.succeeded();
        store.check_slowing_compactions().expect("the failure is overcome");
    }

    #[test]
    fn writers_that_wait_for_compactions_without_disk_space_are_told() {
        let mem = MemEnv::new(4);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let store = db.keyspace("k").expect("keyspace").store.clone();
        store.control.lock().shortage = Some(Shortage { wanted: 1000, left: 10 });
        let stall =
            |is_free: bool| store.stall(StallCause::Runs, (&store.deadline(), &mut 0), "waited", || is_free);
        let error = stall(false).expect_err("no merge may start");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("a compaction needs up to 1000 bytes"), "{error}");
        stall(true).expect("compactions were not needed");
        // Deletions free disk space, so they do not wait for compactions that lack it.
        store.throttles.writers.set_rate(STOPPED);
        let refused = store.admit(100, false, &mut 0).err().expect("too many runs");
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        store.admit(100, true, &mut 0).expect("a deletion");
    }

    #[test]
    fn large_writes_do_not_overshoot_together() {
        let mem = MemEnv::new(7);
        let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = keys.store.clone();
        let most = store.memory.most();
        let room = |bytes: usize, admitted: &mut Admitted<'_>| store.try_admit_memory(most, bytes, admitted);
        let mut writes = [0; 3].map(|_| Admitted::begin(&store));
        let fit = writes.iter_mut().filter_map(|write| room(most / 2, write).then_some(())).count();
        assert_eq!(fit, 2, "a third write exceeds the memory of memtables");
        let mut small = Admitted::begin(&store);
        assert!(!room(0, &mut small), "a small write finds memory reserved");
        drop(writes);
        assert_eq!(store.memory.large(), 0);
        assert!(room(0, &mut small));
        keys.put("key", vec![7; 1 << 20]).expect("put");
        let mut large = Admitted::begin(&store);
        assert!(!room(most / 4 * 3, &mut large) && keys.state.has_sealed());
        db.flush().expect("flush");
        assert!(room(most * 2, &mut large), "memtables are empty, so waiting would not help");
    }

    /// Small writes leave the memory that a large write waits for.
    #[test]
    fn a_large_write_that_waits_is_not_overtaken_for_ever() {
        let mem = MemEnv::new(9);
        let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = keys.store.clone();
        let most = store.memory.most();
        keys.put("key", vec![7; 1 << 20]).expect("put");
        let begun = || Admitted::begin(&store);
        let admits = |most: usize, bytes: usize| store.try_admit_memory(most, bytes, &mut begun());
        assert!(admits(most, 0) && !admits(most, most - (1 << 19)));
        let _wait = LargeWait::begin(&store, most - (1 << 19));
        assert!(!admits(most, 0), "it would take the memory that the large write waits for");
        assert!(admits(most + most / DELETES_SHARE, 0), "deletions free disk space");
        db.flush().expect("flush");
        assert!(admits(most, 0), "there is memory for both");
        let _wait = LargeWait::begin(&store, 10 * most);
        assert!(!admits(most, 0) && admits(most, 10 * most), "it goes first");
    }

    #[test]
    fn one_memtable_is_sealed_at_half_of_the_limit() {
        let mem = MemEnv::new(8);
        let builder = Db::builder("/s").env(mem.env()).set("memory_budget", "8MiB").expect("an option");
        let db = builder.open().expect("open");
        let keys = db.keyspace_with("k", &[("memtable_bytes", "1GiB")]).expect("keyspace");
        let most = keys.store.memory.most();
        for key in 0..10_000_u32 {
            keys.put(key.to_be_bytes(), [7; 1000]).expect("put");
            let held = keys.state.held_bytes();
            assert!(held <= most + (64 << 10), "memtables hold {held} of {most} bytes");
        }
        assert!(db.metrics().flushes > 2);
    }
}
