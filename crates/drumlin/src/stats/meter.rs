//! The load of a keyspace: how many operations of which kind, and which keys they want.
//!
//! Each thread draws the operations that are timed and whose keys are kept, one in [`EACH`] in the mean. In between it
//! counts its operations itself, exactly, and hands the counts over when the next one is drawn: were only drawn ones
//! counted, a steady mix would look like another one every few seconds, by chance. What is handed over is late by 127
//! operations a thread at most. Where a thread turns from one keyspace to another between two draws, the drawn operation
//! stands for all of them.

use super::Sample;
use drumlin_env::sync::Mutex;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

/// What the gaps of every thread begin with.
const SEED: u32 = 0x9e37_79b9;

/// Sampling of one thread. It begins anew with each store, so that a simulated one is the same each time.
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
    /// The tick in which this thread was last counted as active.
    tick: Cell<u64>,
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
            tick: Cell::new(0),
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
        self.gap.set(1 + state % (2 * EACH as u32 - 1));
        self.left.set(self.gap.get());
        self.meter.set(0);
        self.is_mixed.set(false);
        self.counts.iter().for_each(|count| count.set(0));
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
}

impl Keys {
    fn keep(&mut self, key: &[u8]) {
        match self.ring.get_mut(self.next) {
            Some(place) => *place = Key::new(key),
            None => self.ring.push(Key::new(key)),
        }
        self.next = (self.next + 1) % KEYS;
    }

    /// The keys in order, with some of `others` where there are few.
    fn sorted(&self, others: &Keys) -> Vec<Key> {
        let mut keys = self.ring.clone();
        if keys.len() < FEW_KEYS {
            keys.extend(others.ring.iter().take(KEYS - keys.len()).cloned());
        }
        keys.sort();
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
    store: u64,
    number: u64,
    counts: [AtomicU64; 3],
    /// Writes of sampled commits, and their bytes.
    sampled_writes: AtomicU64,
    write_bytes: AtomicU64,
    /// Microseconds that writers waited to be admitted.
    waited: AtomicU64,
    /// The number of the present tick, and threads seen in it.
    tick: AtomicU64,
    clients: AtomicU64,
    keys: [Mutex<Keys>; 3],
    rates: Mutex<Rates>,
}

/// Numbers of open stores, only ever compared.
static STORES: AtomicU64 = AtomicU64::new(1);

/// The same of meters.
static METERS: AtomicU64 = AtomicU64::new(1);

/// A number for an open store, by which threads know that their sampling begins anew.
pub(crate) fn fresh_store() -> u64 {
    STORES.fetch_add(1, Relaxed)
}

impl Meter {
    /// The meter of a keyspace of the store that [`fresh_store`] numbered.
    pub(crate) fn new(store: u64) -> Meter {
        Meter {
            store,
            number: METERS.fetch_add(1, Relaxed),
            counts: Default::default(),
            sampled_writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            tick: AtomicU64::new(1),
            clients: AtomicU64::new(0),
            keys: Default::default(),
            rates: Mutex::default(),
        }
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
        let is_known = sampler.store.get() == self.store;
        if !is_known {
            sampler.store.set(self.store);
            sampler.state.set(SEED);
            sampler.tick.set(0);
            sampler.draw();
        }
        match sampler.meter.replace(self.number) {
            0 => {}
            number if number == self.number => {}
            _ => sampler.is_mixed.set(true),
        }
        if let Some((kind, operations)) = what {
            sampler.count(kind, operations);
        }
        // A thread's first call is not drawn.
        let is_drawn = is_known && sampler.left.get() <= 1;
        if !is_drawn {
            sampler.left.set(sampler.left.get().saturating_sub(1).max(1));
            return false;
        }
        match what {
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
        let tick = self.tick.load(Relaxed);
        if sampler.tick.replace(tick) != tick {
            self.clients.fetch_add(1, Relaxed);
        }
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
        self.tick.fetch_add(1, Relaxed);
        let clients = self.clients.swap(0, Relaxed) as f64;
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
mod tests {
    use super::*;

    impl Meter {
        fn sample_counts(&self) -> [u64; 3] {
            let [points, seeks, writes, ..] = self.counted();
            [points, seeks, writes]
        }
    }

    #[test]
    fn a_new_mix_is_seen_between_the_ticks() {
        let meter = Meter::new(0);
        let count = |kind: Kind, samples: u64| meter.add(kind, EACH * samples);
        let second = |n: u64| n * 1_000_000;
        for n in 1..5 {
            assert!(!meter.turns(second(n)), "nothing is known, or it is as before");
            count(Kind::Write, 100);
            meter.roll(second(n));
        }
        assert!(meter.is_busy());
        count(Kind::Write, 20);
        count(Kind::Seek, 3);
        assert!(!meter.turns(second(4) + LOOK), "a few others");
        meter.add(Kind::Seek, LOOK_OPERATIONS - 1);
        assert!(!meter.turns(second(4) + 2 * LOOK), "too few of them");
        meter.add(Kind::Seek, 1);
        assert!(!meter.turns(second(4) + 2 * LOOK - 1), "too soon");
        assert!(meter.turns(second(4) + 2 * LOOK));
        count(Kind::Point, 5);
        assert!(meter.turns(second(4) + 3 * LOOK), "each time, until rates follow");
        meter.roll(second(5));
        assert!(!meter.turns(second(5)), "nothing new");
        meter.roll(second(6));
        assert!(!meter.is_busy());
    }

    #[test]
    fn all_are_counted_and_one_in_sixty_four_is_sampled() {
        let meter = Meter::new(fresh_store());
        let (operations, mut sampled) = (640_000, 0);
        for n in 0..operations as u32 {
            let kind = [Kind::Point, Kind::Write, Kind::Write][n as usize % 3];
            if meter.counts(kind, 1) {
                sampled += 1;
                meter.wants(kind, &n.to_be_bytes());
            }
            let counted: u64 = meter.sample_counts().iter().sum();
            assert!((u64::from(n) + 1 - counted) < 2 * EACH, "{counted} of {n}");
        }
        assert!((f64::from(sampled) * EACH as f64 / f64::from(operations) - 1.0).abs() < 0.03, "{sampled}");
        let [points, seeks, writes] = meter.sample_counts();
        assert!(points.abs_diff(writes / 2) < 2 * EACH && seeks == 0, "{points} and {writes}");
        let keys = meter.sample().wanted;
        assert_eq!(keys.len(), KEYS);
        assert!(keys.is_sorted());
    }

    #[test]
    fn a_thread_that_turns_from_keyspace_to_keyspace_is_counted_by_its_samples() {
        let store = fresh_store();
        let meters = [Meter::new(store), Meter::new(store), Meter::new(store)];
        let operations = 300_000;
        for n in 0..operations {
            // The first keyspace is read, the second written, the third written ten at a time.
            let (kind, each) = [(Kind::Point, 1), (Kind::Write, 1), (Kind::Write, 10)][n % 3];
            meters[n % 3].counts(kind, each);
        }
        let expected = [[1, 0, 0], [0, 0, 1], [0, 0, 10]];
        for (meter, expected) in meters.iter().zip(expected) {
            let counted = meter.sample_counts().map(|count| count as f64 / (operations / 3) as f64);
            for (counted, expected) in counted.iter().zip(expected.map(f64::from)) {
                assert!((counted - expected).abs() <= 0.1 * expected, "{counted} for {expected}");
            }
        }
        // Long stretches on each are exact, but for the calls around a turn.
        let meters = [Meter::new(store), Meter::new(store)];
        for meter in &meters {
            (0..10_000).for_each(|_| {
                meter.counts(Kind::Seek, 1);
            });
            let [_, seeks, _] = meter.sample_counts();
            assert!(seeks.abs_diff(10_000) < 3 * EACH, "{seeks}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "counts on real threads")]
    fn each_thread_owes_less_than_a_gap() {
        let meter = Meter::new(fresh_store());
        let kinds = [Kind::Point, Kind::Seek, Kind::Write, Kind::Write];
        std::thread::scope(|scope| {
            for kind in kinds {
                let meter = &meter;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        meter.counts(kind, 1);
                    }
                });
            }
        });
        for (counted, threads) in meter.sample_counts().into_iter().zip([1, 1, 2]) {
            let owed = threads * 10_000 - counted;
            assert!(owed < threads * 2 * EACH, "{threads} threads have not told of {owed}");
        }
    }

    #[test]
    fn calls_on_several_keyspaces_count_where_they_are_sampled() {
        let meter = Meter::new(fresh_store());
        for _ in 0..100_000 {
            if meter.samples_several() {
                meter.add(Kind::Write, EACH * 3);
            }
        }
        let [_, _, writes] = meter.sample_counts();
        assert!((writes as f64 / 300_000.0 - 1.0).abs() < 0.05, "{writes}");
    }

    #[test]
    fn rates_follow_the_load_and_fade_slowly() {
        let meter = Meter::new(fresh_store());
        assert!(!meter.roll(5_000_000));
        meter.add(Kind::Write, 6400);
        meter.wants(Kind::Write, b"k");
        meter.wrote(100, 6400);
        meter.waited(500_000);
        assert!(!meter.roll(5_500_000), "less than a tick");
        assert!(meter.roll(7_000_000));
        let load = meter.sample().load;
        assert_eq!((load.writes, load.entry_bytes, load.waited), (3200.0, 64.0, 0.25));
        // Ten idle minutes halve it.
        assert!(!meter.roll(607_000_000));
        assert_eq!(meter.sample().load.writes, 1600.0);
        assert_eq!(meter.sample().wanted.len(), 1, "written keys stand in");
    }

    #[test]
    fn rates_of_late_forget_in_a_few_seconds() {
        let meter = Meter::new(fresh_store());
        let second = |n: u64| meter.roll(n * 1_000_000);
        second(1);
        assert_eq!(meter.sample().lately.writes, 0.0, "nothing is known");
        for n in 2..8 {
            meter.add(Kind::Write, 6400);
            second(n);
            assert_eq!(meter.sample().lately.writes, 6400.0);
        }
        for n in 8..12 {
            meter.add(Kind::Seek, 640);
            second(n);
        }
        let Sample { load, lately, .. } = meter.sample();
        assert_eq!((lately.writes, lately.seeks), (0.0, 640.0));
        assert!(load.writes > 4000.0, "it fades slowly: {}", load.writes);
    }
}
