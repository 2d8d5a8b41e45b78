//! The load of a keyspace: how many operations of which kind, and which keys they want.
//!
//! Each thread draws the operations that are timed and whose keys are kept, one in [`EACH`] in the mean. In between it
//! counts its operations itself, exactly, and hands the counts over when the next one is drawn: were only drawn ones
//! counted, a steady mix would look like another one every few seconds, by chance. What is handed over is late by 127
//! operations a thread at most. Where a thread turns from one keyspace to another between two draws, the drawn operation
//! stands for all of them. A thread that comes when there were others may end before its first draw: that one stands for all
//! that threads like it do, so that many short ones are counted as a few long ones are.

use super::Sample;
use drumlin_env::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::Key;
use drumlin_types::contract::total_variation;
use std::cell::Cell;
use std::collections::VecDeque;

/// Operations for each sampled one, in the mean.
pub(crate) const EACH: u64 = 64;
/// Keys kept of each kind.
const KEYS: usize = 256;
/// Below so many wanted keys, written ones stand in.
const FEW_KEYS: usize = 64;
/// Time between two readings of the counters, microseconds.
const TICK: u64 = 1_000_000;
/// Time between two looks at the mix, microseconds; the operations that show a new one, and how many of them have to be of
/// another kind than before.
pub(crate) const LOOK: u64 = 50_000;
const LOOK_OPERATIONS: u64 = EACH;
const TURNED: f64 = 0.25;
/// Times in which rates halve, microseconds: under load, and without any.
const HALF_LIFE: f64 = 8e6;
const IDLE_HALF_LIFE: f64 = 600e6;
/// Readings back to which rates are those of late.
const LATELY: usize = 2;

/// The longest gap between two draws, calls; the shortest is 1, and the mean [`EACH`].
const LONGEST_GAP: u64 = 2 * EACH - 1;
/// What the gaps of a store's first thread begin with.
const SEED: u32 = 0x9e37_79b9;

/// What the gaps of a thread begin with that came when there were so many others.
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

/// Sampling of one thread. It begins anew with each newer store, so that a simulated one is the same each time; stores
/// that are open side by side share it.
struct Sampler {
    store: Cell<u64>,
    /// The number of the meter that the calls since the last draw were for; 0 for none.
    meter: Cell<u64>,
    /// Some of them were for another one.
    is_mixed: Cell<bool>,
    /// Operations since the last draw.
    counts: [Cell<u64>; 3],
    /// Calls from one draw to the next, and those to go.
    gap: Cell<u32>,
    left: Cell<u32>,
    state: Cell<u32>,
    /// Before the first draw of a thread that is not the store's first.
    is_young: Cell<bool>,
    /// The number of this thread; 0 before it has one.
    thread: Cell<u32>,
}

thread_local! {
    static SAMPLER: Sampler = const {
        Sampler {
            store: Cell::new(0),
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
    /// Draws the next gap: 1 to 127 calls. Of the gap before nothing is left.
    fn draw(&self) {
        let mut state = self.state.get();
        // Marsaglia's shifts; the state is never 0.
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

    /// The number of this thread, from 1 on.
    fn thread(&self) -> u32 {
        if self.thread.get() == 0 {
            self.thread.set(THREADS.fetch_add(1, Relaxed));
        }
        self.thread.get()
    }

    fn count(&self, kind: Kind, operations: u64) {
        let count = &self.counts[kind as usize];
        count.set(count.get() + operations);
    }
}

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Point,
    Seek,
    Write,
}

#[derive(Default)]
struct Keys {
    ring: Vec<Key>,
    next: usize,
    /// The same keys in order: each question to a policy takes them so.
    sorted: Vec<Key>,
}

impl Keys {
    fn keep(&mut self, key: &[u8]) {
        let key = Key::new(key);
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

    /// The keys in order, with some of `others` where there are few.
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
    /// The last readings and their times, oldest first.
    readings: VecDeque<(u64, [u64; 5])>,
    /// When the mix was looked at, and what had been counted then.
    looked: (u64, [u64; 5]),
}

impl Rates {
    /// Rates since the oldest of the last readings.
    fn lately(&self) -> [f64; 5] {
        let Some((at, then)) = self.readings.front().filter(|(at, _)| *at < self.at) else { return [0.0; 5] };
        let elapsed = (self.at - at) as f64;
        std::array::from_fn(|kind| (self.counted[kind] - then[kind]) as f64 * 1e6 / elapsed)
    }
}

/// Counts what happens to a keyspace.
pub(crate) struct Meter {
    /// Which store this is, and which meter, for the threads' samplers.
    store: Arc<SampledStore>,
    number: u64,
    counts: [AtomicU64; 3],
    /// Writes of sampled commits, and their bytes.
    sampled_writes: AtomicU64,
    write_bytes: AtomicU64,
    /// Microseconds that writers waited to be admitted.
    waited: AtomicU64,
    /// Threads seen since the last reading, a bit for each number modulo all bits.
    seen: [AtomicU64; 4],
    keys: [Mutex<Keys>; 3],
    rates: Mutex<Rates>,
}

/// Numbers of open stores, only ever compared.
static STORES: AtomicU64 = AtomicU64::new(1);

/// The same of meters.
static METERS: AtomicU64 = AtomicU64::new(1);

/// The same of threads.
static THREADS: AtomicU32 = AtomicU32::new(1);

/// An open store, as far as the threads' sampling knows it.
pub(crate) struct SampledStore {
    /// Threads know by it that their sampling begins anew.
    number: u64,
    /// Threads that have called.
    threads: AtomicU64,
}

/// An open store to be.
pub(crate) fn fresh_store() -> Arc<SampledStore> {
    Arc::new(SampledStore { number: STORES.fetch_add(1, Relaxed), threads: AtomicU64::new(0) })
}

impl Meter {
    /// The meter of a keyspace of `store`.
    pub(crate) fn new(store: &Arc<SampledStore>) -> Meter {
        Meter {
            store: store.clone(),
            number: METERS.fetch_add(1, Relaxed),
            counts: Default::default(),
            sampled_writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            seen: Default::default(),
            keys: Default::default(),
            rates: Mutex::default(),
        }
    }

    /// Whether its keyspace is one of `store`.
    pub(crate) fn is_of(&self, store: &Arc<SampledStore>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }

    /// Counts a call that begins, of so many operations of one kind. Whether it is a sampled one.
    #[inline]
    pub(crate) fn counts(&self, kind: Kind, operations: u64) -> bool {
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

    /// Whether a call on several keyspaces, this one the first, is a sampled one; [`Meter::add`] counts it then.
    pub(crate) fn samples_several(&self) -> bool {
        SAMPLER.with(|sampler| {
            sampler.is_mixed.set(true);
            self.turn(sampler, None)
        })
    }

    /// The first call after a draw, the drawn one, or one of another keyspace than those before.
    #[cold]
    fn turn(&self, sampler: &Sampler, what: Option<(Kind, u64)>) -> bool {
        // Those of an older store that is still open go on as they are.
        if sampler.store.get() < self.store.number {
            let others = self.store.threads.fetch_add(1, Relaxed);
            sampler.store.set(self.store.number);
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
            // As likely as any call before it, of this thread and of those like it.
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

    /// So many operations more.
    pub(crate) fn add(&self, kind: Kind, operations: u64) {
        self.counts[kind as usize].fetch_add(operations, Relaxed);
    }

    /// A sampled operation wants `key`.
    pub(crate) fn wants(&self, kind: Kind, key: &[u8]) {
        self.keys[kind as usize].lock().keep(key);
    }

    /// A sampled commit of so many writes wrote so many bytes.
    pub(crate) fn wrote(&self, writes: u64, bytes: u64) {
        self.sampled_writes.fetch_add(writes, Relaxed);
        self.write_bytes.fetch_add(EACH * bytes, Relaxed);
    }

    /// A writer waited so many microseconds.
    pub(crate) fn waited(&self, micros: u64) {
        self.waited.fetch_add(micros, Relaxed);
    }

    fn counted(&self) -> [u64; 5] {
        let [points, seeks, writes] = [0, 1, 2].map(|kind| self.counts[kind].load(Relaxed));
        [points, seeks, writes, self.write_bytes.load(Relaxed), self.waited.load(Relaxed)]
    }

    /// Brings the rates up to now. Whether there was a tick in which anything happened.
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
            // What is known of a new keyspace is what was seen first.
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

    /// Whether the operations since the last look are of another mix than those of the last seconds. Whoever goes by the mix
    /// need not wait for the rates then.
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
        // Of what was before the last look.
        let lately = rates.readings.front().map(|(_, then)| kinds(&rates.looked.1, then)).unwrap_or_default();
        rates.looked = (now, counted);
        let shares = |counts: [f64; 3]| counts.map(|count| count / counts.iter().sum::<f64>().max(1.0));
        let (news, lately) = (shares(news), shares(lately));
        lately != [0.0; 3] && total_variation(&news, &lately) > TURNED
    }

    /// Whether anything happened in the last tick.
    pub(crate) fn is_busy(&self) -> bool {
        let rates = self.rates.lock();
        let last = rates.readings.iter().rev().nth(1);
        last.is_some_and(|(_, before)| *before != rates.counted)
    }

    /// What is known now.
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
        sample.lately = sample.load;
        let load = &mut sample.lately;
        [load.gets, load.seeks, load.writes, load.write_bytes, load.waited] = lately;
        load.waited /= 1e6;
        let written = self.keys[Kind::Write as usize].lock();
        sample.wanted = self.keys[Kind::Point as usize].lock().sorted(&written);
        sample.wanted_seeks = self.keys[Kind::Seek as usize].lock().sorted(&written);
        sample
    }
}

#[cfg(test)]
mod tests;
