//! Load of a keyspace: numbers of operations by kind, and samples of their keys.
//!
//! Each thread samples one operation in [`EACH`] on average, at random. Sampled operations are timed and their keys
//! are kept. Between two samples the thread counts its operations exactly, and adds the counts to the meter at the
//! next sample. If only sampled operations were counted, a steady mix would appear to change every few seconds by
//! chance. Counts lag by at most 127 operations per thread.
//!
//! If a thread switches to another keyspace between two samples, the sampled operation stands for all operations
//! since the last one. A thread other than the store's first may end before its first sample. Its first sample
//! therefore stands for all operations of such threads, so that many short threads count like a few long ones.

use super::Sample;
use super::costs::Mean;
use drumlin_env::sync::plain::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use drumlin_env::sync::plain::{Arc, Mutex};
use drumlin_types::Key;
use drumlin_types::contract::total_variation;
use std::cell::Cell;
use std::collections::VecDeque;

/// Mean number of operations per sampled operation.
pub(crate) const EACH: u64 = 64;
/// Number of keys kept of each kind.
const KEYS: usize = 256;
/// Number of bytes that are kept of a key. Keys choose runs and files, for which a prefix is enough, and looked-up keys
/// have no limit.
const MOST_KEY_BYTES: usize = 1 << 10;
/// With fewer wanted keys than this, written keys are added.
const FEW_KEYS: usize = 64;
/// Interval between two readings of the counters, in microseconds.
const TICK: u64 = 1_000_000;
/// Interval between two checks of the operation mix, in microseconds. A check requires `LOOK_OPERATIONS` operations.
/// The mix has changed if a share of more than `TURNED` of them are of other kinds than before.
pub(crate) const LOOK: u64 = 50_000;
const LOOK_OPERATIONS: u64 = EACH;
const TURNED: f64 = 0.25;
/// Half-life of rates in microseconds, under load. `IDLE_HALF_LIFE` applies without load.
const HALF_LIFE: f64 = 8e6;
const IDLE_HALF_LIFE: f64 = 600e6;
/// Number of readings over which recent rates are computed.
const LATELY: usize = 2;

/// Lower bound on the share of runs that lookups search in vain, because 0 means unknown.
const LEAST_VAIN: f64 = 1e-3;

/// Maximum gap between two samples, in calls. The minimum is 1 and the mean is [`EACH`].
const LONGEST_GAP: u64 = 2 * EACH - 1;
/// Random seed of the gaps of a store's first thread.
const SEED: u32 = 0x9e37_79b9;

/// Returns the random seed of the gaps of a thread that came after `others` other threads.
fn seed(others: u64) -> u32 {
    if others == 0 {
        return SEED;
    }
    // Wellons' mixing of 32 bits.
    let mut state = SEED ^ others as u32;
    state = (state ^ (state >> 16)).wrapping_mul(0x7feb_352d);
    state = (state ^ (state >> 15)).wrapping_mul(0x846c_a68b);
    (state ^ (state >> 16)).max(1)
}

/// Sampling state of one thread. It restarts with each newer store, so that a simulated store is deterministic.
/// Stores that are open at the same time share it.
struct Sampler {
    store_number: Cell<u64>,
    /// Number of the meter of the calls since the last sample; 0 for none.
    meter: Cell<u64>,
    /// Whether some of those calls were for another meter.
    is_mixed: Cell<bool>,
    /// Operations since the last sample, by kind.
    counts: [Cell<u64>; 3],
    /// Calls from one sample to the next. `left` is the number remaining.
    gap: Cell<u32>,
    left: Cell<u32>,
    state: Cell<u32>,
    /// Whether the thread is not the store's first and has no sample yet.
    is_young: Cell<bool>,
    /// Number of this thread; 0 before it has one.
    thread: Cell<u32>,
}

thread_local! {
    static SAMPLER: Sampler = const {
        Sampler {
            store_number: Cell::new(0),
            meter: Cell::new(0),
            is_mixed: Cell::new(false),
            counts: [const { Cell::new(0) }; 3],
            gap: Cell::new(0),
            left: Cell::new(0),
            state: Cell::new(SEED),
            is_young: Cell::new(false),
            thread: Cell::new(0),
        }
    };
}

impl Sampler {
    /// Selects the next gap, of 1 to 127 calls, and clears the counts of the previous gap.
    fn draw(&self) {
        let mut state = self.state.get();
        // Marsaglia's xorshift; the state is never 0.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.state.set(state);
        self.gap.set(1 + state % LONGEST_GAP as u32);
        self.left.set(self.gap.get());
        self.meter.set(0);
        self.is_mixed.set(false);
        self.is_young.set(false);
        self.counts.iter().for_each(|count| count.set(0));
    }

    /// Returns the number of this thread, starting at 1.
    fn thread(&self) -> u32 {
        if self.thread.get() == 0 {
            self.thread.set(THREADS.fetch_add(1, Relaxed));
        }
        self.thread.get()
    }

    fn count(&self, kind: OperationKind, operations: u64) {
        let count = &self.counts[kind as usize];
        count.set(count.get() + operations);
    }
}

/// Kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationKind {
    Point,
    Seek,
    Write,
}

#[derive(Default)]
struct Keys {
    ring: Vec<Key>,
    next: usize,
    /// The same keys in order, as each policy call receives them.
    sorted: Vec<Key>,
}

impl Keys {
    fn keep(&mut self, key: &[u8]) {
        let key = Key::new(&key[..key.len().min(MOST_KEY_BYTES)]);
        match self.ring.get_mut(self.next) {
            Some(place) => {
                let old = std::mem::replace(place, key.clone());
                if let Ok(at) = self.sorted.binary_search(&old) {
                    self.sorted.remove(at);
                }
            }
            None => self.ring.push(key.clone()),
        }
        let at = self.sorted.partition_point(|other| *other <= key);
        self.sorted.insert(at, key);
        self.next = (self.next + 1) % KEYS;
    }

    /// Returns the keys in order, with some of `others` added if there are few.
    fn sorted(&self, others: &Keys) -> Vec<Key> {
        let mut keys = self.sorted.clone();
        if keys.len() < FEW_KEYS {
            keys.extend(others.ring.iter().take(KEYS - keys.len()).cloned());
            keys.sort();
        }
        keys
    }
}

/// Rates as of the last reading.
#[derive(Default)]
struct Rates {
    at: u64,
    counted: [u64; 5],
    per_second: [f64; 5],
    clients: f64,
    /// Last readings and their times, oldest first.
    readings: VecDeque<(u64, [u64; 5])>,
    /// Time of the last check of the mix, and the counts at that time.
    looked: (u64, [u64; 5]),
}

impl Rates {
    /// Returns the rates since the oldest of the last readings.
    fn lately(&self) -> [f64; 5] {
        let Some((at, then)) = self.readings.front().filter(|(at, _)| *at < self.at) else { return [0.0; 5] };
        let elapsed = (self.at - at) as f64;
        std::array::from_fn(|kind| (self.counted[kind] - then[kind]) as f64 * 1e6 / elapsed)
    }
}

/// Load counters of a keyspace.
pub(crate) struct Meter {
    /// Store of this meter. Together with `number` it identifies the meter in the threads' samplers.
    store: Arc<SampledStore>,
    number: u64,
    counts: [AtomicU64; 3],
    /// Number of writes in sampled commits. `write_bytes` are their bytes.
    sampled_writes: AtomicU64,
    write_bytes: AtomicU64,
    /// Microseconds that writers waited for admission.
    waited: AtomicU64,
    /// Mean runs beyond one that cover the key of a lookup, and those of them searched in vain. Plus one, because 0
    /// means unknown.
    further_runs: Mean,
    vain_runs: Mean,
    /// Bit set of the threads seen since the last reading, by thread number modulo the number of bits.
    seen: [AtomicU64; 4],
    keys: [Mutex<Keys>; 3],
    rates: Mutex<Rates>,
}

/// Next number of an open store. Numbers are only compared.
static STORES: AtomicU64 = AtomicU64::new(1);

/// Next number of a meter.
static METERS: AtomicU64 = AtomicU64::new(1);

/// Next number of a thread.
static THREADS: AtomicU32 = AtomicU32::new(1);

/// Open store, as the threads' sampling uses it.
pub(crate) struct SampledStore {
    /// Number of the store. A thread restarts its sampling when it meets a higher number.
    number: u64,
    /// Number of threads that have made calls.
    threads: AtomicU64,
}

/// Creates the sampling state of a store that is being opened.
pub(crate) fn fresh_store() -> Arc<SampledStore> {
    Arc::new(SampledStore { number: STORES.fetch_add(1, Relaxed), threads: AtomicU64::new(0) })
}

impl Meter {
    /// Creates the meter of a keyspace of `store`.
    pub(crate) fn new(store: &Arc<SampledStore>) -> Meter {
        Meter {
            store: store.clone(),
            number: METERS.fetch_add(1, Relaxed),
            counts: Default::default(),
            sampled_writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            further_runs: Mean::default(),
            vain_runs: Mean::default(),
            seen: Default::default(),
            keys: Default::default(),
            rates: Mutex::default(),
        }
    }

    /// Returns whether the meter's keyspace belongs to `store`.
    pub(crate) fn is_of(&self, store: &Arc<SampledStore>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }

    /// Counts the start of a call with `operations` operations of one kind. Returns whether the call is sampled.
    #[inline]
    pub(crate) fn count_and_sample(&self, kind: OperationKind, operations: u64) -> bool {
        SAMPLER.with(|sampler| {
            let left = sampler.left.get();
            if sampler.meter.get() == self.number && left > 1 {
                sampler.left.set(left - 1);
                sampler.count(kind, operations);
                return false;
            }
            self.turn(sampler, Some((kind, operations)))
        })
    }

    /// Returns whether a call on several keyspaces is sampled. This meter is that of the first keyspace.
    /// [`Meter::add`] counts a sampled call.
    pub(crate) fn samples_several(&self) -> bool {
        SAMPLER.with(|sampler| {
            sampler.is_mixed.set(true);
            self.turn(sampler, None)
        })
    }

    /// Handles the first call after a sample, the sampled call, and a call on another keyspace than before. Returns
    /// whether the call is sampled.
    #[cold]
    fn turn(&self, sampler: &Sampler, what: Option<(OperationKind, u64)>) -> bool {
        // Calls on an older store that is still open continue the current sampling.
        if sampler.store_number.get() < self.store.number {
            let others = self.store.threads.fetch_add(1, Relaxed);
            sampler.store_number.set(self.store.number);
            sampler.state.set(seed(others));
            sampler.draw();
            sampler.is_young.set(others > 0);
        }
        match sampler.meter.replace(self.number) {
            0 => {}
            number if number == self.number => {}
            _ => sampler.is_mixed.set(true),
        }
        if let Some((kind, operations)) = what {
            sampler.count(kind, operations);
        }
        if sampler.left.get() > 1 {
            sampler.left.set(sampler.left.get() - 1);
            return false;
        }
        match what {
            // The first gap is random, so each of the first calls of a thread is the sampled one with a probability of
            // 1/`LONGEST_GAP`. Weighted with the inverse, it stands for the calls of similar threads too.
            Some((kind, operations)) if sampler.is_young.get() => self.add(kind, LONGEST_GAP * operations),
            Some((kind, operations)) if sampler.is_mixed.get() => {
                self.add(kind, u64::from(sampler.gap.get()) * operations);
            }
            Some(_) => {
                for (all, own) in self.counts.iter().zip(&sampler.counts).filter(|(_, own)| own.get() > 0) {
                    all.fetch_add(own.get(), Relaxed);
                }
            }
            None => {}
        }
        let thread = sampler.thread() as usize;
        self.seen[thread / 64 % self.seen.len()].fetch_or(1 << (thread % 64), Relaxed);
        sampler.draw();
        true
    }

    /// Adds `operations` to the count of `kind`.
    pub(crate) fn add(&self, kind: OperationKind, operations: u64) {
        self.counts[kind as usize].fetch_add(operations, Relaxed);
    }

    /// Records the key of a sampled operation, unless another thread holds the keys: there are more samples than
    /// needed, and no operation should sleep for one.
    pub(crate) fn keep_sampled_key(&self, kind: OperationKind, key: &[u8]) {
        if let Some(mut keys) = self.keys[kind as usize].try_lock() {
            keys.keep(key);
        }
    }

    /// Records a sampled commit of `writes` writes with `bytes` bytes in total.
    pub(crate) fn wrote(&self, writes: u64, bytes: u64) {
        self.sampled_writes.fetch_add(writes, Relaxed);
        self.write_bytes.fetch_add(EACH * bytes, Relaxed);
    }

    /// Records that a sampled lookup met `covered` runs and searched `vain` of them without finding a version. One run
    /// has to be searched in any tree, so only those beyond one count.
    pub(crate) fn searched(&self, covered: u32, vain: u32) {
        let further = covered.saturating_sub(1);
        self.further_runs.sample(1.0 + f64::from(further));
        self.vain_runs.sample(1.0 + f64::from(vain.min(further)));
    }

    /// Returns the share of the runs beyond one that lookups searched in vain; 0 while no lookup met two runs.
    fn vain_share(&self) -> f64 {
        let [further, vain] = [&self.further_runs, &self.vain_runs].map(|mean| mean.get() - 1.0);
        // Below this, rounding errors dominate: no lookup has met two runs for a long time.
        if further < 1e-6 { 0.0 } else { (vain / further).clamp(LEAST_VAIN, 1.0) }
    }

    /// Records that a writer waited `micros` microseconds.
    pub(crate) fn waited(&self, micros: u64) {
        self.waited.fetch_add(micros, Relaxed);
    }

    /// Returns the numbers of point lookups, scans and writes, and the microseconds that writers waited.
    pub(crate) fn totals(&self) -> ([u64; 3], u64) {
        let [points, seeks, writes, _, waited] = self.counted();
        ([points, seeks, writes], waited)
    }

    fn counted(&self) -> [u64; 5] {
        let [points, seeks, writes] = [0, 1, 2].map(|kind| self.counts[kind].load(Relaxed));
        [points, seeks, writes, self.write_bytes.load(Relaxed), self.waited.load(Relaxed)]
    }

    /// Updates the rates to time `now`. Returns whether a tick ended in which operations were counted.
    pub(crate) fn roll(&self, now: u64) -> bool {
        let mut rates = self.rates.lock();
        let elapsed = now.saturating_sub(rates.at);
        if rates.at == 0 || elapsed < TICK {
            if rates.at == 0 {
                rates.at = now.max(1);
                rates.readings.push_back((now.max(1), [0; 5]));
            }
            return false;
        }
        let counted = self.counted();
        let is_active = counted != rates.counted;
        let half_life = if is_active { HALF_LIFE } else { IDLE_HALF_LIFE };
        let keep = (-(elapsed as f64) / half_life).exp2();
        for (kind, counted) in counted.into_iter().enumerate() {
            let rate = (counted - rates.counted[kind]) as f64 * 1e6 / elapsed as f64;
            let old = rates.per_second[kind];
            // The first observed rate of a keyspace sets the mean.
            rates.per_second[kind] = if old == 0.0 { rate } else { keep * old + (1.0 - keep) * rate };
        }
        let clients = self.seen.iter().map(|seen| f64::from(seen.swap(0, Relaxed).count_ones())).sum();
        if is_active {
            rates.clients = if rates.clients == 0.0 { clients } else { (rates.clients + clients) / 2.0 };
        }
        (rates.at, rates.counted) = (now, counted);
        rates.readings.push_back((now, counted));
        if rates.readings.len() > LATELY + 1 {
            rates.readings.pop_front();
        }
        is_active
    }

    /// Returns whether the operation mix has changed since the last sample: whether the operations since the last
    /// check have another mix than those of the last seconds. Users of the mix need not wait for the rates then.
    pub(crate) fn turns(&self, now: u64) -> bool {
        let mut rates = self.rates.lock();
        if now.saturating_sub(rates.looked.0) < LOOK {
            return false;
        }
        let counted = self.counted();
        let kinds = |counts: &[u64; 5], before: &[u64; 5]| -> [f64; 3] {
            std::array::from_fn(|kind| counts[kind].saturating_sub(before[kind]) as f64)
        };
        let news = kinds(&counted, &rates.looked.1);
        if news.iter().sum::<f64>() < LOOK_OPERATIONS as f64 {
            return false;
        }
        // The mix before the last check.
        let lately = rates.readings.front().map(|(_, then)| kinds(&rates.looked.1, then)).unwrap_or_default();
        rates.looked = (now, counted);
        let shares = |counts: [f64; 3]| counts.map(|count| count / counts.iter().sum::<f64>().max(1.0));
        let (news, lately) = (shares(news), shares(lately));
        lately != [0.0; 3] && total_variation(&news, &lately) > TURNED
    }

    /// Returns whether operations were counted in the last tick.
    pub(crate) fn is_busy(&self) -> bool {
        let rates = self.rates.lock();
        let last = rates.readings.iter().rev().nth(1);
        last.is_some_and(|(_, before)| *before != rates.counted)
    }

    /// Returns the current load.
    pub(crate) fn sample(&self) -> Sample {
        let mut sample = Sample::default();
        let rates = self.rates.lock();
        let load = &mut sample.load;
        [load.gets, load.seeks, load.writes, load.write_bytes, load.waited] = rates.per_second;
        load.waited /= 1e6;
        load.clients = rates.clients;
        let lately = rates.lately();
        drop(rates);
        let [points, seeks, writes, bytes, _] = self.counted();
        load.counted = [points, seeks, writes];
        let sampled = EACH * self.sampled_writes.load(Relaxed);
        load.entry_bytes = if sampled > 0 { bytes as f64 / sampled as f64 } else { 0.0 };
        load.vain_share = self.vain_share();
        sample.lately = sample.load;
        let load = &mut sample.lately;
        [load.gets, load.seeks, load.writes, load.write_bytes, load.waited] = lately;
        load.waited /= 1e6;
        let written = self.keys[OperationKind::Write as usize].lock();
        sample.wanted = self.keys[OperationKind::Point as usize].lock().sorted(&written);
        sample.wanted_seeks = self.keys[OperationKind::Seek as usize].lock().sorted(&written);
        sample
    }
}

#[cfg(test)]
mod tests;
