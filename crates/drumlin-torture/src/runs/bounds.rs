//! The bounds run: memory, disk space and recovery stay within their limits while the data outgrows the memory budget.
//!
//! The run uses real files, because the contents of a simulated disk would count as heap memory. A program writes,
//! overwrites, deletes and reads in one keyspace while another keyspace is idle. Its data is 1, 4 and 16 times
//! `memory_budget`. Then:
//! - The heap never exceeds 103 % of `memory_budget`. The whole process is counted, with the program itself.
//! - Tables and log segments never exceed `disk_budget`. If the budget refuses a write, it succeeds once compactions
//!   have freed space.
//! - Every write that waited is counted under a reason.
//! - The idle keyspace causes no flush and no compaction.
//! - After a clean close, open reads no more than the manifest and the log, and every table belongs to a tree.

use crate::failure::{Failure, Verdict};
use crate::fuzz::heap;
use crate::parallel;
use drumlin::{Db, ErrorKind, Keyspace, Metrics};
use drumlin_env::{Env, Random, TempDir};
use drumlin_format::names::FileName;
use std::collections::BTreeSet;
use std::path::Path;

/// Memory budget of the store.
const MEMORY: u64 = 16 << 20;
/// Sizes of the data in memory budgets.
pub const SIZES: [u64; 3] = [1, 4, 16];
/// Ceiling on the heap in percent of the memory budget.
const HEAP_PERCENT: u64 = 103;
/// Part of the disk budget for the log and for compactions in progress. The rest is three quarters of the bytes
/// written.
const DISK_LEAST: u64 = 24 << 20;
/// Length of a value.
const VALUE: usize = 400;
/// Number of operations between two looks at the disk.
const LOOK: u64 = 512;
/// Number of attempts for a write that the disk budget refuses.
const ATTEMPTS: u32 = 20;
/// Pause in microseconds between two of them while compactions wait for disk space.
const PAUSE_MICROS: u64 = 250_000;

/// Results of one program at one size.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    bytes: u64,
    heap: u64,
    disk_percent: u64,
    refused: u64,
    stalls: u64,
}

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    sizes: u64,
    bytes: u64,
    heap: u64,
    disk_percent: u64,
    refused: u64,
    stalls: u64,
    /// Failures, each with its seed and its size.
    pub failures: Vec<(u64, u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let orphans = self.failures.iter().filter(|(_, _, f)| f.verdict == Verdict::Orphan).count();
        format!(
            "bounds: sizes {}, mib written {}, heap percent {}, disk percent {}, refused {}, stalls {}, \
             orphans {orphans}, wrong {}",
            self.sizes,
            self.bytes >> 20,
            (self.heap * 100).div_ceil(MEMORY),
            self.disk_percent,
            self.refused,
            self.stalls,
            self.failures.len() - orphans,
        )
    }

    fn add(&mut self, measured: Measured) {
        self.sizes += 1;
        self.bytes += measured.bytes;
        self.heap = self.heap.max(measured.heap);
        self.disk_percent = self.disk_percent.max(measured.disk_percent);
        self.refused += measured.refused;
        self.stalls += measured.stalls;
    }
}

fn failed(what: &'static str) -> impl Fn(drumlin::Error) -> Failure {
    move |error| Verdict::Failed.of(format!("{what}: {error}"))
}

/// Waits until the store is idle. Compactions that wait for disk space may remain.
fn settle(db: &Db) -> Result<(), Failure> {
    match db.wait_idle() {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
        result => result.map_err(failed("idle")),
    }
}

/// Lengths of the files of a store.
#[derive(Default)]
struct Lengths {
    tables: u64,
    log: u64,
    /// Number of log segments.
    segments: u64,
    manifest: u64,
    numbers: BTreeSet<u64>,
}

/// Reads the lengths of the files in `dir`.
fn lengths(dir: &Path) -> Result<Lengths, Failure> {
    let env = Env::os();
    let entries = env.fs().list(dir).map_err(|e| Verdict::Failed.of(format!("{}: {e}", dir.display())))?;
    let mut lengths = Lengths::default();
    for entry in entries {
        let len = entry.len;
        match FileName::parse(&entry.name) {
            Some(FileName::Table(id)) => {
                lengths.tables += len;
                lengths.numbers.insert(id.0);
            }
            Some(FileName::Log(..)) => {
                (lengths.log, lengths.segments) = (lengths.log + len, lengths.segments + 1)
            }
            Some(FileName::Manifest(..)) => lengths.manifest += len,
            _ => {}
        }
    }
    Ok(lengths)
}

/// A program that runs on a store.
struct Program<'a> {
    dir: &'a Path,
    random: Random,
    keys: u64,
    disk_budget: u64,
    measured: Measured,
}

impl Program<'_> {
    fn open(&self) -> Result<Db, Failure> {
        let set = |name: &str, value: u64, builder: drumlin::Builder| {
            builder.set(name, &value.to_string()).map_err(failed("an option"))
        };
        let builder = set("memory_budget", MEMORY, Db::builder(self.dir))?;
        let builder = set("disk_budget", self.disk_budget, builder)?;
        // A write that waits for space fails soon, so that the program sees the refusal. A flush without space pauses
        // for a second before it is tried again.
        let builder = set("write_timeout_ms", 3000, builder)?;
        builder.set("log_segment_bytes", "1MiB").and_then(|b| b.open()).map_err(failed("open"))
    }

    fn key(&mut self) -> [u8; 16] {
        let mut key = *b"bounds..00000000";
        key[8..].copy_from_slice(&self.random.below(self.keys).to_be_bytes());
        key
    }

    fn value(&mut self) -> [u8; VALUE] {
        let mut value = [0; VALUE];
        self.random.fill(&mut value);
        value
    }

    /// Repeats `write` while the disk budget refuses it.
    fn persist(&mut self, db: &Db, write: impl Fn() -> drumlin::Result<u64>) -> Result<(), Failure> {
        let mut refusal = String::new();
        for _ in 0..ATTEMPTS {
            match write() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    self.measured.refused += 1;
                    refusal = error.to_string();
                    // Compactions that lack space themselves are tried again after a second.
                    if db.wait_idle().is_err() {
                        Env::os().clock().sleep_micros(PAUSE_MICROS);
                    }
                }
                Err(error) => return Err(failed("a write")(error)),
            }
        }
        let metrics = db.metrics();
        let what = format!(
            "a write was refused {ATTEMPTS} times for lack of disk space: {refusal}; \
             {} bytes of tables are live, in {} \
             runs",
            metrics.table_bytes, metrics.runs
        );
        Err(Verdict::Stuck.of(what))
    }

    fn step(&mut self, number: u64, db: &Db, busy: &Keyspace) -> Result<(), Failure> {
        let (key, value) = (self.key(), self.value());
        match number % 16 {
            3 => self.persist(db, || busy.delete(key))?,
            7 if number % 1024 == 7 => {
                let end = u64::from_be_bytes(key[8..].try_into().unwrap_or_default()) + 64;
                let mut to = key;
                to[8..].copy_from_slice(&end.to_be_bytes());
                self.persist(db, || busy.delete_range(key..to))?;
            }
            11 => drop(busy.get(key).map_err(failed("get"))?),
            13 if number % 512 == 13 => {
                busy.range(key..).take(100).try_for_each(|entry| entry.map(drop)).map_err(failed("scan"))?;
            }
            _ => {
                self.persist(db, || busy.put(key, value))?;
                self.measured.bytes += (key.len() + value.len()) as u64;
            }
        }
        if number.is_multiple_of(LOOK) {
            self.look(number)?;
        }
        Ok(())
    }

    /// Compares the disk space in use with the budget.
    fn look(&mut self, number: u64) -> Result<(), Failure> {
        let lengths = lengths(self.dir)?;
        let used = lengths.tables + lengths.log;
        self.measured.disk_percent = self.measured.disk_percent.max((used * 100).div_ceil(self.disk_budget));
        if used > self.disk_budget {
            let what = format!(
                "tables take {} and the log {} bytes, more than disk_budget = {}",
                lengths.tables, lengths.log, self.disk_budget
            );
            return Err(Verdict::Wrong.of(what).at(number as usize));
        }
        Ok(())
    }

    /// Runs all operations on a new store and closes it.
    fn run(&mut self, operations: u64) -> Result<(), Failure> {
        let db = self.open()?;
        let idle = db.keyspace("idle").map_err(failed("keyspace"))?;
        idle.put("key", "value").map_err(failed("put"))?;
        idle.flush().map_err(failed("flush"))?;
        let busy = db.keyspace("busy").map_err(failed("keyspace"))?;
        (0..operations).try_for_each(|number| self.step(number, &db, &busy))?;
        settle(&db)?;
        self.look(operations)?;
        self.judge(&db, &db.metrics())?;
        drop((idle, busy));
        db.close().map_err(failed("close"))
    }

    /// Checks what the counters and trees of an idle store say.
    fn judge(&mut self, db: &Db, metrics: &Metrics) -> Result<(), Failure> {
        self.measured.stalls = metrics.stalls_runs + metrics.stalls_memory;
        let explained = metrics.stall_micros_runs + metrics.stall_micros_memory;
        if metrics.stall_longest_micros > explained {
            let what = format!(
                "a write waited {} us, but all reasons together account for {explained} us",
                metrics.stall_longest_micros
            );
            return Err(Verdict::Wrong.of(what));
        }
        let shapes = db.tree();
        let tables = |name: &str| {
            let levels = shapes.iter().filter(|shape| shape.name == name).flat_map(|shape| &shape.levels);
            levels.flat_map(|level| &level.runs).map(|run| run.files.len()).sum::<usize>()
        };
        match tables("idle") {
            1 => Ok(()),
            other => Err(Verdict::Wrong.of(format!("the idle keyspace has {other} tables, not 1"))),
        }
    }

    /// Opens the store again and checks what that read and left behind.
    fn reopen(&mut self) -> Result<(), Failure> {
        let before = lengths(self.dir)?;
        let db = self.open()?;
        let read = db.metrics().open_bytes_read;
        // Segment headers are read twice, and the pointer once.
        if read > before.manifest + before.log + (before.segments + 1) * 4096 {
            let what = format!(
                "open read {read} bytes; the manifest has {} and the log {}",
                before.manifest, before.log
            );
            return Err(Verdict::Wrong.of(what));
        }
        settle(&db)?;
        // Without a budget nothing waits for disk space, so no flush or compaction is left with an unfinished table.
        db.set_option("disk_budget", "0").map_err(failed("an option"))?;
        db.wait_idle().map_err(failed("idle"))?;
        let shapes = db.tree();
        let runs = shapes.iter().flat_map(|shape| &shape.levels).flat_map(|level| &level.runs);
        let live: BTreeSet<u64> = runs.flat_map(|run| &run.files).map(|file| file.table).collect();
        if let Some(table) = lengths(self.dir)?.numbers.difference(&live).next() {
            return Err(Verdict::Orphan.of(format!("table {table} belongs to no tree")));
        }
        db.close().map_err(failed("close"))
    }
}

/// Runs one program whose data is `size` times the memory budget.
fn one(seed: u64, size: u64) -> Result<Measured, Failure> {
    let dir = TempDir::new("drumlin-bounds").map_err(|e| Verdict::Failed.of(e.to_string()))?;
    let operations = size * MEMORY / (VALUE as u64 + 16);
    let mut program = Program {
        dir: dir.path(),
        random: Random::new(seed, "bounds"),
        keys: operations,
        disk_budget: size * MEMORY * 3 / 4 + DISK_LEAST,
        measured: Measured::default(),
    };
    let (result, heap) = heap::peak_of_all(|| program.run(operations).and_then(|()| program.reopen()));
    result?;
    program.measured.heap = heap;
    if heap * 100 > MEMORY * HEAP_PERCENT {
        let what = format!("the heap reached {heap} bytes; memory_budget is {MEMORY}");
        return Err(Verdict::Wrong.of(what));
    }
    Ok(program.measured)
}

/// Runs `count` programs at each of `sizes`, in memory budgets. They run one after the other, so that each has the
/// heap of the process for itself.
pub fn run(first: u64, count: u64, sizes: &[u64]) -> Figures {
    let mut figures = Figures::default();
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        for &size in sizes {
            match parallel::guarded(|| one(seed, size)) {
                Ok(measured) => figures.add(measured),
                Err(failure) => {
                    figures.failures.push((
                        seed,
                        size,
                        failure.within(&format!("{size} times memory_budget")),
                    ));
                }
            }
        }
    }
    figures
}
