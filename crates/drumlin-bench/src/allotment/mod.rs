//! Filter allocation, counted: the unneeded blocks that each `filter_mode` reads, compared with the best division of
//! the same bits over the tables, and the accuracy of the engine's lookup statistics.
//!
//! A *course* loads a leveled store, then mixes lookups with overwrites, about three of each key. It runs on a
//! simulated disk with stepped background work, so it repeats exactly and measures no time. At twenty points it
//! compares the engine with the truth: it repeats past lookups on the current tree (`truth.rs`), with weights that
//! decay like the engine's counts. This gives the true number of vain lookups of each table: lookups that probe the
//! table, although it lacks their key. The comparison yields
//!
//! - unneeded blocks per lookup, of the filters as built and of the best division of the same number of bits;
//! - the error of the engine's estimates (Merlin), and that of a simpler rule: the output of a compaction inherits
//!   the mean of its inputs' counts.
//!
//! Sizes: a memtable of 64 KiB, tables of 32 KiB, and a size ratio of 4 (Zhu et al., *Mnemosyne*, SIGMOD 2025,
//! evaluate 126 tables at that ratio).

pub mod shown;
pub mod truth;

use crate::engine::Result;
use crate::generate::choose::{Chooser, Population, Target};
use crate::generate::random::Random;
use crate::generate::zipf::YCSB_THETA;
use drumlin::env::MemEnv;
use drumlin::{Db, Keyspace};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use truth::{Compared, Lookup, Truth, failed, key};

/// Compaction policy of a course.
const POLICY: &str = "leveling:4";
/// Policy after the switch in a course with the event `restart`.
const OTHER_POLICY: &str = "tiering:4";
/// Number of points at which a course compares the engine with the truth.
const POINTS: u64 = 20;
/// Points at which a course with the event `restart` reopens its store, and at which it switches its policy.
const REOPENED_AT: u64 = 8;
const SWITCHED_AT: u64 = 14;
/// Number of operations per loaded entry.
const OPERATIONS_PER_ENTRY: u64 = 12;
/// Number of lookups in 41 operations (Mnemosyne's workload type II); the others are overwrites.
const LOOKUPS_OF_41: u64 = 31;
/// Standard deviation of the normal distribution, as a share of the keys.
const SIGMA: f64 = 0.1;
/// Share of the keys by which the centre of lookups moves in a course with a shift.
const SHIFT: f64 = 0.4;
/// Number of operations between two reads of the tree's shape.
const BATCH: u64 = 1000;
const VALUE: [u8; 60] = [7; 60];

/// Parameters of a course.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Value of the option `filter_mode`.
    pub mode: String,
    /// Filter bits per key on average.
    pub bits: f64,
    /// Share of lookups that find nothing.
    pub empty: f64,
    /// Distribution of keys: `uniform`, `normal` (hot keys are adjacent) or `zipf` (hot keys are scattered).
    pub dist: String,
    /// Number of entries.
    pub entries: u64,
    /// Number of reading threads.
    pub threads: u64,
    /// Event during the course: `nothing`, `shift` (the drawn keys move after a quarter of the operations) or
    /// `restart` (the store is reopened, and later its compaction policy changes).
    pub event: String,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// State of a course at one point.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Operations so far.
    pub operations: u64,
    /// Number of tables.
    pub tables: u64,
    /// Filter bits per key over all tables.
    pub bits: f64,
    /// Unneeded blocks per lookup since the last point, as the engine counted them.
    pub unneeded: f64,
    /// Comparison with the truth.
    #[serde(flatten)]
    pub compared: Compared,
}

/// Results of a course.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Course {
    /// Parameters of the course.
    pub setup: Setup,
    /// Unneeded blocks per lookup over the second half of the operations.
    pub unneeded: f64,
    /// The points.
    pub points: Vec<Point>,
}

impl Course {
    /// Returns the points of the second half. By then, lookup statistics existed when most tables were built.
    pub(crate) fn settled(&self) -> &[Point] {
        &self.points[self.points.len() / 2..]
    }

    /// Returns the mean of a figure over the settled points.
    pub(crate) fn mean(&self, of: impl Fn(&Point) -> f64) -> f64 {
        let points = self.settled();
        points.iter().map(of).sum::<f64>() / points.len().max(1) as f64
    }
}

fn target(dist: &str) -> Result<Target> {
    Ok(match dist {
        "uniform" => Target::Uniform,
        "normal" => Target::Normal { sigma: SIGMA },
        "zipf" => Target::Zipf { theta: YCSB_THETA },
        _ => return Err(format!("unknown distribution {dist}; available: uniform, normal, zipf")),
    })
}

/// A store under test.
struct Store {
    mem: MemEnv,
    db: Db,
    keys: Keyspace,
}

impl Store {
    fn open(mem: MemEnv, setup: &Setup) -> Result<Store> {
        let db = Db::builder("/s").env(mem.env()).open().map_err(failed)?;
        let bits = setup.bits.to_string();
        let options = [
            ("compaction", POLICY),
            ("memtable_bytes", "64KiB"),
            ("file_bytes", "32KiB"),
            ("filter_mode", &setup.mode),
            ("filter_bits", &bits),
        ];
        let keys = db.keyspace_with("k", &options).map_err(failed)?;
        Ok(Store { mem, db, keys })
    }

    fn reopened(self) -> Result<Store> {
        self.db.close().map_err(failed)?;
        let db = Db::builder("/s").env(self.mem.env()).open().map_err(failed)?;
        let keys = db.keyspace("k").map_err(failed)?;
        Ok(Store { mem: self.mem, db, keys })
    }
}

/// Draws operations.
struct Draw {
    setup: Setup,
    random: Random,
    chooser: Chooser,
    population: Population,
    /// Offset that is added to each drawn id, modulo the number of entries.
    moved: u64,
}

impl Draw {
    fn new(setup: &Setup) -> Result<Draw> {
        let population = Population { base: setup.entries, own: 0, thread: 0, threads: 1, expected: 0 };
        let chooser = Chooser::new(target(&setup.dist)?, &population);
        let random = Random::new(setup.seed, "allotment", 0);
        Ok(Draw { setup: setup.clone(), random, chooser, population, moved: 0 })
    }

    fn id(&mut self) -> u64 {
        let id = self.chooser.next(&mut self.random, &mut self.population).unwrap_or(0);
        (id + self.moved) % self.setup.entries
    }

    /// Returns the id of an overwrite, or a lookup.
    fn operation(&mut self) -> std::result::Result<u64, Lookup> {
        let id = self.id();
        if self.random.below(41) >= LOOKUPS_OF_41 {
            return Ok(id);
        }
        let is_absent = (self.random.below(1 << 20) as f64) < self.setup.empty * f64::from(1 << 20);
        Err(Lookup { id, is_absent })
    }
}

/// Runs `lookups` on several threads, and checks that each finds its key if and only if it exists.
fn look_up(keys: &Keyspace, lookups: &[Lookup], threads: u64) -> Result<()> {
    let one = |lookup: &Lookup| match keys.get(key(lookup.id, lookup.is_absent)).map_err(failed)? {
        found if found.is_some() == lookup.is_absent => Err(format!("wrong answer to {lookup:?}")),
        _ => Ok(()),
    };
    if threads <= 1 {
        return lookups.iter().try_for_each(one);
    }
    let part = lookups.len().div_ceil(threads as usize).max(1);
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> =
            lookups.chunks(part).map(|part| scope.spawn(move || part.iter().try_for_each(one))).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a reader panicked".to_owned())?)
    })
}

/// Runs a course.
pub fn run(setup: &Setup) -> Result<Course> {
    let mut store = Store::open(MemEnv::new(setup.seed), setup)?;
    let mut draw = Draw::new(setup)?;
    let mut order: Vec<u64> = (0..setup.entries).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, draw.random.below(at as u64 + 1) as usize);
    }
    order.iter().try_for_each(|id| store.keys.put(key(*id, false), VALUE).map(drop).map_err(failed))?;
    let operations = OPERATIONS_PER_ENTRY * setup.entries;
    let (mut truth, mut points) = (Truth::of(&store.keys, &store.db)?, Vec::new());
    let (mut since, mut lookups_since) = (store.db.metrics().lookup_tables_absent, 0);
    let (mut settled, mut settled_lookups, mut done) = (0, 0, 0);
    for point in 1..=POINTS {
        if setup.event == "shift" && point == POINTS / 4 + 1 {
            draw.moved = (SHIFT * setup.entries as f64) as u64;
        }
        while done < operations * point / POINTS {
            let mut lookups = Vec::new();
            for _ in 0..BATCH.min(operations - done) {
                match draw.operation() {
                    Ok(id) => store.keys.put(key(id, false), VALUE).map(drop).map_err(failed)?,
                    Err(lookup) => lookups.push(lookup),
                }
            }
            look_up(&store.keys, &lookups, setup.threads)?;
            done += BATCH.min(operations - done);
            lookups_since += lookups.len() as u64;
            truth.note(&lookups, &store.keys, &store.db)?;
        }
        let unneeded = store.db.metrics().lookup_tables_absent - since;
        if point > POINTS / 2 {
            (settled, settled_lookups) = (settled + unneeded, settled_lookups + lookups_since);
        }
        let (tables, bits, compared) = truth.compared(&store.keys, &store.db)?;
        let unneeded = unneeded as f64 / lookups_since.max(1) as f64;
        points.push(Point { operations: done, tables, bits, unneeded, compared });
        if setup.event == "restart" {
            match point {
                REOPENED_AT => store = store.reopened()?,
                SWITCHED_AT => {
                    store.keys.set_option("compaction", OTHER_POLICY).map_err(failed)?;
                }
                _ => {}
            }
        }
        (since, lookups_since) = (store.db.metrics().lookup_tables_absent, 0);
    }
    store.db.close().map_err(failed)?;
    let unneeded = settled as f64 / settled_lookups.max(1) as f64;
    Ok(Course { setup: setup.clone(), unneeded, points })
}

/// Runs courses in parallel, one per core. Returns the results in the order of `setups`.
pub fn run_all(setups: &[Setup]) -> Result<Vec<Course>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, setup)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            setups.get(at).map(|setup| (at, setup))
        } {
            done.push((at, run(setup)?));
        }
        Ok(done)
    };
    let mut courses: Vec<(usize, Course)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..cores.min(setups.len())).map(|_| scope.spawn(work)).collect();
        let joined =
            running.into_iter().map(|thread| thread.join().map_err(|_| "a course panicked".to_owned())?);
        joined.collect::<Result<Vec<_>>>().map(|parts| parts.into_iter().flatten().collect())
    })?;
    courses.sort_by_key(|(at, _)| *at);
    Ok(courses.into_iter().map(|(_, course)| course).collect())
}
