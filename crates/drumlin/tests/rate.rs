//! Tests of `background_rate`, the limit on the bytes that compactions write per second of virtual time.

use drumlin::Db;
use drumlin::env::MemEnv;

const MIB: u64 = 1 << 20;
/// Upper bound on the bytes written beyond the limit: the last step, with the end of its table.
const STEP: u64 = MIB + MIB / 4;

const SMALL: &[(&str, &str)] = &[
    ("memtable_bytes", "256KiB"),
    ("file_bytes", "256KiB"),
    ("compression", "none"),
    ("compaction", "tiering:8"),
];

/// Creates a store with some runs and no background work left.
fn filled(mem: &MemEnv) -> Db {
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace_with("k", SMALL).expect("keyspace");
    for n in 0..6000u32 {
        keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [n as u8; 1000]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    db
}

#[test]
fn merges_write_as_fast_as_they_may() {
    let mem = MemEnv::new(61);
    let db = filled(&mem);
    let clock = mem.env();
    let now = || clock.clock().monotonic_micros();
    for (rate, text) in [(MIB, "1MiB"), (3 * MIB, "3MiB")] {
        db.set_option("background_rate", text).expect("a live option");
        let (began, before) = (now(), db.metrics());
        let keys = db.keyspace("k").expect("k");
        keys.put("more", "runs").expect("put");
        db.compact().expect("compact");
        let micros = now() - began;
        let after = db.metrics();
        let written = after.compaction_bytes_written - before.compaction_bytes_written;
        let allowed = rate * micros / 1_000_000;
        assert!(written > 5 * MIB, "only {written} bytes were written");
        assert!(written <= allowed + STEP, "{written} bytes in {micros} us at {text}");
        // The rate is not lower than the limit either.
        assert!(written + STEP + MIB / 2 >= allowed, "{written} bytes in {micros} us at {text}");
    }
    db.set_option("background_rate", "0").expect("a live option");
    let began = now();
    db.keyspace("k").and_then(|k| k.put("yet more", "runs")).expect("put");
    db.compact().expect("compact");
    assert!(now() - began < 100_000, "without a limit no time passes");
}

#[test]
fn flushes_go_first_and_merges_pay_for_them() {
    let mem = MemEnv::new(62);
    let db = filled(&mem);
    db.set_option("background_rate", "1MiB").expect("a live option");
    let clock = mem.env();
    let now = || clock.clock().monotonic_micros();
    let keys = db.keyspace("k").expect("k");
    let (began, before) = (now(), db.metrics());
    for n in 0..4000u32 {
        keys.put(n.to_le_bytes(), [7; 1000]).expect("put");
    }
    db.flush().expect("flush");
    let flushed = db.metrics().flush_bytes_written - before.flush_bytes_written;
    assert!(flushed > 3 * MIB);
    db.compact().expect("compact");
    let micros = now() - began;
    let merged = db.metrics().compaction_bytes_written - before.compaction_bytes_written;
    assert!(merged + flushed <= MIB * micros / 1_000_000 + STEP, "{merged} + {flushed} bytes in {micros} us");
}
