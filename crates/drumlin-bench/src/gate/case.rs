//! Cases of the gate: small runs whose counts depend only on the code.
//!
//! Each case creates a store in a simulated environment with seed 1, prepares it, runs its operations and returns
//! counts per operation. Entries have 16 + 100 bytes unless the name says otherwise.

use crate::allocations;
use crate::drumlin_engine::{Open, open_in};
use crate::engine::{Direction, Durability, Engine, EngineConfig, Io, Result};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
use crate::generate::stream::{Call, Chunk, Stream};
use crate::generate::values::Values;
use crate::measure::oracle::Oracle;
use crate::workload::{Action, After, Entries, Phase, Workload, dynamic, papers};
use drumlin::env::{MemEnv, Op};
use drumlin_sim::crowd::Crowd;
use drumlin_sim::desk::{self, Desk};
use std::path::Path;

/// Seed of everything random.
const SEED: u64 = 1;
/// Number of loaded entries, which reads find.
const LOADED: u64 = 10_000;

/// Counts per operation, by name.
pub(super) type Counts = Vec<(String, f64)>;

/// Work of a case.
#[derive(Clone, Copy)]
enum Work {
    /// Operations of one action on a prepared store.
    Action(Prepared, Action),
    /// Puts, then a flush and all pending compactions; with `compact`, a full compaction.
    Load { value_bytes: usize, compact: bool },
    /// Puts, then a close and an open that replays the log.
    Recovery,
    /// Puts under a policy, to measure the cost of its decisions.
    Policy(&'static str),
    /// A complete workload.
    Workload(fn(u64) -> Result<Workload>),
    /// Decisions of the adaptive policy over many runs, including plans, without a store.
    Decide(desk::Case),
    /// Searches of the adaptive policy for its parameters, without a store.
    Search,
    /// Admissions of a plan over the given number of files, without a store.
    Admit(u32),
}

/// Content of the store before the operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prepared {
    /// Empty; values have the given size in bytes.
    Empty(usize),
    /// The loaded entries, in the memtable.
    InMemory,
    /// The loaded entries, in one run.
    InTables,
    /// The loaded entries with values of 1000 bytes, in one run that is several times as large as the block cache.
    /// Reads pass the page cache.
    OnDevice,
}

/// A case of the gate.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Number of operations; instructions are measured with this number and twice this number.
    pub(super) operations: u64,
    work: Work,
}

const fn action(name: &'static str, operations: u64, prepared: Prepared, action: Action) -> Case {
    Case { name, operations, work: Work::Action(prepared, action) }
}

const fn load(name: &'static str, operations: u64, value_bytes: usize, compact: bool) -> Case {
    Case { name, operations, work: Work::Load { value_bytes, compact } }
}

const fn policy(name: &'static str, operations: u64, policy: &'static str) -> Case {
    Case { name, operations, work: Work::Policy(policy) }
}

const fn decide(name: &'static str, case: desk::Case) -> Case {
    Case { name, operations: 100, work: Work::Decide(case) }
}

/// Number of runs in the tree for decisions.
const DECIDED_RUNS: usize = 200;
const ELECTIVE: desk::Case = desk::Case { partial: false, must: false, priced: false };
const FORWARD: Direction = Direction::Forward;
const UNIFORM: Target = Target::Uniform;
use Prepared::{Empty, InMemory, InTables, OnDevice};

/// All cases. Work grows in steps of whole flushes and compactions, so the numbers of operations are chosen such that
/// the gate notices 3 % more of them (`--regress`).
pub(super) const CASES: [Case; 32] = [
    action("put-sequential", 10_000, Empty(100), Action::Put(Target::New)),
    action("put-random", 10_000, Empty(100), Action::Put(Target::Below(LOADED))),
    action("put-batch", 10_000, Empty(100), Action::Batch(Target::Below(LOADED), 100)),
    action("put-1000", 7_000, Empty(1000), Action::Put(Target::Below(LOADED))),
    action("get-memtable", 10_000, InMemory, Action::Get(UNIFORM)),
    action("get-table", 10_000, InTables, Action::Get(UNIFORM)),
    action("get-missing", 10_000, InTables, Action::GetAbsent(UNIFORM)),
    action("multiget", 10_000, InTables, Action::MultiGet(UNIFORM, 32)),
    action("seek", 5_000, InTables, Action::Range(UNIFORM, Entries::Fixed(1), FORWARD)),
    action("seek-next-10", 2_000, InTables, Action::Range(UNIFORM, Entries::Fixed(11), FORWARD)),
    action("seek-prev-10", 2_000, InTables, Action::Range(UNIFORM, Entries::Fixed(11), Direction::Back)),
    action("scan50", 1_000, InTables, Action::Range(UNIFORM, Entries::Fixed(50), FORWARD)),
    action("get-device", 4_000, OnDevice, Action::Get(UNIFORM)),
    action("multiget-device", 4_000, OnDevice, Action::MultiGet(UNIFORM, 32)),
    action("scan50-device", 200, OnDevice, Action::Range(UNIFORM, Entries::Fixed(50), FORWARD)),
    action("delete", 10_000, Empty(100), Action::Delete(Target::Below(LOADED))),
    load("flush-100", 10_000, 100, false),
    load("flush-1000", 8_000, 1000, false),
    load("merge-100", 10_000, 100, true),
    load("merge-1000", 9_000, 1000, true),
    Case { name: "recovery", operations: 8_000, work: Work::Recovery },
    policy("policy-leveling", 8_000, "leveling"),
    policy("policy-1-leveling", 9_000, "1-leveling"),
    policy("policy-tiering", 8_000, "tiering"),
    decide("decide-full", ELECTIVE),
    decide("decide-partial", desk::Case { partial: true, ..ELECTIVE }),
    decide("decide-must", desk::Case { partial: true, must: true, ..ELECTIVE }),
    decide("decide-priced", desk::Case { priced: true, ..ELECTIVE }),
    Case { name: "search", operations: 34, work: Work::Search },
    Case { name: "admit", operations: 34, work: Work::Admit(1000) },
    Case { name: "dynamic", operations: 2_500, work: Work::Workload(dynamic_small) },
    Case { name: "filters", operations: 3_000, work: Work::Workload(filters_small) },
];

fn dynamic_small(operations: u64) -> Result<Workload> {
    dynamic::workload("I", operations as f64 / 40_960_000.0)
}

fn filters_small(operations: u64) -> Result<Workload> {
    papers::filters("I", 0.0, "uniform", operations as f64 / 20_000_000.0)
}

/// Numbers of environment calls so far. Background steps also query free space and file lengths, so reads and writes
/// are counted separately.
#[derive(Default)]
struct Calls {
    all: u64,
    reads: u64,
    writes: u64,
    syncs: u64,
}

/// A store in a simulated environment, and its expected content.
struct Bench {
    mem: MemEnv,
    /// The open store; `None` while it is being reopened.
    open: Option<Open>,
    oracle: Oracle,
    values: Values,
    config: EngineConfig,
    keys: KeyForm,
    value_bytes: usize,
    base: u64,
    ingested: u64,
}

/// Engine settings of the cases. The adaptive policy has pinned parameters here. Its searches are limited to two
/// percent of the machine's time, and virtual time cannot measure that, because calls of the store take none.
fn config() -> EngineConfig {
    EngineConfig {
        memory_bytes: 32 << 20,
        memtable_bytes: 256 << 10,
        file_bytes: 256 << 10,
        set: vec![("arce_pin".to_owned(), "8/24/2/1".to_owned())],
        ..EngineConfig::default()
    }
}

const STORE: &str = "/gate";

impl Bench {
    fn new(config: EngineConfig, ids: u64, keys: KeyForm, value_bytes: usize) -> Result<Bench> {
        let mem = MemEnv::new(SEED);
        let open = Some(open_in(mem.env(), Some(mem.clone()), Path::new(STORE), &config)?);
        let values = Values::new(SEED, 0.5, value_bytes);
        let oracle = Oracle::new(ids, false);
        Ok(Bench { mem, open, oracle, values, config, keys, value_bytes, base: 0, ingested: 0 })
    }

    /// Runs `phase` and checks that gets find the existing entries.
    fn phase(&mut self, phase: &Phase) -> Result<u64> {
        let mut stream = Stream::new(phase, self.keys, self.value_bytes, self.base, SEED, 0, None);
        let mut chunk = Chunk::default();
        let mut value = Vec::new();
        let mut done = 0;
        while stream.fill(&mut chunk, &|id| self.oracle.is_present(id))? {
            for operation in &chunk.operations {
                done += self.step(&chunk, operation, &mut value)?;
            }
        }
        self.base += stream.inserted();
        if let Some(Action::Put(Target::Below(n))) = phase.mix.first().map(|(_, action)| *action) {
            self.base = self.base.max(n);
        }
        match phase.after {
            After::Nothing => {}
            After::Wait => self.store()?.wait_idle()?,
            After::Idle => {
                self.store()?.flush()?;
                self.store()?.wait_idle()?;
            }
            After::Compact => {
                self.store()?.flush()?;
                self.store()?.compact()?;
                self.store()?.wait_idle()?;
            }
        }
        Ok(done)
    }

    fn step(
        &mut self,
        chunk: &Chunk,
        operation: &crate::generate::stream::Operation,
        value: &mut Vec<u8>,
    ) -> Result<u64> {
        let items = chunk.items(operation);
        let Some(first) = items.first() else { return Ok(0) };
        let key = chunk.key(first);
        let wrong = || Err(format!("wrong answer for id {}", first.id));
        match operation.call {
            Call::Put => {
                let version = self.oracle.next_version(first.id);
                self.values.write(first.id, version, self.value_bytes, value);
                self.store()?.put(key, value, Durability::Buffered)?;
                self.oracle.note_put(first.id, version, key.len(), value.len());
                self.ingested += (key.len() + value.len()) as u64;
            }
            Call::Batch => {
                self.values.write(first.id, 1, self.value_bytes, value);
                let pairs: Vec<(&[u8], &[u8])> =
                    items.iter().map(|item| (chunk.key(item), &value[..])).collect();
                self.store()?.batch(&pairs, Durability::Buffered)?;
                self.ingested +=
                    pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
            }
            Call::Get if !self.store()?.get(key, &mut |_| {})? => return wrong(),
            Call::GetAbsent if self.store()?.get(key, &mut |_| {})? => return wrong(),
            Call::Get | Call::GetAbsent => {}
            Call::MultiGet => {
                let keys: Vec<&[u8]> = items.iter().map(|item| chunk.key(item)).collect();
                let mut found = 0;
                self.store()?.multi_get(&keys, &mut |_, value| found += usize::from(value.is_some()))?;
                if found != keys.len() {
                    return wrong();
                }
            }
            Call::Range(direction) => {
                let limit = first.size as usize;
                if self.store()?.range(Some(key), direction, limit, &mut |_, _| {})? == 0 {
                    return wrong();
                }
            }
            Call::Delete => self.store()?.delete(key, Durability::Buffered)?,
            Call::Reseek | Call::Scan(_) | Call::Modify => return Err("not a call of the gate".to_owned()),
        }
        Ok(items.len() as u64)
    }

    fn load(&mut self, entries: u64, after: After) -> Result<u64> {
        self.phase(&Phase::of("load", entries, Action::Put(Target::New)).then(after))
    }

    /// Returns the numbers of environment calls so far.
    fn calls(&self) -> Calls {
        let mut calls = Calls { all: self.mem.io_index(), ..Calls::default() };
        for (site, count) in self.mem.sites() {
            match site.op {
                Op::SyncData | Op::SyncAll | Op::SyncDir => calls.syncs += count,
                Op::Read => calls.reads += count,
                Op::Write => calls.writes += count,
                _ => {}
            }
        }
        calls
    }

    /// Runs `work` and returns its counts per operation.
    fn counted(&mut self, work: impl FnOnce(&mut Bench) -> Result<u64>) -> Result<Counts> {
        let before = (self.store()?.counters(), self.calls(), allocations::of_this_thread(), self.ingested);
        let operations = work(self)?.max(1) as f64;
        let after = (self.store()?.counters(), self.calls(), allocations::of_this_thread(), self.ingested);
        let per = |name: &str, count: u64| (name.to_owned(), count as f64 / operations);
        let mut counts = vec![
            per("env_calls_per_op", after.1.all - before.1.all),
            per("reads_per_op", after.1.reads - before.1.reads),
            per("writes_per_op", after.1.writes - before.1.writes),
            per("syncs_per_op", after.1.syncs - before.1.syncs),
        ];
        if let Some((after, before)) = after.2.zip(before.2) {
            counts.push(per("allocations_per_op", after - before));
        }
        let grown = |of: fn(&crate::engine::Counters) -> Option<u64>| {
            of(&after.0).zip(of(&before.0)).map(|(after, before)| after.saturating_sub(before))
        };
        let blocks = grown(|c| Some(c.cache_hits? + c.cache_misses?));
        counts.extend(blocks.map(|blocks| per("blocks_per_op", blocks)));
        let ingested = after.3 - before.3;
        if ingested > 0 {
            let share = |name: &str, bytes: u64| (name.to_owned(), bytes as f64 / ingested as f64);
            counts.extend(grown(|c| c.flush_bytes).map(|bytes| share("flush_amp", bytes)));
            counts.extend(grown(|c| c.merge_bytes).map(|bytes| share("merge_amp", bytes)));
            counts.extend(grown(|c| c.log_bytes).map(|bytes| share("log_amp", bytes)));
            counts.extend(grown(|c| c.decisions).map(|count| ("decisions".to_owned(), count as f64)));
        }
        let runs = after.0.runs_per_level.iter().flatten().sum::<u64>();
        counts.push(("runs".to_owned(), runs as f64));
        // Rounded to six decimal digits, the precision of the file, so that equal counts compare equal.
        Ok(counts.into_iter().map(|(name, value)| (name, (value * 1e6).round() / 1e6)).collect())
    }
}

impl Case {
    /// Runs `operations` operations. Returns counts per operation.
    pub(super) fn run(&self, operations: u64) -> Result<Counts> {
        let small = KeyForm::Hashed { len: 16 };
        match self.work {
            Work::Action(prepared, action) => {
                let value_bytes = match prepared {
                    Empty(bytes) => bytes,
                    OnDevice => 1000,
                    InMemory | InTables => 100,
                };
                let keys = if action.inserts() { KeyForm::Dense { len: 16 } } else { small };
                // For `InMemory`, the memtable is large enough that it is never sealed.
                let memtable_bytes = if prepared == InMemory { 8 << 20 } else { config().memtable_bytes };
                let config = match prepared {
                    OnDevice => EngineConfig { memory_bytes: 8 << 20, io: Io::Direct, ..config() },
                    _ => EngineConfig { memtable_bytes, ..config() },
                };
                let mut bench = Bench::new(config, LOADED + operations, keys, value_bytes)?;
                match prepared {
                    Empty(_) => 0,
                    InMemory => bench.load(LOADED, After::Nothing)?,
                    InTables | OnDevice => bench.load(LOADED, After::Compact)?,
                };
                bench.counted(|bench| bench.phase(&Phase::of(self.name, operations, action)))
            }
            Work::Load { value_bytes, compact } => {
                let mut bench = Bench::new(config(), operations, small, value_bytes)?;
                let after = if compact { After::Compact } else { After::Idle };
                bench.counted(|bench| bench.load(operations, after))
            }
            Work::Recovery => {
                let mut bench =
                    Bench::new(EngineConfig { memtable_bytes: 8 << 20, ..config() }, operations, small, 100)?;
                bench.counted(|bench| {
                    let done = bench.load(operations, After::Nothing)?;
                    bench.reopen()?;
                    Ok(done)
                })
            }
            Work::Policy(policy) => {
                let config = EngineConfig {
                    policy: Some(policy.to_owned()),
                    memtable_bytes: 64 << 10,
                    file_bytes: 64 << 10,
                    ..config()
                };
                let mut bench = Bench::new(config, operations, small, 100)?;
                bench.counted(|bench| bench.load(operations, After::Idle))
            }
            Work::Decide(case) => decisions(case, operations),
            Work::Search => searches(operations),
            Work::Admit(files) => admissions(files, operations),
            Work::Workload(make) => {
                let workload = make(operations)?;
                let mut bench = Bench::new(config(), workload.ids(), workload.keys, workload.value_bytes)?;
                bench.counted(|bench| {
                    workload.phases.iter().try_fold(0, |done, phase| Ok(done + bench.phase(phase)?))
                })
            }
        }
    }
}

/// Makes `operations` decisions over the same tree.
fn decisions(case: desk::Case, operations: u64) -> Result<Counts> {
    let desk = Desk::new(DECIDED_RUNS, case).map_err(|e| e.to_string())?;
    repeated("files_taken_per_op", operations, || desk.decide().map_err(|e| e.to_string()))
}

/// Makes `operations` searches over the same tree, each to its end.
fn searches(operations: u64) -> Result<Counts> {
    let desk = Desk::new(DECIDED_RUNS, ELECTIVE).map_err(|e| e.to_string())?;
    repeated("steps_per_op", operations, || desk.search().map_err(|e| e.to_string()))
}

/// Admits the plan over two levels of `files` files, `operations` times.
fn admissions(files: u32, operations: u64) -> Result<Counts> {
    let crowd = Crowd::new(files);
    repeated("pieces_per_op", operations, || Ok(crowd.admit().map_err(|e| e.to_string())?.0))
}

/// Calls `once` `operations` times. Returns the mean of its results as the count `name`, and its allocations per
/// operation.
fn repeated(name: &str, operations: u64, once: impl Fn() -> Result<usize>) -> Result<Counts> {
    let before = allocations::of_this_thread();
    let mut sum = 0;
    for _ in 0..operations {
        sum += once()?;
    }
    let per = |count: u64| (count as f64 / operations.max(1) as f64 * 1e6).round() / 1e6;
    let mut counts = vec![(name.to_owned(), per(sum as u64))];
    let allocated = allocations::of_this_thread().zip(before).map(|(after, before)| after - before);
    counts.extend(allocated.map(|count| ("allocations_per_op".to_owned(), per(count))));
    Ok(counts)
}

impl Bench {
    fn store(&self) -> Result<&Open> {
        self.open.as_ref().ok_or_else(|| "the store is closed".to_owned())
    }

    /// Closes the store and opens it again.
    fn reopen(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            Box::new(open).close()?;
        }
        self.open = Some(open_in(self.mem.env(), Some(self.mem.clone()), Path::new(STORE), &self.config)?);
        Ok(())
    }
}
