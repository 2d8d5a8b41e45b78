//! The dynamic workloads on the real engine, with the clock of a disk model.
//!
//! One client runs in a closed loop over a simulated disk. A block read takes 12 us, a block write 15 us, and each
//! operation 1 us more. Everything else takes no time, and compactions run concurrently with the client. So the
//! results include every block of the engine's I/O, are independent of the machine, and depend only on the arguments.
//! Policies are compared by:
//!
//! - the client's time per operation, including waits, and the blocks that its reads fetched;
//! - blocks written by flushes and compactions, and blocks read by compactions;
//! - write stalls, the 99.9th percentile of puts, and runs of the tree;
//! - reads by the number of extra runs they met (`depth`), and the maximum depth of the tree;
//! - for ARCE, the cost that its last search predicted for the phase, and the predicted against the actual duration
//!   of compactions (`foreseen`).
//!
//! The phases of a small store are short, but the engine samples its counters only once a second. So the simulated
//! clock is slowed down: everything takes 16 times as long as stated above, and results are divided by 16. The samples
//! then see as large a share of a phase as in a store 16 times larger.
//!
//! Memtables are small, so that a small store sees as many flushes as a large one. The cache is small for the same
//! reason.

use crate::drumlin_engine::{Open, open_in};
use crate::engine::{Durability, Engine, EngineConfig, Result};
use crate::generate::stream::{Call, Chunk, Operation, Stream};
use crate::generate::values::Values;
use crate::measure::oracle::Oracle;
use crate::workload::{After, Phase, Workload, dynamic};
use depth::Depths;
use drumlin::env::MemEnv;
use drumlin_sim::foresight::predicted;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::path::Path;

mod depth;
mod foreseen;
pub mod growth_page;
pub mod oracle;
mod shown;

pub use depth::{Deepest, ReadsAt};
pub use foreseen::{Foreseen, Missed};
pub use shown::Counted;

/// Time to read and to write a block of 4 KiB, in nanoseconds.
const READ: u64 = 12_000;
const WRITTEN: u64 = 15_000;
const BLOCK: f64 = 4096.0;
/// Time of an operation besides its blocks, in microseconds.
const EACH: u64 = 1;
/// Factor by which the simulated clock is slower than the reported times.
const SLOWER: u64 = 16;
const SEED: u64 = 1;
const STORE: &str = "/paced";

/// Operations between two samples of the tree.
const LOOK: u64 = 512;
/// Operations between two reads of the decision log.
const READ_LOG: u64 = 4096;
/// Upper bound of the put histogram, in nanoseconds of the slow clock.
const LONGEST: u64 = 1 << 42;

/// Sizes and settings of a course: one policy run through one plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Number of entries loaded, and of operations in a full phase.
    pub entries: u64,
    /// Value size in bytes; keys have 24 bytes.
    pub value_bytes: usize,
    /// Memtable size in bytes.
    pub flush_bytes: u64,
    /// Memory in bytes for block cache, memtables, filters and indexes together.
    pub memory_bytes: u64,
    /// Maximum number of concurrent compactions, in addition to one flush.
    pub merges: u32,
    /// Count reads by the extra runs they meet, and search the tree for its deepest places. Reads the engine's
    /// counters at each operation.
    pub depths: bool,
    /// Engine options by name; they override the other settings.
    pub set: Vec<(String, String)>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            entries: 100_000,
            value_bytes: 1000,
            flush_bytes: 64 << 10,
            // The minimum: filters and indexes fit, and few data blocks stay cached.
            memory_bytes: 8 << 20,
            merges: 1,
            depths: false,
            set: Vec::new(),
        }
    }
}

/// Results of a phase. Counts and times without a stated unit are per operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseCount {
    /// Name of the phase.
    pub name: String,
    /// Number of operations.
    pub operations: u64,
    /// Virtual nanoseconds of the client.
    pub nanos: f64,
    /// Blocks fetched by reads.
    pub fetched: f64,
    /// Blocks written by flushes.
    pub flushed: f64,
    /// Blocks written by compactions.
    pub merged: f64,
    /// Number of write stalls in the phase, and their total in milliseconds.
    pub waits: (u64, f64),
    /// 99.9th percentile of put times in nanoseconds.
    pub put_p999: f64,
    /// Mean number of runs in the tree.
    pub mean_runs: f64,
    /// Space amplification: maximum number of entries in tables, per key at the end of the phase.
    pub space: f64,
    /// Runs of each level at the end of the phase, newest level first.
    pub levels: Vec<u64>,
    /// Reads by the number of extra runs they met, if counted.
    pub reads: Vec<ReadsAt>,
    /// Maximum number of runs at one key for each level, if measured.
    pub deepest: Vec<Deepest>,
    /// Cost per operation that ARCE's last search predicted, in nanoseconds, if there was a search.
    pub predicted: Option<f64>,
    /// ARCE's compactions, and by how many flush intervals their durations missed the prediction.
    pub foreseen: Foreseen,
    /// State of the policy at the end of the phase.
    pub state: String,
}

/// Runs `plan` under `policy`. Returns the results of its phases, without the load.
pub fn course(policy: &str, plan: &str, setup: &Setup) -> Result<Vec<PhaseCount>> {
    course_of(policy, dynamic::workload(plan, setup.entries as f64 / 40_960_000.0)?, setup)
}

fn course_of(policy: &str, mut workload: Workload, setup: &Setup) -> Result<Vec<PhaseCount>> {
    workload.value_bytes = setup.value_bytes;
    let mut course = Course::new(policy, &workload, setup)?;
    let mut counts = Vec::new();
    for phase in &workload.phases {
        let count = course.phase(phase)?;
        if phase.name != "preload" {
            counts.push(count);
        }
    }
    match counts.iter().any(|count| count.operations > 0) {
        true => Ok(counts),
        false => Err("the plan has no operation besides its load".to_owned()),
    }
}

/// Returns the mean nanoseconds per operation.
pub fn mean(counts: &[PhaseCount]) -> f64 {
    let whole: f64 = counts.iter().map(|count| count.nanos * count.operations as f64).sum();
    whole / counts.iter().map(|count| count.operations as f64).sum::<f64>().max(1.0)
}

struct Course {
    mem: MemEnv,
    open: Open,
    oracle: Oracle,
    values: Values,
    workload: Workload,
    depths: bool,
    base: u64,
    log: foreseen::Reader,
}

/// Samples of the tree within a phase.
#[derive(Default)]
struct Looks {
    count: u64,
    /// Number of runs, summed over the samples.
    runs: u64,
    /// Maximum number of entries in tables.
    entries: u64,
}

impl Looks {
    fn add(&mut self, counters: &crate::engine::Counters) {
        self.count += 1;
        self.runs += counters.runs_per_level.iter().flatten().sum::<u64>();
        self.entries = self.entries.max(counters.table_entries.unwrap_or(0));
    }
}

impl Course {
    fn new(policy: &str, workload: &Workload, setup: &Setup) -> Result<Course> {
        let mem = MemEnv::new(SEED);
        mem.pace(READ * SLOWER, WRITTEN * SLOWER);
        // By default each memtable is flushed as its own run, as in the simulator and the paper.
        let mut set = vec![("flush_bytes".to_owned(), setup.flush_bytes.to_string())];
        set.extend(setup.set.iter().cloned());
        let config = EngineConfig {
            memory_bytes: setup.memory_bytes,
            memtable_bytes: setup.flush_bytes,
            file_bytes: setup.flush_bytes.saturating_mul(16),
            policy: Some(policy.to_owned()),
            durability: Durability::None,
            merges: setup.merges,
            set,
            ..EngineConfig::default()
        };
        let open = open_in(mem.env(), Some(mem.clone()), Path::new(STORE), &config)?;
        Ok(Course {
            mem,
            open,
            oracle: Oracle::new(workload.ids(), false),
            values: Values::new(SEED, 0.5, setup.value_bytes),
            workload: workload.clone(),
            depths: setup.depths,
            base: 0,
            log: foreseen::Reader::default(),
        })
    }

    fn phase(&mut self, phase: &Phase) -> Result<PhaseCount> {
        let Workload { keys, value_bytes, .. } = self.workload;
        let before = (self.open.counters(), self.nanos());
        let mut stream = Stream::new(phase, keys, value_bytes, self.base, SEED, 0, None);
        let (mut chunk, mut value, mut operations) = (Chunk::default(), Vec::new(), 0_u64);
        let mut puts = Histogram::<u64>::new_with_bounds(1, LONGEST, 3).map_err(|e| e.to_string())?;
        let mut looks = Looks::default();
        let mut depths = self.depths.then(Depths::new).transpose()?;
        while stream.fill(&mut chunk, &|id| self.oracle.is_present(id))? {
            for operation in &chunk.operations {
                let began = self.nanos();
                self.mem.advance(EACH * SLOWER);
                let met = depths.as_mut().map(|depths| depths.meet(&self.open));
                self.step(&chunk, operation, &mut value)?;
                let took = self.nanos() - began;
                match (operation.call, chunk.items(operation).first(), &mut depths, met) {
                    (Call::Put, ..) => puts.saturating_record(took),
                    (Call::Get | Call::Range(_), Some(item), Some(depths), Some(misses)) => {
                        let fetched = self.open.db.metrics().cache_misses - misses;
                        depths.count(operation.call != Call::Get, chunk.key(item), took, fetched);
                    }
                    _ => {}
                }
                if operations.is_multiple_of(LOOK) {
                    looks.add(&self.open.counters());
                }
                operations += 1;
                if operations.is_multiple_of(READ_LOG) {
                    self.log.read(&self.open.db.explain());
                }
            }
        }
        let after = (self.open.counters(), self.nanos());
        self.base += stream.inserted();
        let each = |count: f64| count / operations.max(1) as f64;
        let grown = |of: fn(&crate::engine::Counters) -> Option<u64>| {
            of(&after.0).zip(of(&before.0)).map_or(0.0, |(after, before)| after.saturating_sub(before) as f64)
        };
        let waits = |of: &crate::engine::Counters| {
            let stalls = of.stalls.iter().flat_map(|stalls| stalls.values());
            stalls.fold((0, 0.0), |sum, stall| (sum.0 + stall.count, sum.1 + stall.seconds * 1e3))
        };
        let (waited, had_waited) = (waits(&after.0), waits(&before.0));
        let state = self.open.keys.policy_state();
        self.log.read(&self.open.db.explain());
        let (reads, deepest) = depths.map(|depths| depths.result(SLOWER as f64)).unwrap_or_default();
        let count = PhaseCount {
            name: phase.name.clone(),
            operations,
            nanos: each((after.1 - before.1) as f64) / SLOWER as f64,
            fetched: each(grown(|c| c.cache_misses)),
            flushed: each(grown(|c| c.flush_bytes) / BLOCK),
            merged: each(grown(|c| c.merge_bytes) / BLOCK),
            waits: (waited.0 - had_waited.0, (waited.1 - had_waited.1) / SLOWER as f64),
            put_p999: puts.value_at_quantile(0.999) as f64 / SLOWER as f64,
            mean_runs: looks.runs as f64 / looks.count.max(1) as f64,
            space: looks.entries as f64 / self.base.max(1) as f64,
            levels: after.0.runs_per_level.clone().unwrap_or_default(),
            reads,
            deepest,
            predicted: predicted(&state).map(|nanos| nanos / SLOWER as f64),
            foreseen: self.log.end_phase(operations),
            state,
        };
        if phase.after == After::Idle {
            self.open.flush()?;
            self.open.wait_idle()?;
        }
        Ok(count)
    }

    fn nanos(&self) -> u64 {
        self.mem.env().clock().monotonic_nanos()
    }

    fn step(&mut self, chunk: &Chunk, operation: &Operation, value: &mut Vec<u8>) -> Result<()> {
        let Some(item) = chunk.items(operation).first() else { return Ok(()) };
        let key = chunk.key(item);
        let is_right = match operation.call {
            Call::Put => {
                let version = self.oracle.next_version(item.id);
                self.values.write(item.id, version, self.workload.value_bytes, value);
                self.open.put(key, value, Durability::None)?;
                self.oracle.note_put(item.id, version, key.len(), value.len());
                true
            }
            Call::Get => self.open.get(key, &mut |_| {})?,
            Call::Range(direction) => {
                self.open.range(Some(key), direction, item.size as usize, &mut |_, _| {})? > 0
            }
            _ => return Err("no operation of the dynamic workloads".to_owned()),
        };
        if is_right { Ok(()) } else { Err(format!("wrong answer for id {}", item.id)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Setup {
        Setup { entries: 8000, ..Setup::default() }
    }

    const ENTRIES: u64 = 22_000;
    /// Numbers of entries of additional stores for phase B, the phase of writes. The result of a single phase varies
    /// by a third with the number of entries. In fourteen stores of 15,000 to 28,000 entries, B of plan I takes ARCE
    /// 0.60 to 1.01 times as long as leveling, 0.77 times on average. ARCE gains least in stores of 20,000 entries
    /// and more. So the stores are spread evenly.
    const MORE_ENTRIES: [u64; 2] = [16_000, 28_000];

    /// Returns the nanoseconds per operation of phase B, summed over the additional stores.
    fn writes_of_more_stores(policy: &str, plan: &str) -> f64 {
        let writes = |entries: u64| {
            let mut workload = dynamic::workload(plan, entries as f64 / 40_960_000.0).unwrap();
            let at = workload.phases.iter().position(|phase| phase.name == "B").expect("a phase of writes");
            workload.phases.truncate(at + 1);
            let counts = course_of(policy, workload, &Setup { entries, ..Setup::default() }).unwrap();
            counts.last().expect("a phase").nanos
        };
        MORE_ENTRIES.into_iter().map(writes).sum()
    }

    /// Checks that ARCE beats leveling. Against leveling whose compactions wait for each other, as in other engines,
    /// ARCE is well ahead. Against leveling with this engine's pipeline on a single slot, it is slightly ahead in a
    /// store this small. Its phases are short compared with the time needed to detect a change of the mix.
    fn arce_is_ahead(plan: &str) {
        let pipelined = Setup { entries: ENTRIES, ..Setup::default() };
        let split = Setup { set: vec![("pipeline".into(), "split".into())], ..pipelined.clone() };
        let arce = course("arce", plan, &pipelined).unwrap();
        let waits = mean(&course("1-leveling:static", plan, &split).unwrap());
        assert!(mean(&arce) < 0.85 * waits, "{arce:?} and {waits} without the pipeline");
        let other = course("1-leveling:static", plan, &pipelined).unwrap();
        assert!(mean(&arce) < mean(&other), "{arce:?} and {other:?}");
        for (found, expected) in arce.iter().zip(&other) {
            assert!(found.nanos < 1.25 * expected.nanos, "phase {}: {found:?} and {expected:?}", found.name);
        }
        let writes = |phases: &[PhaseCount], policy: &str| {
            let here: f64 = phases.iter().filter(|phase| phase.name == "B").map(|phase| phase.nanos).sum();
            here + writes_of_more_stores(policy, plan)
        };
        let (found, expected) = (writes(&arce, "arce"), writes(&other, "1-leveling:static"));
        assert!(found < 0.85 * expected, "B takes {found} ns in the sum of the stores, and {expected}");
        println!("plan {plan}: B takes {:.3} times as long as with leveling", found / expected);
    }

    #[test]
    fn a_plan_that_only_loads_is_refused() {
        let mut workload = dynamic::workload("I", 0.001).unwrap();
        workload.phases.truncate(1);
        let refused = course_of("arce", workload, &Setup { entries: 100, ..Setup::default() });
        assert_eq!(refused, Err("the plan has no operation besides its load".to_owned()));
    }

    /// Returns whether to run the courses that take a minute in an unoptimized build. The nightly lane runs them, in
    /// an optimized build.
    fn runs_all() -> bool {
        std::env::var_os("PACED").is_some_and(|value| value == "all")
    }

    /// Plan II runs with `PACED=all` only.
    #[test]
    fn arce_is_ahead_on_the_clock_of_a_disk() {
        arce_is_ahead("I");
        if runs_all() {
            arce_is_ahead("II");
        }
    }

    /// Returns the nanoseconds of the phases of `mixes` after a phase of writes. Each mix runs four times and the
    /// first run does not count: by its end, compaction has removed what the preceding mix left. The result is the
    /// mean of the other three, since a compaction of a whole level falls into one of them by chance.
    fn settled(policy: &str, mixes: &[&str], pipeline: &str) -> Vec<f64> {
        let mut plan = String::from("preload 10000\nphase r=10,u=80,p=10 10000\n");
        mixes.iter().for_each(|mix| plan += &format!("phase {mix} 10000\n").repeat(4));
        let setup = Setup { set: vec![("pipeline".into(), pipeline.into())], ..small() };
        let workload = dynamic::of_phases("mixes", dynamic::parse(&plan).unwrap());
        let counts = course_of(policy, workload, &setup).unwrap();
        let of_mix = |counts: &[PhaseCount]| counts[1..].iter().map(|count| count.nanos).sum::<f64>() / 3.0;
        counts[1..].chunks(4).map(of_mix).collect()
    }

    /// Checks that the pipeline hardly slows reads, since extra runs are compacted while reads continue. With it,
    /// *1-leveling* still keeps one or two more runs in its large levels. Without it, data that waits for compaction
    /// is in level 0, which is completely cached. *1-leveling* runs with `PACED=all` only.
    #[test]
    fn reads_are_about_as_fast_as_without_the_pipeline() {
        let mixes = ["r=50,u=50,p=0", "r=40,u=20,p=40"];
        let policies = [("leveling", 0.97), ("1-leveling:static", 0.9)];
        for (policy, least) in policies.into_iter().take(1 + usize::from(runs_all())) {
            let found = settled(policy, &mixes, "pipelined");
            let split = settled(policy, &mixes, "split");
            for ((mix, found), split) in mixes.iter().zip(found).zip(split) {
                assert!(split > least * found, "{policy}, {mix}: {found} and {split}");
            }
        }
    }

    #[test]
    fn a_course_is_the_same_each_time_and_counting_depths_changes_nothing() {
        let run = |depths| course("arce", "III", &Setup { depths, ..small() }).unwrap();
        let (mut counted, plain) = (run(true), run(false));
        assert_eq!(counted, run(true));
        for phase in &counted {
            let share = |kind| phase.reads.iter().filter(|r| r.kind == kind).map(|r| r.share).sum::<f64>();
            assert!(["get", "range"].iter().all(|kind| (share(*kind) - 1.0).abs() < 1e-9), "{phase:?}");
            assert!(!phase.deepest.is_empty() && phase.deepest.iter().all(|d| d.runs > 0), "{phase:?}");
        }
        counted.iter_mut().for_each(|phase| (phase.reads, phase.deepest) = Default::default());
        assert_eq!(counted, plain);
    }
}
