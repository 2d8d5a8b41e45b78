//! Tests of single failures of file system calls. Whatever the program does after the failure, power loss keeps every
//! write that was acknowledged as durable, and never keeps a later write without an earlier one.
//!
//! A fixed program uses everything that changes a store. It runs once for each of its file system calls, with that call
//! failing, and continues after the error. `FAULTS=all` fails every call; otherwise one in thirteen fails.

use drumlin::env::{Effect, Fault, ImageMode, MemEnv, SyncFailure, When};
use drumlin::{Db, Durability, Keyspace, Result};

const WRITES: u32 = 150;
const TINY: &[(&str, &str)] =
    &[("memtable_bytes", "8KiB"), ("file_bytes", "8KiB"), ("compaction", "tiering:2")];

fn open(mem: &MemEnv) -> Result<(Db, [Keyspace; 2])> {
    let db = Db::builder("/above/s")
        .env(mem.env())
        .set("memory_budget", "8MiB")
        .and_then(|b| b.set("log_segment_bytes", "64KiB"))
        .and_then(|b| b.open())?;
    let keyspaces = [db.keyspace_with("a", TINY)?, db.keyspace_with("b", TINY)?];
    Ok((db, keyspaces))
}

/// Creates a disk on which the store's directory entry is durable. If creating it could fail, the program would have to
/// create another directory.
fn world(seed: u64) -> MemEnv {
    let mem = MemEnv::new(seed);
    let env = mem.env();
    env.fs().create_dir_all("/above/s".as_ref()).expect("a directory");
    ["/", "/above"]
        .iter()
        .for_each(|dir| env.fs().sync_dir(dir.as_ref()).expect("a durable directory entry"));
    mem
}

/// Results that the store reported to the program during a run.
#[derive(Default)]
struct Acknowledged {
    /// Acknowledged writes.
    written: Vec<u32>,
    /// Bound below which acknowledged writes are durable.
    lasting: u32,
    failures: u32,
    /// Number of failed opens.
    unopened: u32,
}

impl Acknowledged {
    fn hear<T>(&mut self, result: Result<T>) -> bool {
        self.failures += u32::from(result.is_err());
        result.is_ok()
    }
}

/// Runs the program. It repeats a failed open once, as a user would do.
fn run(mem: &MemEnv) -> Acknowledged {
    let mut told = Acknowledged::default();
    let mut opened = None;
    for write in 0..WRITES {
        for _ in 0..3 {
            if opened.is_none() {
                let result = open(mem);
                told.unopened += u32::from(result.is_err());
                opened = result.ok();
            }
        }
        let Some((db, keyspaces)) = &opened else { panic!("three opens failed after a single fault") };
        let keys = &keyspaces[write as usize % 2];
        let sync = write % 11 == 0;
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        if told.hear(keys.put_with(write.to_be_bytes(), [write as u8; 1500], durability)) {
            told.written.push(write);
            told.lasting = if sync { write + 1 } else { told.lasting };
        }
        match write % 50 {
            5 => _ = told.hear(db.set_option("background_rate", "900MiB")),
            9 => _ = told.hear(keys.set_option("filter_bits", "8")),
            14 if told.hear(db.flush()) => told.lasting = write + 1,
            19 => _ = told.hear(db.keyspace("c").and_then(|c| c.put("x", "y"))),
            24 => _ = told.hear(db.checkpoint(format!("/copies/{write}"))),
            29 => _ = told.hear(db.compact()),
            34 => _ = told.hear(db.drop_keyspace("c")),
            39 => _ = told.hear(keys.delete_range(b"\xff".as_slice()..b"\xff\xff")),
            _ => {}
        }
        if write % 50 == 44
            && let Some((db, _)) = opened.take()
            && told.hear(db.close())
        {
            told.lasting = write + 1;
        }
    }
    told
}

/// Opens the store and checks that it contains what it must.
fn judge(mem: &MemEnv, told: &Acknowledged, lasting: u32) -> std::result::Result<(), String> {
    let (db, keyspaces) = open(mem).map_err(|e| format!("the store does not open: {e}"))?;
    let has = |write: u32| keyspaces[write as usize % 2].get(write.to_be_bytes()).map(|v| v.is_some());
    let found: Vec<bool> =
        (0..WRITES).map(has).collect::<Result<_>>().map_err(|e| format!("a read fails: {e}"))?;
    let end = found.iter().rposition(|&there| there).map_or(0, |last| last as u32 + 1);
    let missing = |below: u32| told.written.iter().find(|&&write| write < below && !found[write as usize]);
    if let Some(lost) = missing(lasting) {
        return Err(format!("write {lost} is lost, but all writes before {lasting} are durable"));
    }
    if let Some(hole) = missing(end) {
        return Err(format!("write {hole} is lost, but the later write {} is there", end - 1));
    }
    let findings = db.verify().map_err(|e| format!("the store cannot be verified: {e}"))?.findings;
    if findings.is_empty() { Ok(()) } else { Err(format!("{findings:?}")) }
}

#[test]
fn any_call_may_fail() {
    let seed = 5;
    let calm = world(seed);
    let first = calm.io_index();
    let told = run(&calm);
    assert_eq!((told.written.len(), told.failures), (WRITES as usize, 0));
    let calls = calm.io_index();
    let step = if std::env::var_os("FAULTS").is_some_and(|v| v == "all") { 1 } else { 13 };
    // Leaves out effects that revert earlier writes: they may lose buffered writes, which are not durable anyway.
    let effects = [
        Effect::Fail(5),
        Effect::Partial(5),
        Effect::FailSync(5, SyncFailure::Lost),
        Effect::FailSync(5, SyncFailure::Sticky),
    ];
    let (mut failed, mut poisoned) = (0, 0);
    for (number, effect) in effects.into_iter().enumerate() {
        for index in (first + number as u64..calls).step_by(step) {
            let mem = world(seed);
            mem.inject(Fault { op: None, kind: None, when: When::Index(index), effect });
            let told = run(&mem);
            failed += u32::from(told.failures + told.unopened > 0);
            poisoned += u32::from(told.failures > 1);
            let about = |mode: ImageMode, why: String| panic!("{effect:?} at {index}, {mode:?}: {why}");
            for (mode, lasting) in [(ImageMode::None, told.lasting), (ImageMode::All, WRITES)] {
                let mut image = mem.snapshot().image(mode, index);
                judge(&image, &told, lasting).unwrap_or_else(|why| about(mode, why));
                // A second power loss must keep what the first open recovered.
                image = image.snapshot().image(ImageMode::None, index);
                judge(&image, &told, lasting)
                    .unwrap_or_else(|why| about(mode, format!("after the second power loss: {why}")));
            }
            let mut broken = mem.order_violations();
            // The monitor assumes a single store. A pointer of a checkpoint that is in doubt does not affect this
            // store.
            broken.retain(|rule| !(rule.starts_with("O3") && rule.contains("/copies/")));
            // A failed open may create files that no manifest contains yet. The next open creates them again under the
            // same numbers.
            broken.retain(|rule| told.unopened == 0 || !rule.starts_with("O4"));
            assert_eq!(broken, Vec::<String>::new(), "{effect:?} at {index}");
        }
    }
    println!("{calls} calls, {failed} runs with a failed operation, {poisoned} runs with several");
    assert!(failed > 50 && poisoned > 20, "{failed}, {poisoned}");
}
