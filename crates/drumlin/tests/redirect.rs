//! Tests of pieces (subcompactions) that fail while later pieces wait for them. Outputs cannot be written or synced for
//! a while. The output of a waiting piece is redirected to the level of its inputs ("lands") and moves down ("sinks")
//! later. A piece that fails five times is given up. Pieces that waited for it are redirected or given up too. Reads
//! always agree with an ordered map, also after power loss, and afterwards the store becomes idle.
//!
//! The decision log shows whether a run reached these cases. If waiting pieces were not adjusted when a piece is given
//! up, edits would break the rules of the tree. The checks of the debug build report that as errors that no fault
//! explains.

use drumlin::env::sync::{Arc, Mutex};
use drumlin::env::{Effect, Fault, FileKind, ImageMode, MemEnv, Op, When};
use drumlin::{Db, Error, ErrorKind, Event, EventListener, Keyspace};
use std::collections::BTreeMap;

const KEYS: u32 = 900;
/// Number of writes before and after the disk fails.
const WRITES: u32 = 1500;
/// Number of reads while the disk fails. Half a second of virtual time between them leaves time for five attempts.
const READS: u32 = 80;
const PAUSE: u64 = 500_000;
const EIO: i32 = 5;

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

/// Numbers of events in the decision log of a run.
#[derive(Clone, Copy, Default, Debug)]
struct Met {
    landed: usize,
    sunk: usize,
    given_up: usize,
    redirected: usize,
}

impl Met {
    fn of(db: &Db) -> Met {
        let mut met = Met::default();
        for what in db.explain().into_iter().map(|d| d.what) {
            let number = || what.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            met.landed += usize::from(what.contains(", the level of its inputs"));
            met.sunk += usize::from(what.contains(" output moved on to L"));
            met.given_up += if what.contains(" pieces withdrawn: ") { number() } else { 0 };
            met.redirected +=
                if what.contains(" pieces redirected to the level of their inputs: ") { number() } else { 0 };
        }
        met
    }

    fn add(&mut self, other: Met) {
        self.landed += other.landed;
        self.sunk += other.sunk;
        self.given_up += other.given_up;
        self.redirected += other.redirected;
    }
}

/// Listener for background errors that no disk fault explains, such as an edit that broke a rule of the tree.
#[derive(Clone, Default)]
struct Wrong(Arc<Mutex<Vec<Error>>>);

impl EventListener for Wrong {
    fn on_event(&self, event: &Event) {
        match event {
            Event::BackgroundError { error, .. } if error.kind() != ErrorKind::Io => {
                self.0.lock().push(error.clone());
            }
            _ => {}
        }
    }
}

/// Opens a store whose plans often conflict.
fn open(mem: &MemEnv, policy: &str, wrong: &Wrong) -> (Db, Keyspace) {
    let builder =
        Db::builder("/store").env(mem.env()).set("compaction_slots", "4").expect("compaction_slots");
    let builder = builder.listener(Arc::new(wrong.clone()));
    let db = builder.open().expect("the store opens");
    let options = [("memtable_bytes", "8KiB"), ("file_bytes", "4KiB"), ("compaction", policy)];
    // The decision log is short: decisions about filters would take the place of those that are counted.
    let options = [&options[..], &[("filter_mode", "uniform")]].concat();
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    (db, keys)
}

fn write(keys: &Keyspace, oracle: &mut Oracle, n: u32) {
    let key = (n.wrapping_mul(2_654_435_761) % KEYS).to_be_bytes();
    if n.is_multiple_of(11) {
        keys.delete(key).expect("a delete");
        oracle.remove(&key[..]);
    } else {
        let value = [n as u8; 60];
        keys.put(key, value).expect("a put");
        oracle.insert(key.to_vec(), value.to_vec());
    }
}

fn check(keys: &Keyspace, oracle: &Oracle, course: &str) {
    let found: Oracle = keys
        .iter()
        .map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())))
        .collect::<Result<_, _>>()
        .expect(course);
    assert!(found == *oracle, "{course}: {} entries in place of {}", found.len(), oracle.len());
    for n in 0..KEYS {
        let value = keys.get(n.to_be_bytes()).expect(course);
        assert_eq!(value.as_deref(), oracle.get(&n.to_be_bytes()[..]).map(|v| &v[..]), "{course}, key {n}");
    }
}

/// Checks that the store has the same contents after a power loss at this point, and becomes idle.
fn survives(mem: &MemEnv, policy: &str, wrong: &Wrong, oracle: &Oracle, course: &str) {
    for mode in [ImageMode::None, ImageMode::Torn] {
        let after = mem.snapshot().image(mode, 9);
        let (db, keys) = open(&after, policy, wrong);
        check(&keys, oracle, course);
        db.wait_idle().expect(course);
        check(&keys, oracle, course);
        assert_eq!(db.verify().expect(course).findings, vec![], "{course}");
    }
}

/// Runs writes and reads. From the middle of the writes on, calls of `op` on table files fail as `when` selects.
fn course(policy: &str, seed: u64, op: Op, when: When) -> Met {
    let course = format!("{policy}, seed {seed}, {op:?} {when:?}");
    let (mem, wrong) = (MemEnv::new(seed), Wrong::default());
    let (db, keys) = open(&mem, policy, &wrong);
    let mut oracle = Oracle::new();
    (0..WRITES).for_each(|n| write(&keys, &mut oracle, n));
    mem.inject(Fault { op: Some(op), kind: Some(FileKind::Table), when, effect: Effect::Fail(EIO) });
    let mut written = WRITES;
    while mem.fired().is_empty() && written < 2 * WRITES {
        write(&keys, &mut oracle, written);
        written += 1;
    }
    assert!(!mem.fired().is_empty(), "{course}: nothing failed");
    db.sync().expect("the log can be written");
    for n in 0..READS {
        mem.advance(PAUSE);
        let key = (n * 11 % KEYS).to_be_bytes();
        let value = keys.get(key).expect(&course);
        assert_eq!(value.as_deref(), oracle.get(&key[..]).map(|v| &v[..]), "{course}, key {n}");
        if n % 20 == 0 {
            check(&keys, &oracle, &course);
        }
    }
    survives(&mem, policy, &wrong, &oracle, &course);
    mem.clear_faults();
    (written..written + WRITES).for_each(|n| write(&keys, &mut oracle, n));
    db.flush().expect(&course);
    db.wait_idle().expect(&course);
    check(&keys, &oracle, &course);
    assert_eq!(db.verify().expect(&course).findings, vec![], "{course}");
    assert_eq!(mem.order_violations(), Vec::<String>::new(), "{course}");
    let met = Met::of(&db);
    survives(&mem, policy, &wrong, &oracle, &course);
    assert!(wrong.0.lock().is_empty(), "{course}: {:?}", wrong.0.lock());
    met
}

#[test]
fn what_waits_for_a_failing_piece_lands_or_is_redirected() {
    for (op, seeds) in [(Op::Write, 1..=4), (Op::SyncData, 11..=14)] {
        let mut met = Met::default();
        for seed in seeds {
            for when in [When::From(7 * seed), When::OneIn(2), When::OneIn(3), When::Nth(seed)] {
                let one = course("chaos", seed, op, when);
                println!("{op:?} {seed} {when:?} {one:?}");
                met.add(one);
            }
        }
        println!("{op:?} {met:?}");
        let Met { landed, sunk, given_up, redirected } = met;
        assert!(landed > 0 && sunk > 0, "{op:?}: {met:?}");
        assert!(given_up > 0 && redirected > 0, "{op:?}: {met:?}");
    }
}
