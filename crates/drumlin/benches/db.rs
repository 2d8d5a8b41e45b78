//! Loads a store, reads it back, and prints the cost of an operation, one line per workload. Run it with `cargo bench
//! -p drumlin --bench db`; set `DRUMLIN_BENCH_ENTRIES=5000000` for a larger store.
//!
//! Workloads have the names that RocksDB's db_bench uses for the same ones. A line shows wall time per operation,
//! operations per second, CPU time of the calling thread, and CPU time of the whole process, which includes flushes
//! and compactions. Keys have 16 bytes: a bijective hash of a counter, then the counter, both big endian. They are
//! therefore distinct and in random order, without a list. Values have 100 bytes.
//!
//! Environment variables:
//! - `DRUMLIN_BENCH_ENTRIES`: number of entries to load; 1 000 000 by default.
//! - `DRUMLIN_BENCH_READS`: number of operations of each read workload; as many as entries by default.
//! - `DRUMLIN_BENCH_WORKLOADS`: names of the workloads to run after the load; all by default.
//! - `DRUMLIN_BENCH_SET`: options of the store, as comma-separated `name=value` pairs.
//! - `DRUMLIN_BENCH_KEYSPACE`: options of the keyspace, in the same form.

use drumlin::env::{Env, TempDir};
use drumlin::{Db, Durability, Keyspace};
use rustix::time::{ClockId, clock_gettime};

const VALUE_BYTES: usize = 100;
const NEXTS: usize = 10;

/// Returns a bijective hash of `n`: distinct keys in random order, without a list.
fn scatter(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scatter(n).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Incompressible value bytes; each entry uses a different slice.
struct Values(Vec<u8>);

impl Values {
    fn new() -> Values {
        Values((0..1u64 << 17).flat_map(|n| scatter(n ^ 0x5eed).to_le_bytes()).collect())
    }

    fn get(&self, n: u64) -> &[u8] {
        let start = scatter(n) as usize % (self.0.len() - VALUE_BYTES);
        &self.0[start..start + VALUE_BYTES]
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs one workload of `operations` operations and prints its line. `run` returns a note for the end of the line.
fn measure(name: &str, operations: u64, run: impl FnOnce() -> String) {
    let clocks = [ClockId::Monotonic, ClockId::ThreadCPUTime, ClockId::ProcessCPUTime];
    let before = clocks.map(nanos);
    let note = run();
    let [wall, thread, process] = [0, 1, 2].map(|i| (nanos(clocks[i]) - before[i]) as f64);
    let per = |nanos: f64| nanos / 1e3 / operations.max(1) as f64;
    println!(
        "{name:<12} : {:8.3} micros/op {:9.0} ops/sec; cpu {:7.3} thread, {:7.3} process; {note}",
        per(wall),
        operations as f64 * 1e9 / wall,
        per(thread),
        per(process),
    );
}

fn load(keys: &Keyspace, entries: u64) -> drumlin::Result<String> {
    let values = Values::new();
    let clock = Env::os();
    let (mut last, mut slowest) = (clock.clock().monotonic_nanos(), 0);
    for n in 0..entries {
        keys.put_with(key(n), values.get(n), Durability::Buffered)?;
        let now = clock.clock().monotonic_nanos();
        slowest = slowest.max(now - last);
        last = now;
    }
    Ok(format!("slowest {:.1} ms", slowest as f64 / 1e6))
}

fn read_random(keys: &Keyspace, entries: u64, reads: u64, missing: bool) -> drumlin::Result<String> {
    let mut found = 0;
    for i in 0..reads {
        let mut wanted = key(scatter(i ^ 0xabcd) % entries);
        if missing {
            wanted[15] ^= 0xff;
            wanted[8] = 0xff;
        }
        if let Some(value) = keys.get(wanted)? {
            assert_eq!(value.len(), VALUE_BYTES);
            found += 1;
        }
    }
    assert_eq!(found, if missing { 0 } else { reads });
    Ok(format!("{found} of {reads} found"))
}

fn seek_random(keys: &Keyspace, entries: u64, seeks: u64) -> drumlin::Result<String> {
    let mut bytes = 0;
    for i in 0..seeks {
        for item in keys.range(key(scatter(i ^ 0xdcba) % entries)..).take(1 + NEXTS) {
            let (key, value) = item?;
            bytes += key.len() + value.len();
        }
    }
    Ok(format!("{NEXTS} nexts, {bytes} bytes"))
}

fn seek_reuse(keys: &Keyspace, entries: u64, seeks: u64) -> drumlin::Result<String> {
    let mut bytes = 0;
    let mut cursor = keys.cursor::<[u8; 16]>(..)?;
    for i in 0..seeks {
        cursor.seek(key(scatter(i ^ 0xdcba) % entries))?;
        for _ in 0..=NEXTS {
            let Some((key, value)) = cursor.entry() else { break };
            bytes += key.len() + value.len();
            cursor.next()?;
        }
    }
    Ok(format!("{NEXTS} nexts, {bytes} bytes"))
}

fn read_seq(keys: &Keyspace, entries: u64) -> drumlin::Result<String> {
    let mut seen = 0;
    let mut cursor = keys.cursor::<[u8; 16]>(..)?;
    let mut more = cursor.seek_first()?;
    while more {
        seen += 1;
        more = cursor.next()?;
    }
    assert_eq!(seen, entries);
    Ok(String::new())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Parses `name=value,name=value` from the environment variable `name`.
fn pairs(name: &str) -> Vec<(String, String)> {
    let text = std::env::var(name).unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn run() -> drumlin::Result<()> {
    let entries = setting("DRUMLIN_BENCH_ENTRIES", 1_000_000).max(1);
    let reads = setting("DRUMLIN_BENCH_READS", entries);
    let wanted = std::env::var("DRUMLIN_BENCH_WORKLOADS").unwrap_or_default();
    let wants = |name: &str| wanted.is_empty() || wanted.split(',').any(|w| w == name);

    let dir = TempDir::new("drumlin-bench").expect("a temporary directory");
    let mut builder = Db::builder(dir.path().join("db")).set("memory_budget", "3GiB")?;
    for (name, value) in pairs("DRUMLIN_BENCH_SET") {
        builder = builder.set(&name, &value)?;
    }
    let db = builder.open()?;
    let options = pairs("DRUMLIN_BENCH_KEYSPACE");
    let mut options: Vec<(&str, &str)> = options.iter().map(|(n, v)| (&n[..], &v[..])).collect();
    if !options.iter().any(|(name, _)| *name == "compression") {
        options.push(("compression", "none"));
    }
    let keys = db.keyspace_with("bench", &options)?;

    measure("fillrandom", entries, || load(&keys, entries).expect("load"));
    measure("settle", entries, || db.wait_idle().map(|()| shape(&db)).expect("wait"));
    for pass in ["", "warm"] {
        if wants("compact") {
            measure("compact", entries, || {
                keys.compact::<[u8; 16]>(..).expect("compact");
                String::new()
            });
        }
        if wants("readrandom") {
            let read = || read_random(&keys, entries, reads, false).expect("read");
            measure("readrandom", reads, || format!("{} {pass}", read()));
        }
    }
    if wants("readmissing") {
        measure("readmissing", reads, || read_random(&keys, entries, reads, true).expect("read"));
    }
    if wants("seekrandom") {
        let seeks = (reads / 5).max(1);
        measure("seekrandom", seeks, || seek_random(&keys, entries, seeks).expect("seek"));
    }
    if wants("seekreuse") {
        let seeks = (reads / 5).max(1);
        measure("seekreuse", seeks, || seek_reuse(&keys, entries, seeks).expect("seek"));
    }
    if wants("readseq") {
        measure("readseq", entries, || read_seq(&keys, entries).expect("scan"));
    }
    db.close()
}

/// Describes the result of the load: the tree, and the bytes written for it.
fn shape(db: &Db) -> String {
    let metrics = db.metrics();
    let levels = db.tree().into_iter().flat_map(|tree| tree.levels);
    let runs: Vec<String> = levels.map(|level| level.runs.len().to_string()).collect();
    format!(
        "runs by level {}; flushed {} MB, merged {} MB; stalls runs {} ms, memory {} ms",
        runs.join(" "),
        metrics.flush_bytes_written >> 20,
        metrics.compaction_bytes_written >> 20,
        metrics.stall_micros_runs / 1000,
        metrics.stall_micros_memory / 1000,
    )
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
