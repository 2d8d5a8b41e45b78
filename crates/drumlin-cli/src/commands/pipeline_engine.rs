//! The simulated load on the engine itself: real bytes on a simulated disk, in virtual time.
//!
//! The simulator shares the code of the scheduler and the policies with the engine. But it has its own tree, no
//! bytes, and a model of the device. This module runs the same load on an in-memory store whose background lanes run
//! in virtual time. Reading and writing a table block takes as long as needed for a slot to compact, and a flush to
//! write, at the rates of the setup. Everything else takes no time. So both should write the same number of bytes. If
//! they do not, one of them is wrong.
//!
//! Sizes and rates are divided by the same number, so that every step takes as long as at full size, and everything
//! that depends on seconds is unchanged. Two differences remain. The engine's device has no other bandwidth limit.
//! And a store has blocks, filters and an index, so bytes written are compared per flushed byte. Opening a table, its
//! first block and partial blocks take time too, so the engine's slots are slower than the simulator's, more so with
//! smaller files.
//!
//! At the end, the content of the store is read and compared with what was written.

use crate::failure::{Failure, Result};
use drumlin::env::MemEnv;
use drumlin::{Db, Keyspace, LevelShape, Metrics};
use drumlin_sim::pipeline::setup::Writer;
use drumlin_sim::pipeline::{Report, Setup};

/// Size of an entry in bytes, including its key.
const ENTRY: u64 = 1024;
const KEY: usize = 16;
const BLOCK: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
/// Minimum file size of the engine in bytes.
const LEAST_FILE: u64 = 4096;
const KEYSPACE: &str = "load";
/// Number of keys at which the depth is sampled.
const PROBES: u64 = 32;
const SEED: u64 = 1;
/// Number of memtables that the memory budget holds, so that writers do not wait for memory.
const MEMTABLES: u64 = 32;

/// Results of a load on the engine.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    /// Bytes that the program wrote.
    pub(super) ingested: u64,
    /// Bytes written by flushes, and by compactions.
    pub(super) flushed: u64,
    pub(super) merged: u64,
    /// Virtual nanoseconds until the last byte was written.
    pub(super) nanos: u64,
    /// Maximum number of runs in level 0.
    pub(super) most_level0: usize,
    /// Number of runs that cover a key, averaged over time.
    pub(super) mean_depth: f64,
    /// Number of trivial moves (files moved without being read).
    pub(super) moves: u64,
    /// Hash over all entries in key order.
    pub(super) content: u64,
}

impl Measured {
    /// Returns MiB per second.
    pub(super) fn throughput(&self) -> f64 {
        self.ingested as f64 / 1_048_576.0 / (self.nanos.max(1) as f64 / 1e9)
    }

    /// Returns bytes written per flushed byte.
    pub(super) fn per_flushed(&self) -> f64 {
        (self.flushed + self.merged) as f64 / self.flushed.max(1) as f64
    }

    /// Returns bytes written per flushed byte, relative to the simulation.
    pub(super) fn against(&self, simulated: &Report) -> f64 {
        self.per_flushed() / (1.0 + simulated.merged as f64 / simulated.flushed.max(1) as f64)
    }
}

/// Checks that the engine can write files of the size that `setup` has after division by `scale`.
pub(super) fn check(setup: &Setup, scale: u64) -> Result<()> {
    match scaled(setup, scale).file {
        LEAST_FILE.. => Ok(()),
        file => {
            let memtable = setup.memtable >> 10;
            let what = format!("--engine {scale} with --memtable {memtable} gives files of {file} bytes");
            Err(Failure::Usage(format!("{what}; the engine needs at least {LEAST_FILE}")))
        }
    }
}

/// Returns `setup` with sizes and rates divided by `scale`. Matches the engine's behaviour: small files mean small
/// pieces, and the policy's write rate limit slows writers.
pub(super) fn scaled(setup: &Setup, scale: u64) -> Setup {
    let scale = scale.max(1);
    let memtable = setup.memtable / scale;
    let mut scaled = Setup {
        total: setup.total / scale,
        memtable,
        file: memtable / 4,
        write_rate: setup.write_rate / scale,
        flush_rate: setup.flush_rate / scale,
        slot_rate: setup.slot_rate / scale,
        bandwidth: setup.bandwidth / scale,
        writer: Writer::Paced,
        ..*setup
    };
    let (least, most) = setup.settings.piece;
    scaled.settings.piece = (memtable.min(least), memtable.min(most));
    scaled
}

/// Runs the load of `setup` on the engine with `policy` and the scheduling mode `mode`. `setup` is already
/// [`scaled`].
pub(super) fn load(policy: &str, mode: &str, setup: &Setup) -> Result<Measured> {
    let mem = MemEnv::new(SEED);
    let written = BLOCK * SECOND / setup.flush_rate;
    mem.pace((BLOCK * SECOND / setup.slot_rate).saturating_sub(written), written);
    let failed = |e: drumlin::Error| Failure::failed(format!("{policy} {mode} on the engine"), e);
    let (db, keys) = open(&mem, policy, mode, setup).map_err(failed)?;
    let env = mem.env();
    let puts = setup.total / ENTRY;
    let (mut most_level0, mut depth, mut looked) = (0, 0, 0);
    for n in 0..puts {
        keys.put(key(n), value(n)).map_err(failed)?;
        // Time that the program itself takes. Its waits come on top.
        let due = (n + 1) * ENTRY * 1_000_000 / setup.write_rate - n * ENTRY * 1_000_000 / setup.write_rate;
        env.clock().sleep_micros(due);
        if n % (setup.memtable / ENTRY / 4).max(1) == 0 {
            let tree = db.tree().into_iter().find(|tree| tree.name == KEYSPACE);
            let levels = tree.map(|tree| tree.levels).unwrap_or_default();
            most_level0 = most_level0.max(levels.first().map_or(0, |level| level.runs.len()));
            let now = env.clock().monotonic_nanos();
            depth += covered(&levels) * (now - looked);
            looked = now;
        }
    }
    let nanos = env.clock().monotonic_nanos();
    let Metrics { flush_bytes_written: flushed, compaction_bytes_written: merged, moves, .. } = db.metrics();
    let content = content(&keys, puts)?;
    Ok(Measured {
        ingested: puts * ENTRY,
        flushed,
        merged,
        nanos,
        most_level0,
        mean_depth: depth as f64 / PROBES as f64 / looked.max(1) as f64,
        moves,
        content,
    })
}

/// Returns the number of runs that cover a key, summed over `PROBES` evenly spaced keys.
fn covered(levels: &[LevelShape]) -> u64 {
    let runs = || levels.iter().flat_map(|level| &level.runs);
    let at = |probe: u64| {
        let key = (u64::MAX / PROBES * probe + u64::MAX / PROBES / 2).to_be_bytes();
        let covers =
            |first: &[u8], end: Option<&[u8]>| first <= &key[..] && end.is_none_or(|end| &key[..] < end);
        runs().filter(|run| run.files.iter().any(|f| covers(&f.first, f.end.as_deref()))).count() as u64
    };
    (0..PROBES).map(at).sum()
}

fn open(mem: &MemEnv, policy: &str, mode: &str, setup: &Setup) -> drumlin::Result<(Db, Keyspace)> {
    let memory = (MEMTABLES * setup.memtable).max(16 << 20);
    let mut builder = Db::builder("/store").env(mem.env());
    for (name, value) in [
        ("memory_budget", memory.to_string()),
        ("durability", "none".to_owned()),
        ("compaction_slots", setup.settings.slots.to_string()),
        ("pipeline", mode.to_owned()),
    ] {
        builder = builder.set(name, &value)?;
    }
    let db = builder.open()?;
    let (memtable, file) = (setup.memtable.to_string(), setup.file.to_string());
    let options = [
        ("memtable_bytes", memtable.as_str()),
        ("file_bytes", file.as_str()),
        ("compression", "none"),
        ("compaction", policy),
    ];
    let keys = db.keyspace_with(KEYSPACE, &options)?;
    Ok((db, keys))
}

/// Returns a distinct pseudo-random number for each `n`.
fn mixed(n: u64) -> u64 {
    let mut mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

fn key(n: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&mixed(n).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn value(n: u64) -> [u8; ENTRY as usize - KEY] {
    let mut value = [n as u8; ENTRY as usize - KEY];
    value[..8].copy_from_slice(&n.to_be_bytes());
    value
}

/// Reads all entries and checks that they are exactly the `puts` written ones, in order. Returns a hash over them.
fn content(keys: &Keyspace, puts: u64) -> Result<u64> {
    let mut expected: Vec<u64> = (0..puts).collect();
    expected.sort_unstable_by_key(|n| key(*n));
    let wrong = |what: String| Failure::failed("the engine's content is wrong", what);
    let mut hash = 0_u64;
    let mut entries = keys.iter();
    for n in expected {
        let entry = entries.next().ok_or_else(|| wrong(format!("entry {n} is missing")))?;
        let (key_found, value_found) = entry.map_err(|e| wrong(e.to_string()))?;
        if *key_found != key(n) || *value_found != value(n) {
            return Err(wrong(format!("entry {n}")));
        }
        hash = mixed(hash ^ n);
    }
    match entries.next() {
        None => Ok(hash),
        Some(_) => Err(wrong("it has unexpected entries".to_owned())),
    }
}

/// Formats the table row of an engine run: its results in the simulation's columns, and the difference in bytes
/// written.
pub(super) fn row(measured: &Measured, simulated: &Report, scale: u64) -> String {
    format!(
        "{:<36}{:>8.0}{:>11.2}{:>22.1}{:>7}{:>+10.1} % bytes",
        "  on the engine",
        measured.throughput() * scale as f64,
        measured.per_flushed(),
        measured.mean_depth,
        measured.most_level0,
        100.0 * (measured.against(simulated) - 1.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_policy::schedule::{Concurrency, Settings};
    use drumlin_sim::pipeline::load as simulated;

    /// Bytes written per flushed byte and throughput, each for the engine and the simulation, and the content hash.
    struct Pair {
        bytes: (f64, f64),
        speed: (f64, f64),
        content: u64,
    }

    fn pair(policy: &str, (name, mode): (&str, Concurrency), slots: u32, load_mib: u64, scale: u64) -> Pair {
        let mut setup = Setup { total: load_mib << 20, ..Setup::downforce(slots) };
        setup.settings = Settings { mode, ..setup.settings };
        let setup = scaled(&setup, scale);
        let found = load(policy, name, &setup).expect("the engine");
        let mut decides = drumlin_policy::by_name(policy).expect("a policy");
        let report = simulated(&mut *decides, &setup).expect("the simulation");
        let expected = (report.flushed + report.merged) as f64 / report.flushed as f64;
        Pair {
            bytes: (found.per_flushed(), expected),
            speed: (found.throughput(), report.throughput()),
            content: found.content,
        }
    }

    /// Runs all modes for each number of slots. Checks that bytes agree within `within`, that the throughput of the
    /// modes has the same order, and that the contents are equal.
    fn agree(policy: &str, slots: &[u32], load_mib: u64, scale: u64, within: f64) {
        let mut content = None;
        for &slots in slots {
            let pairs = Concurrency::NAMES.map(|mode| pair(policy, mode, slots, load_mib, scale));
            for ((name, _), Pair { bytes, content: found, speed }) in Concurrency::NAMES.iter().zip(&pairs) {
                println!("{policy} {name} {slots}: bytes {bytes:?}, MiB/s {speed:?}");
                assert_eq!(*content.get_or_insert(*found), *found, "{policy} {name} {slots}");
                let off = bytes.0 / bytes.1 - 1.0;
                assert!(off.abs() < within, "{policy} {name}, {slots} slots: {bytes:?}, {off:+.3}");
            }
            for a in &pairs {
                for b in &pairs {
                    // If one mode is at least a quarter faster in the simulation, it must not be slower on the
                    // engine.
                    if a.speed.1 > 1.25 * b.speed.1 {
                        assert!(a.speed.0 >= b.speed.0, "{policy}, {slots} slots: order");
                    }
                }
            }
        }
    }

    /// A load this short is sensitive to the timing of single compactions when one slot runs them all, so it uses
    /// two.
    #[test]
    fn the_engine_writes_what_is_simulated() {
        agree("tiering:4", &[2], 6400, 256, 0.15);
        agree("1-leveling:5", &[2], 6400, 256, 0.15);
    }

    #[test]
    fn files_that_the_engine_cannot_write_are_refused() {
        let setup = Setup { memtable: 1 << 20, ..Setup::downforce(2) };
        assert_eq!(check(&setup, 64), Ok(()));
        let Err(Failure::Usage(what)) = check(&setup, 65) else { panic!("it is refused") };
        assert!(what.contains("--engine 65") && what.contains("--memtable 1024"), "{what}");
    }

    #[test]
    fn sizes_and_rates_are_divided_and_pieces_stay_in_the_engines_bounds() {
        let setup = Setup::downforce(4);
        let small = scaled(&setup, 64);
        assert_eq!(
            (small.memtable, small.file, small.settings.piece),
            (1 << 20, 1 << 18, (1 << 20, 1 << 20))
        );
        let seconds =
            |setup: &Setup| (setup.total / setup.write_rate, setup.memtable * 1000 / setup.flush_rate);
        assert_eq!(seconds(&small), seconds(&setup));
        let large = scaled(&Setup { memtable: 4 << 30, ..setup }, 16);
        assert_eq!(large.settings.piece, setup.settings.piece);
    }
}
