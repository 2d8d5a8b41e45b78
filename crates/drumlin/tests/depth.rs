//! Tests of the number of runs under more writes than compactions can process, with few and many slots. Writes are
//! throttled. Levels below level 0 must stay bounded too, although the write throttle counts level 0 alone.
//!
//! The scheduler bounds leveled levels: at its limit a compaction into a level also compacts the level's runs. It
//! does not compact tiered levels in place. Instead, compactions out of such a level precede those into it once the
//! level has three times its target size, or six times while the level above exceeds its target size too.

use drumlin::env::MemEnv;
use drumlin::{Db, FileShape, LevelShape};

const PUTS: u32 = 24_000;
/// Virtual nanoseconds per block of 4 KiB. Compactions fall far behind.
const BLOCK: u64 = 20_000_000;
/// Virtual microseconds between two puts.
const EACH: u64 = 200;

/// Returns the largest number of files of `level` that cover one key.
fn deepest(level: &LevelShape) -> u64 {
    let files: Vec<&FileShape> = level.runs.iter().flat_map(|run| &run.files).collect();
    let covers = |file: &FileShape, key: &[u8]| {
        *file.first <= *key && file.end.as_ref().is_none_or(|end| *key < **end)
    };
    let at = |key: &[u8]| files.iter().filter(|file| covers(file, key)).count() as u64;
    files.iter().map(|file| at(&file.first)).max().unwrap_or(0)
}

/// Runs a series of puts. Returns the largest number of level 0 runs over a key, the lower levels that exceeded `most`,
/// and the number of throttled writes.
fn course(policy: &str, workers: u32, most: impl Fn(&LevelShape) -> u64) -> (u64, Vec<String>, u64) {
    let mem = MemEnv::new(3);
    mem.pace(BLOCK, BLOCK);
    let builder = Db::builder("/store")
        .env(mem.env())
        .set("compaction_slots", &workers.to_string())
        .expect("compaction_slots");
    let db = builder.open().expect("the store opens");
    let options = [
        ("memtable_bytes", "16KiB"),
        // Without this, waiting memtables would be flushed together and writes would seldom be throttled.
        ("flush_bytes", "16KiB"),
        ("file_bytes", "16KiB"),
        ("compression", "none"),
        ("compaction", policy),
    ];
    let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
    let env = mem.env();
    let (mut level0, mut beyond) = (0, Vec::new());
    for n in 0..PUTS {
        keyspace.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [n as u8; 120]).expect("a put");
        env.clock().sleep_micros(EACH);
        if n % 64 != 0 {
            continue;
        }
        for level in db.tree().iter().flat_map(|tree| &tree.levels) {
            let deep = deepest(level);
            match level.level {
                0 => level0 = level0.max(deep),
                _ if deep > most(level) => {
                    beyond.push(format!("put {n}: {deep} runs in level {}", level.level))
                }
                _ => {}
            }
        }
    }
    (level0, beyond, db.metrics().stalls_runs)
}

#[test]
fn leveled_levels_keep_the_limit_and_writers_are_slowed() {
    for policy in ["leveling:4", "1-leveling:5"] {
        let mut slowed = 0;
        for workers in [1, 2, 4, 8] {
            // Inputs of a running compaction do not count towards the limit, so as many runs may arrive meanwhile.
            // With few slots, only one more run arrives.
            let limit = |level: &LevelShape| {
                let most = level.most_runs.expect("a leveled level has a limit");
                if workers > 2 { 2 * most } else { most + 1 }
            };
            let (level0, beyond, stalls) = course(policy, workers, limit);
            assert!(beyond.is_empty(), "{policy}, {workers} workers: {beyond:?}");
            assert!(level0 <= 64, "{policy}, {workers} workers: {level0} runs");
            slowed += stalls;
        }
        assert!(slowed > 0, "{policy}: writers were never slowed");
    }
}

#[test]
fn tiers_do_not_fill_unseen() {
    const RATIO: u64 = 4;
    let mut slowed = 0;
    for workers in [1, 2, 4, 8] {
        // Six times the target size, since the level above may exceed its target size too. In addition, the outputs
        // of compactions that were running when the level reached that size.
        let limit = |_: &LevelShape| 6 * RATIO + RATIO * u64::from(workers);
        let (level0, beyond, stalls) = course("tiering:4", workers, limit);
        assert!(beyond.is_empty(), "{workers} workers: {beyond:?}");
        assert!(level0 <= 4 * RATIO, "{workers} workers: {level0} runs");
        slowed += stalls;
    }
    assert!(slowed > 0, "writers were never slowed");
}
