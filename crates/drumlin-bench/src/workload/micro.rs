//! Micro benchmarks with the names of db_bench, on 16 + 100 bytes unless stated otherwise.
//!
//! Fills other than `fillsync` start with an empty store. Reads, `fillsync` and overwrites need a loaded store: if no
//! fill precedes them, each entry is loaded once in random order and the store is compacted to one run.
//!
//! Each read phase has an uncounted warm-up pass without a writer. Then lookups and seeks make two counted passes.
//! Scans warm up with a single scan and make one counted pass. Reads beside a writer last a fixed time, so that the
//! writer writes the same amount beside each engine. Phases with little memory reopen the loaded store: the uncached
//! ones read with direct I/O, `readpagecache` through the page cache.
//!
//! A phase of a tenth of a second is too short to measure on a shared machine. So phases of cheap operations have a
//! minimum number of operations, which takes seconds in a store of a million entries.

use super::{Action, After, Entries, Phase, Workload};
use crate::engine::{Direction, Durability, Io, Result};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;

/// Names with descriptions, in the order of the suite.
pub const NAMES: [(&str, &str); 23] = [
    ("fillseq", "put: ascending keys"),
    ("fillrandom", "put: uniform, with repeats"),
    ("filluniquerandom", "put: each key once, in random order"),
    ("overwrite", "uniform put on the tree of filluniquerandom, twice as many; then a full merge"),
    ("fillbatch", "batches of 100 random puts, counted per entry"),
    ("fillsync", "put of a random entry that survives power loss; 20,000 by default, on a loaded store"),
    ("readrandom", "get of a present key, all in memory"),
    ("readmissing", "get of an absent key, all in memory"),
    ("readuncached", "get with 16 MiB of memory and direct reads"),
    ("readuncached16", "the same on 16 threads"),
    ("multiget", "multi_get of 32 present keys with 16 MiB of memory and direct reads, counted per key"),
    ("readpagecache", "get with 16 MiB of memory, files in the page cache"),
    ("seekrandom", "new iterator, seek, 10 entries"),
    ("seekreuse", "the same with a reused iterator; not every engine has one"),
    ("scan50", "new iterator, seek, 50 entries"),
    ("readseq", "the whole store forward, counted per entry; 1 to 20 scans, about 20 million entries"),
    ("readreverse", "the whole store backward, counted per entry"),
    ("readwhilewriting", "get beside one writer, for 20 seconds"),
    ("fwdrangewhilewriting", "new iterator, 10 entries forward, beside one writer, for 20 seconds"),
    ("revrangewhilewriting", "new iterator, 10 entries backward, beside one writer, for 20 seconds"),
    ("mixed", "half put, half get, uniform"),
    ("open", "open of a closed store that nothing has cached, up to its first answer"),
    ("openlog", "the same with 100,000 puts in the log"),
];

/// Names that are run if none is given.
pub const USUAL: [&str; 5] = ["fillrandom", "readrandom", "readmissing", "seekrandom", "overwrite"];

/// Names that are accepted but not part of `all`.
pub const EXTRA: [(&str, &str); 2] = [
    ("deleterandom", "delete of every key, in random order"),
    ("waitforidle", "nothing but the wait for merges"),
];

/// Sizes of a micro workload.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Number of entries in the store.
    pub num: u64,
    /// Seconds of a phase of reads beside a writer. By default 20, and less in stores of less than a million entries.
    /// Without effect if `reads` is set.
    pub duration: Option<f64>,
    /// Number of reads in a read phase. By default it is the suite's number, at most 1.5 million, in proportion to
    /// `num`, and at least the minimum of the phase.
    pub reads: Option<u64>,
    /// Number of entries after a seek.
    pub nexts: u32,
    /// Number of entries in a batch.
    pub batch: u32,
    /// Key size in bytes.
    pub key_bytes: usize,
    /// Value size in bytes.
    pub value_bytes: usize,
    /// Compressed size of the values as a fraction of their size.
    pub value_ratio: f64,
    /// Use keys as db_bench writes them.
    pub dense: bool,
    /// Number of threads in every phase.
    pub threads: u32,
    /// Bytes per second of the concurrent writer.
    pub write_rate: f64,
    /// Skew of the ids that reads and overwrites draw (zipf theta); `None` for a uniform distribution.
    pub theta: Option<f64>,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            num: 10_000_000,
            reads: None,
            duration: None,
            nexts: 10,
            batch: 100,
            key_bytes: 16,
            value_bytes: 100,
            value_ratio: 0.5,
            dense: false,
            threads: 1,
            write_rate: 2e6,
            theta: None,
        }
    }
}

/// Number of opens in a phase.
const OPENS: u64 = 5;
/// Number of puts before each close of `openlog`.
const LOGGED: u64 = 100_000;
/// Number of records in the suite, to which its read counts refer.
const SUITE_RECORDS: f64 = 10e6;
/// Seconds of a phase of reads beside a writer, with a million entries or more.
const BESIDE_SECONDS: f64 = 20.0;
/// Memory of the phases that read blocks from files.
const SMALL_MEMORY: u64 = 16 << 20;

impl Sizes {
    /// Scales a count of the suite in proportion to the number of records.
    fn count(&self, suite: u64) -> u64 {
        self.reads.unwrap_or_else(|| super::scaled(suite, self.num as f64 / SUITE_RECORDS).max(1000))
    }

    /// Returns `count(suite)`, but by default at least `least`. Stores of less than a million entries have
    /// proportionally less.
    fn at_least(&self, suite: u64, least: u64) -> u64 {
        let least = super::scaled(least, (self.num as f64 / 1e6).min(1.0));
        self.reads.unwrap_or_else(|| self.count(suite).max(least))
    }

    /// Returns how many scans of the whole store pass about 20 million entries.
    fn scans(&self) -> u64 {
        (20_000_000 / self.num.max(1)).clamp(1, 20)
    }

    /// Returns the phase called `name`.
    fn phase(&self, name: &str) -> Result<Phase> {
        let drawn = self.theta.map_or(Target::Uniform, |theta| Target::Zipf { theta });
        let (forward, back) = (Direction::Forward, Direction::Back);
        let nexts = Entries::Fixed(self.nexts);
        let (seeks, ranges) = (self.at_least(300_000, 300_000), self.at_least(1_000_000, 1_000_000));
        let seconds = self.duration.unwrap_or_else(|| BESIDE_SECONDS * (self.num as f64 / 1e6).min(1.0));
        let seconds = self.reads.is_none().then_some(seconds);
        let beside = |phase: Phase| Phase { writer: Some(self.write_rate), seconds, ..phase };
        let phase = match name {
            "fillseq" | "filluniquerandom" => {
                Phase::of(name, self.num, Action::Put(Target::New)).on_empty().then(After::Idle)
            }
            "fillrandom" => {
                Phase::of(name, self.num, Action::Put(Target::Below(self.num))).on_empty().then(After::Idle)
            }
            "fillbatch" => Phase::of(name, self.num, Action::Batch(Target::Below(self.num), self.batch))
                .on_empty()
                .then(After::Idle),
            "fillsync" => {
                let ops = self.reads.unwrap_or_else(|| self.num.min(20_000));
                // Not on an empty store: RocksDB reuses log files, but has none to reuse before its first flushes.
                let phase = Phase::of(name, ops, Action::Put(Target::Below(self.num)));
                Phase { durability: Some(Durability::Sync), ..phase }
            }
            "overwrite" => Phase::of(name, 2 * self.num, Action::Put(drawn)).then(After::Compact),
            "readrandom" => Phase::of(name, self.at_least(1_500_000, 1_000_000), Action::Get(drawn)),
            "readpagecache" => {
                Phase::of(name, self.count(1_000_000), Action::Get(drawn)).under(SMALL_MEMORY, Io::Buffered)
            }
            "readuncached" => {
                Phase::of(name, self.count(300_000), Action::Get(drawn)).under(SMALL_MEMORY, Io::Direct)
            }
            "readuncached16" => {
                Phase::of(name, self.count(1_000_000), Action::Get(drawn)).under(SMALL_MEMORY, Io::Direct)
            }
            "readmissing" => Phase::of(name, self.at_least(1_500_000, 4_000_000), Action::GetAbsent(drawn)),
            "multiget" => Phase::of(name, self.count(1_000_000), Action::MultiGet(drawn, 32))
                .under(SMALL_MEMORY, Io::Direct),
            "seekrandom" => Phase::of(name, seeks, Action::Range(drawn, nexts, forward)),
            "seekreuse" => Phase::of(name, seeks, Action::Reseek(drawn, nexts)),
            "scan50" => Phase::of(name, seeks, Action::Range(drawn, Entries::Fixed(50), forward)),
            "readseq" => Phase::of(name, self.scans(), Action::Scan(forward)),
            "readreverse" => Phase::of(name, self.scans(), Action::Scan(back)),
            "readwhilewriting" => {
                beside(Phase::of(name, self.at_least(1_000_000, 4_000_000), Action::Get(drawn)))
            }
            "fwdrangewhilewriting" => beside(Phase::of(name, ranges, Action::Range(drawn, nexts, forward))),
            "revrangewhilewriting" => beside(Phase::of(name, ranges, Action::Range(drawn, nexts, back))),
            "mixed" => {
                let mix = [(0.5, Action::Put(drawn)), (0.5, Action::Get(drawn))];
                Phase::new(name, self.count(3_000_000), &mix).then(After::Idle)
            }
            "open" => Phase { opens_after: Some(0), ..Phase::new(name, OPENS, &[]) },
            "openlog" => Phase { opens_after: Some(self.num.min(LOGGED)), ..Phase::new(name, OPENS, &[]) },
            "deleterandom" => Phase::of(name, self.num, Action::Delete(Target::Ascending)).then(After::Idle),
            "waitforidle" => Phase::new(name, 0, &[]).then(After::Idle),
            unknown => {
                let names = NAMES.iter().chain(&EXTRA).map(|(name, _)| *name);
                let nearest = drumlin_types::nearest(names, unknown);
                let nearest = nearest.map_or_else(String::new, |name| format!("the nearest is {name}; "));
                return Err(format!("unknown micro benchmark {unknown}; {nearest}available: {}", known()));
            }
        };
        Ok(phase.on_threads(if name == "readuncached16" { 16 } else { self.threads }))
    }
}

fn known() -> String {
    let names: Vec<&str> = NAMES.iter().chain(&EXTRA).map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Returns the workloads of `names` in that order; `all` stands for the whole suite. A store has one key format, so
/// the sequential fill, which needs ascending keys, is a separate workload.
pub fn workloads(names: &[String], sizes: &Sizes) -> Result<Vec<Workload>> {
    let all: Vec<String> = NAMES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let names = if names == ["all"] { &all } else { names };
    let groups = names.chunk_by(|a, b| sizes.dense || (a == "fillseq") == (b == "fillseq"));
    groups.map(|names| workload(names, sizes)).collect()
}

fn workload(names: &[String], sizes: &Sizes) -> Result<Workload> {
    let mut phases: Vec<Phase> = Vec::new();
    let mut loaded = false;
    for name in names {
        let phase = sizes.phase(name)?;
        let reads = phase.opens_after.is_none() && !phase.mix.iter().any(|(_, action)| action.writes());
        let is_read = reads && phase.writer.is_none();
        if phase.fresh {
            // A shorter fill leaves too few entries for phases that read the whole population.
            loaded = phase.ops >= sizes.num;
        } else if !loaded {
            let load = Phase::of("load", sizes.num, Action::Put(Target::New));
            phases.push(load.on_empty().unreported().then(After::Compact));
            loaded = true;
        } else if let Some(before) = phases.last_mut()
            && before.fresh
            && is_read
        {
            before.after = After::Compact;
        }
        let is_scan = phase.mix.iter().any(|(_, action)| matches!(action, Action::Scan(_)));
        if reads && phase.ops > 0 {
            let ops = if is_scan { 1 } else { phase.ops };
            let warm =
                Phase { name: format!("{name} warm"), ops, writer: None, seconds: None, ..phase.clone() };
            phases.push(warm.unreported());
        }
        let passes = if is_read && !is_scan { 2 } else { 1 };
        phases.push(Phase { ops: phase.ops.saturating_mul(passes), ..phase });
    }
    let len = sizes.key_bytes;
    let ascending = sizes.dense || names.iter().any(|name| name == "fillseq");
    Ok(Workload {
        name: "micro".to_owned(),
        keys: if ascending { KeyForm::Dense { len } } else { KeyForm::Hashed { len } },
        value_bytes: sizes.value_bytes,
        value_ratio: sizes.value_ratio,
        trace: None,
        phases,
    })
}
