//! Workloads: options, keyspaces and operations, drawn from one seed or read from a tape.
//!
//! Each purpose draws from its own stream, so a new draw in one changes no other. Each seed omits a random subset of
//! the operations, since some states are reached only in the absence of others.
//!
//! A tape is a workload as text, one item per line: `run`, `seed`, `store OPTION VALUE`, `keyspace NAME text|counts
//! logged|unlogged OPTION=VALUE..`, then operations. `#` begins a comment.

use crate::ops::{Bounds, Change, Item, KEY_MARK, Op, Ttl, Value};
use drumlin::{Durability, FilterMode, KeyspaceOptions};
use drumlin_env::Random;
use std::fmt::Write;

/// Policies that policy switches choose from: every preset, and chaos. Seeds of the fuzz corpus `policy-state` name
/// policies by their position here, so append new ones and never reorder the list.
pub const POLICIES: &[&str] = &[
    "1-leveling",
    "1-leveling:dynamic",
    "leveling:2",
    "leveling:4",
    "tiering:2",
    "tiering:4",
    "lazy-leveling:3",
    "fluid:4/2",
    "universal",
    "ucs:-2",
    "ucs:0",
    "ucs:3",
    "adaptive-ucs",
    "arce",
    "arce:2/8/1/none",
    "arce:60/none/4/1",
    "chaos",
    "chaos",
    "vertiorizon",
    "vertiorizon:1.5",
    "horizontal-leveling:2",
    "horizontal-tiering:3",
    "horizontal-lazy:2/3",
    "vertiorizon:paper",
];

/// A keyspace of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyspaceSetup {
    /// Name of the keyspace.
    pub name: String,
    /// Whether it holds counters, which its merge operator adds.
    pub counts: bool,
    /// Whether its writes bypass the log.
    pub unlogged: bool,
    /// Options of the keyspace.
    pub options: Vec<(String, String)>,
}

/// Options and operations to run on a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Run that the workload is for.
    pub run: String,
    /// Seed of the simulated world.
    pub seed: u64,
    /// Options of the store.
    pub store: Vec<(String, String)>,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceSetup>,
    /// The operations.
    pub ops: Vec<Op>,
}

/// Parameters of a run for its generated workloads.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Number of operations.
    pub operations: usize,
    /// Whether a keyspace may bypass the log.
    pub unlogged: bool,
    /// Whether the workload may kill the process and reopen the store.
    pub kills: bool,
    /// Whether the workload switches policies.
    pub swaps: bool,
    /// Whether the workload sets TTLs and lets time pass, so that entries expire.
    pub lifetimes: bool,
    /// Whether the workload renames keyspaces.
    pub renames: bool,
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn one_of<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.index(all.len())]
}

/// Returns small option values, so that a short workload reaches every part of the store.
pub fn small_options(random: &mut Random) -> Vec<(String, String)> {
    let mut options: Vec<(String, String)> = Vec::new();
    if random.chance(1, 2) {
        let drawn = KeyspaceOptions::random(random.next_u64());
        let usual = KeyspaceOptions::default();
        let changed = |(name, value): &(&str, String)| usual.get(name).is_ok_and(|usual| usual != *value);
        options.extend(drawn.pairs().into_iter().filter(changed).map(|(name, value)| pair(name, &value)));
    }
    options.retain(|(name, _)| {
        !["memtable_bytes", "file_bytes", "compaction", "block_bytes"].contains(&&**name)
    });
    options.push(pair("memtable_bytes", one_of(random, &["4KiB", "4KiB", "8KiB", "16KiB"])));
    options.push(pair("file_bytes", one_of(random, &["4KiB", "8KiB", "16KiB", "64KiB"])));
    options.push(pair("block_bytes", one_of(random, &["512", "512", "1KiB", "4KiB"])));
    options.push(pair("compaction", one_of(random, POLICIES)));
    options
}

impl Workload {
    /// Generates the workload of `seed` for `run`.
    pub fn generate(run: &str, seed: u64, taste: &Taste) -> Workload {
        let mut random = Random::new(seed, "options");
        let store = vec![
            pair("memory_budget", "8MiB"),
            pair("log_segment_bytes", "64KiB"),
            pair("compaction_slots", one_of(&mut random, &["1", "2", "3"])),
        ];
        let unlogged = taste.unlogged && random.chance(1, 3);
        let keyspaces = ["a", "b", "c"]
            .into_iter()
            .take(2 + random.index(2).max(usize::from(unlogged)))
            .map(|name| KeyspaceSetup {
                name: name.to_owned(),
                counts: name == "b",
                unlogged: name == "c" && unlogged,
                options: small_options(&mut random),
            })
            .collect();
        let mut workload = Workload { run: run.to_owned(), seed, store, keyspaces, ops: Vec::new() };
        workload.ops = Generator::new(&workload, taste).operations(taste.operations);
        // The crash run keeps its seeds as they are.
        let mut random = Random::new(seed, "hot");
        if taste.kills && random.chance(1, 3) {
            workload.heat(&mut random);
            workload.ops.truncate(taste.operations);
        }
        workload
    }

    /// Inserts bursts of merges, reads and range deletes of one hot key, in which long operand chains are joined.
    fn heat(&mut self, random: &mut Random) {
        let keyspace = self.keyspaces[random.index(self.keyspaces.len())].clone();
        let durability = if keyspace.unlogged { Durability::None } else { Durability::Buffered };
        let key = format!("{KEY_MARK}hot");
        let write = |change: Change| {
            let items = vec![Item { keyspace: keyspace.name.clone(), change, ttl: Ttl::Keyspace }];
            Op::Write { items, durability }
        };
        let get = |at| Op::Get { at, keyspace: keyspace.name.clone(), key: key.clone() };
        for burst in 0..1 + random.below(5) {
            let mut ops = Vec::new();
            // A snapshot that is older than what later reads combine.
            let snapshot = random.chance(1, 2).then(|| format!("hot{burst}"));
            for part in 0..1 + random.below(3) {
                if part > 0 && random.chance(2, 3) {
                    let bounds = Bounds { start: Some(key.clone()), end: Some(format!("{key}~")) };
                    ops.push(write(Change::DeleteRange(bounds)));
                }
                for number in 0..2 + random.below(6) {
                    let tag = 1_000_000 + burst * 100 + part * 10 + number;
                    ops.push(write(Change::Merge(key.clone(), Value { tag, len: 3 })));
                }
                if part == 0 {
                    ops.extend(snapshot.clone().map(Op::Snap));
                }
                ops.extend((0..1 + random.below(3)).map(|_| get(None)));
                ops.extend(snapshot.clone().map(|at| get(Some(at))));
            }
            ops.extend(snapshot.map(Op::Drop));
            let at = random.index(self.ops.len() + 1);
            self.ops.splice(at..at, ops);
        }
    }
}

/// Draws operations.
struct Generator {
    random: Random,
    keyspaces: Vec<(String, bool)>,
    keys: Vec<String>,
    snapshots: Vec<String>,
    /// Operations that this seed uses, each repeated in proportion to its frequency.
    menu: Vec<&'static str>,
    value_len: u64,
    /// Whether some flushes are replaced by renames.
    renames: bool,
    /// Whether some writes have a TTL of their own.
    lifetimes: bool,
    tag: u64,
}

/// Shortest value in an unlogged keyspace. A crash loses its last writes. If two of them wrote the same value, the
/// oracle could not tell which one survived, and they may expire at different times.
const LEAST_UNLOGGED: u32 = 3;

/// Number of values per write with a TTL of its own.
const OWN_TTL_EVERY: u64 = 5;
/// TTLs of such writes: expired at once, within the workload, long after it, and never.
const OWN_TTLS: [Ttl; 7] = [
    Ttl::Micros(0),
    Ttl::Micros(50),
    Ttl::Micros(20_000),
    Ttl::Micros(700_000),
    Ttl::Micros(5_000_000),
    Ttl::Micros(10 * 365 * 86_400 * 1_000_000),
    Ttl::Never,
];

impl Generator {
    fn new(workload: &Workload, taste: &Taste) -> Generator {
        let mut random = Random::new(workload.seed, "operations");
        let mut keys = Vec::new();
        for number in 0..50 + random.below(300) {
            keys.push(match random.below(8) {
                0 => format!("{KEY_MARK}{number}/{}", "deep/".repeat(random.index(12))),
                1 => format!("{KEY_MARK}{:02}", number % 20),
                _ => format!("{KEY_MARK}{number:04}"),
            });
        }
        let mut menu = vec!["put"; 40];
        let mut add = |name: &'static str, weight: usize| {
            if random.chance(3, 4) {
                menu.extend(std::iter::repeat_n(name, weight));
            }
        };
        add("del", 8);
        add("range-del", 2);
        add("merge", 8);
        add("batch", 8);
        add("get", 10);
        add("multi-get", 3);
        add("scan", 4);
        add("snap", 3);
        add("drop", 2);
        add("flush", 2);
        add("compact", 1);
        add("idle", 1);
        add("step", 4);
        add("set", 1);
        add("sync", 1);
        add("sleep", 1);
        if taste.swaps {
            menu.extend(["policy", "policy"]);
        }
        let lifetimes = taste.lifetimes && Random::new(workload.seed, "lifetimes").chance(1, 2);
        if lifetimes {
            menu.extend(["lifetime", "wait", "wait"]);
        }
        // The rare operations come last, each one in some hundred draws.
        let mut random = Random::new(workload.seed, "menu");
        let mut menu = menu.repeat(4);
        let mut rare = |name: &'static str, wanted: bool| {
            if wanted && random.chance(2, 3) {
                menu.extend([name, name]);
            }
        };
        rare("drop-keyspace", true);
        rare("checkpoint", true);
        rare("reopen", taste.kills);
        rare("kill", taste.kills);
        let random = Random::new(workload.seed, "operations drawn");
        let keyspaces = workload.keyspaces.iter().map(|k| (k.name.clone(), k.unlogged)).collect();
        let value_len = [20, 60, 200, 600, 2500][Random::new(workload.seed, "value length").index(5)];
        let renames = taste.renames && Random::new(workload.seed, "renames").chance(1, 4);
        Generator {
            random,
            keyspaces,
            keys,
            snapshots: Vec::new(),
            menu,
            value_len,
            renames,
            lifetimes,
            tag: 0,
        }
    }

    fn operations(&mut self, count: usize) -> Vec<Op> {
        let mut ops = Vec::with_capacity(count);
        while ops.len() < count {
            let verb = self.menu[self.random.index(self.menu.len())];
            self.draw(verb, &mut ops);
        }
        ops.truncate(count);
        ops
    }

    fn key(&mut self) -> String {
        // Half of the draws hit few keys, so that versions accumulate.
        let reach = if self.random.chance(1, 2) { self.keys.len() / 8 + 1 } else { self.keys.len() };
        self.keys[self.random.index(reach)].clone()
    }

    fn keyspace(&mut self) -> (String, bool) {
        self.keyspaces[self.random.index(self.keyspaces.len())].clone()
    }

    fn value(&mut self) -> Value {
        self.tag += 1;
        Value { tag: self.tag, len: self.random.below(self.value_len + 1) as u32 }
    }

    fn bounds(&mut self) -> Bounds {
        let (a, b) = (self.key(), self.key());
        let (start, end) = if a <= b { (a, b) } else { (b, a) };
        Bounds {
            start: (!self.random.chance(1, 12)).then_some(start),
            end: (!self.random.chance(1, 12)).then_some(end),
        }
    }

    /// Draws a range to delete: a few neighbouring keys, or sometimes a wide range.
    fn doomed(&mut self) -> Bounds {
        if self.random.chance(1, 6) {
            return self.bounds();
        }
        let start = self.key();
        let mut end = start.clone();
        end.push_str(one_of(&mut self.random, &["0", "5", "~"]));
        Bounds { start: Some(start[..start.len() - 1].to_owned()), end: Some(end) }
    }

    fn item(&mut self, verb: &str, keyspace: String) -> Item {
        let change = match verb {
            "del" => Change::Delete(self.key()),
            "range-del" => Change::DeleteRange(self.doomed()),
            "merge" => Change::Merge(self.key(), Value { len: 3, ..self.value() }),
            _ => {
                let (key, value) = (self.key(), self.value());
                let is_unlogged =
                    self.keyspaces.iter().any(|(name, unlogged)| *unlogged && *name == keyspace);
                let least = if is_unlogged { LEAST_UNLOGGED } else { 0 };
                Change::Put(key, Value { len: value.len.max(least), ..value })
            }
        };
        let ttl = match change {
            Change::Put(..) | Change::Merge(..) => self.ttl(),
            _ => Ttl::Keyspace,
        };
        Item { keyspace, change, ttl }
    }

    /// Returns the time to live of a write. Takes no draw, so that the other operations of existing seeds stay the
    /// same.
    fn ttl(&self) -> Ttl {
        if !self.lifetimes || !self.tag.is_multiple_of(OWN_TTL_EVERY) {
            return Ttl::Keyspace;
        }
        OWN_TTLS[(self.tag / OWN_TTL_EVERY) as usize % OWN_TTLS.len()]
    }

    fn durability(&mut self, unlogged: bool) -> Durability {
        match unlogged {
            true => Durability::None,
            false if self.random.chance(1, 6) => Durability::Sync,
            false => Durability::Buffered,
        }
    }

    fn batch(&mut self) -> Op {
        let (first, unlogged) = self.keyspace();
        let mut items = Vec::new();
        for _ in 0..1 + self.random.index(8) {
            let keyspace = match unlogged {
                true => first.clone(),
                false => loop {
                    let (keyspace, unlogged) = self.keyspace();
                    if !unlogged {
                        break keyspace;
                    }
                },
            };
            let verb = one_of(&mut self.random, &["put", "put", "put", "del", "merge", "range-del"]);
            items.push(self.item(verb, keyspace));
        }
        Op::Write { items, durability: self.durability(unlogged) }
    }

    /// Draws a live snapshot, or `None`.
    fn at(&mut self) -> Option<String> {
        if self.snapshots.is_empty() || self.random.chance(1, 2) {
            return None;
        }
        Some(self.snapshots[self.random.index(self.snapshots.len())].clone())
    }

    fn draw(&mut self, verb: &str, ops: &mut Vec<Op>) {
        let (keyspace, unlogged) = self.keyspace();
        let op = match verb {
            "put" | "del" | "range-del" | "merge" => {
                let items = vec![self.item(verb, keyspace)];
                Op::Write { items, durability: self.durability(unlogged) }
            }
            "batch" => self.batch(),
            "get" => Op::Get { at: self.at(), keyspace, key: self.key() },
            "multi-get" => {
                let keys = (0..1 + self.random.index(6)).map(|_| self.key()).collect();
                Op::MultiGet { at: self.at(), keyspace, keys }
            }
            "scan" => {
                let reverse = self.random.chance(1, 2);
                Op::Scan { at: self.at(), keyspace, bounds: self.bounds(), reverse }
            }
            "snap" if self.snapshots.len() < 6 => {
                let name = format!("s{}", self.tag);
                self.tag += 1;
                self.snapshots.push(name.clone());
                Op::Snap(name)
            }
            "snap" | "drop" => {
                if self.snapshots.is_empty() {
                    return;
                }
                Op::Drop(self.snapshots.swap_remove(self.random.index(self.snapshots.len())))
            }
            // Takes no draw, like the flush that it replaces.
            "flush" if self.renames && self.tag.is_multiple_of(3) => Op::Rename(keyspace),
            "flush" => Op::Flush(keyspace),
            "compact" => Op::Compact { keyspace, bounds: self.bounds() },
            "idle" => Op::Idle,
            "step" => Op::Step(1 + self.random.index(40)),
            "set" => self.set(keyspace),
            "sync" => Op::Sync,
            "lifetime" => {
                let value = one_of(&mut self.random, &["0", "1", "2", "10"]).to_owned();
                Op::Set { keyspace, option: "ttl_seconds".to_owned(), value }
            }
            "wait" => Op::Sleep(self.random.below(1_500_000)),
            "sleep" => Op::Sleep(self.random.below(100_000)),
            "policy" => Op::Policy { keyspace, name: one_of(&mut self.random, POLICIES).to_owned() },
            // Take no draw here, so that the other operations of existing seeds stay the same.
            "checkpoint" if self.tag.is_multiple_of(3) => Op::Repair,
            "checkpoint" => Op::Checkpoint,
            "drop-keyspace" => {
                ops.push(Op::DropKeyspace(keyspace.clone()));
                Op::MakeKeyspace(keyspace)
            }
            _ => {
                // Snapshots do not survive the process.
                self.snapshots.clear();
                if verb == "kill" { Op::Kill } else { Op::Reopen }
            }
        };
        ops.push(op);
    }

    fn set(&mut self, keyspace: String) -> Op {
        let (option, values): (&str, &[&str]) = match self.random.index(6) {
            0 => ("memtable_bytes", &["4KiB", "8KiB", "16KiB"]),
            1 => ("file_bytes", &["4KiB", "8KiB", "32KiB"]),
            2 => ("block_bytes", &["512", "1KiB", "4KiB"]),
            3 => ("compression", &["none", "lz4", "zstd"]),
            4 => ("compression_bottom", &["same", "none", "zstd"]),
            _ => (
                "filter_bits",
                &["auto", "0", "1", "10", "16", "uniform", "monkey", "mnemosyne", "mnemosyne+"],
            ),
        };
        let value = one_of(&mut self.random, values).to_owned();
        let is_mode = option == "filter_bits" && FilterMode::NAMES.contains(&value.as_str());
        let option = if is_mode { "filter_mode" } else { option };
        Op::Set { keyspace, option: option.to_owned(), value }
    }
}

/// Tape format.
impl Workload {
    /// Returns the workload as text.
    pub fn tape(&self) -> String {
        let mut text = format!("run {}\nseed {:#x}\n", self.run, self.seed);
        let written = "writing to a string";
        for (name, value) in &self.store {
            writeln!(text, "store {name} {value}").expect(written);
        }
        for keyspace in &self.keyspaces {
            let holds = if keyspace.counts { "counts" } else { "text" };
            let log = if keyspace.unlogged { "unlogged" } else { "logged" };
            write!(text, "keyspace {} {holds} {log}", keyspace.name).expect(written);
            for (name, value) in &keyspace.options {
                write!(text, " {name}={value}").expect(written);
            }
            text.push('\n');
        }
        for op in &self.ops {
            writeln!(text, "{op}").expect(written);
        }
        text
    }

    /// Parses a tape.
    pub fn read(text: &str) -> Result<Workload, String> {
        let mut workload = Workload {
            run: "model".into(),
            seed: 0,
            store: Vec::new(),
            keyspaces: Vec::new(),
            ops: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            workload.line(line).map_err(|why| format!("line {}: {why}", number + 1))?;
        }
        Ok(workload)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            [] => {}
            ["run", name] => self.run = (*name).to_owned(),
            ["seed", seed] => self.seed = number(seed)?,
            ["store", name, value] => self.store.push(pair(name, value)),
            ["keyspace", name, holds @ ("text" | "counts"), log @ ("logged" | "unlogged"), options @ ..] => {
                let options = options.iter().map(|option| {
                    let parts = option.split_once('=').ok_or_else(|| format!("`{option}` has no value"))?;
                    Ok(pair(parts.0, parts.1))
                });
                self.keyspaces.push(KeyspaceSetup {
                    name: (*name).to_owned(),
                    counts: *holds == "counts",
                    unlogged: *log == "unlogged",
                    options: options.collect::<Result<_, String>>()?,
                });
            }
            _ => self.ops.push(line.parse()?),
        }
        Ok(())
    }
}

/// Parses a number, decimal or with the prefix `0x`.
pub fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.replace('_', "").parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tapes_read_back() {
        for seed in 0..20 {
            let taste = Taste {
                operations: 200,
                unlogged: true,
                kills: true,
                swaps: true,
                lifetimes: true,
                renames: true,
            };
            let workload = Workload::generate("model", seed, &taste);
            assert_eq!(workload.ops.len(), 200);
            assert_eq!(Workload::read(&workload.tape()).as_ref(), Ok(&workload));
            assert_eq!(Workload::generate("model", seed, &taste), workload);
        }
    }
}
