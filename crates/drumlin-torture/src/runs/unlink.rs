//! The unlink hunt of the bank: tables whose removal fails for a while count against the disk budget, and are removed
//! later.

use crate::failure::{Failure, Verdict};
use drumlin::{Db, ErrorKind, Keyspace};
use drumlin_env::{Effect, Fault, FileKind, MemEnv, Op, Random, When};

/// Disk budget of the store.
const BUDGET: u64 = 3 << 20;
/// Range of the number of writes while tables cannot be removed.
const WRITES: [usize; 2] = [4000, 12_000];
/// Seconds within which the tables must be removed.
const SECONDS: usize = 130;
/// Number of reads in each of these seconds.
const GETS: usize = 20;

fn failed(what: &'static str) -> impl Fn(drumlin::Error) -> Failure {
    move |error| Verdict::Failed.of(format!("{what}: {error}"))
}

fn open(mem: &MemEnv) -> drumlin::Result<(Db, Keyspace)> {
    let builder = Db::builder("/s").env(mem.env());
    let builder = builder.set("memory_budget", "8MiB")?.set("log_segment_bytes", "64KiB")?;
    let db = builder.set("disk_budget", &BUDGET.to_string())?.open()?;
    let small = [("memtable_bytes", "16KiB"), ("file_bytes", "64KiB"), ("compaction", "tiering:4")];
    let keys = db.keyspace_with("k", &small)?;
    Ok((db, keys))
}

/// Returns the bytes of tables and log, and the number of tables.
fn on_disk(mem: &MemEnv) -> (u64, usize) {
    let (mut bytes, mut tables) = (0, 0);
    for path in mem.files() {
        let kind = mem.kind_of(&path);
        if matches!(kind, Some(FileKind::Table | FileKind::Log)) {
            bytes += mem.peek(&path).map_or(0, |content| content.len() as u64);
        }
        tables += usize::from(kind == Some(FileKind::Table));
    }
    (bytes, tables)
}

/// Runs one case.
pub fn one(seed: u64) -> Result<(), Failure> {
    let mut random = Random::new(seed, "unlink");
    let mem = MemEnv::new(seed);
    let (db, keys) = open(&mem).map_err(failed("open"))?;
    let (op, kind, when) = (Some(Op::Unlink), Some(FileKind::Table), When::From(random.below(20)));
    mem.inject(Fault { op, kind, when, effect: Effect::Fail(5) });
    let writes = WRITES[0] + random.index(WRITES[1] - WRITES[0]);
    for number in 0..writes {
        let key = random.below(2000).to_be_bytes();
        match keys.put(key, [number as u8; 100]) {
            Err(error) if error.kind() == ErrorKind::NoSpace => break,
            result => result.map_err(failed("a write"))?,
        };
        if number.is_multiple_of(64) {
            let (used, _) = on_disk(&mem);
            if used > BUDGET {
                let what = format!("{used} bytes are in use, more than disk_budget = {BUDGET}");
                return Err(Verdict::Wrong.of(what).at(number));
            }
        }
    }
    mem.clear_faults();
    for _ in 0..SECONDS {
        mem.advance(1_000_000);
        // This may fail for lack of disk space; the check below tells whether the tables are gone.
        let _ = db.wait_idle();
        // Each call lets background lanes take some steps.
        (0..GETS).try_for_each(|_| keys.get([0; 8]).map(drop)).map_err(failed("get"))?;
    }
    let runs = db.tree().into_iter().flat_map(|shape| shape.levels).flat_map(|level| level.runs);
    let (live, (_, tables)) = (runs.map(|run| run.files.len()).sum::<usize>(), on_disk(&mem));
    match tables == live {
        true => db.close().map_err(failed("close")),
        false => Err(Verdict::Orphan.of(format!("{tables} tables are on disk, and {live} belong to a tree"))),
    }
}
