//! The heap of a store with many files: trees and open tables count towards `memory_budget`.

use drumlin::Db;
use drumlin_env::{Random, TempDir};
use drumlin_torture::fuzz::heap;

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

const BUDGET: u64 = 8 << 20;
/// A table has about four keys, and its bounds in the tree are two more. So the trees of about 1,500 tables alone take
/// half of the budget.
const KEY_BYTES: usize = 1000;
const KEYS: u32 = 6000;

/// Returns a key that cannot be compressed.
fn key(number: u32) -> Vec<u8> {
    let mut key = vec![0; KEY_BYTES];
    Random::new(u64::from(number), "key").fill(&mut key);
    key
}

fn open(dir: &TempDir) -> Db {
    let builder = Db::builder(dir.path());
    let options = [
        ("memory_budget", BUDGET.to_string()),
        ("log_segment_bytes", "1MiB".into()),
        ("durability", "none".into()),
    ];
    options
        .into_iter()
        .try_fold(builder, |builder, (name, value)| builder.set(name, &value))
        .and_then(|builder| builder.open())
        .expect("options of a small store")
}

#[test]
fn many_files_stay_within_the_memory_budget() {
    let dir = TempDir::new("drumlin-memory").expect("a temporary directory");
    let db = open(&dir);
    let all = db.keyspace("all").expect("a new keyspace");
    all.set_option("memtable_bytes", "1MiB").expect("an option");
    all.set_option("file_bytes", "4KiB").expect("an option");
    all.set_policy("tiering:20").expect("a policy that merges nothing here");
    for number in 0..KEYS {
        all.put(key(number), b"value").expect("room");
    }
    all.flush().expect("room");
    let tree = db.tree();
    let runs = tree.iter().flat_map(|shape| &shape.levels).flat_map(|level| &level.runs);
    let tables: usize = runs.map(|run| run.files.len()).sum();
    assert!(tables > 800, "{tables} tables");
    drop(all);
    db.close().expect("no iterator is open");

    let (held, peak) = heap::peak_of_all(|| {
        let db = open(&dir);
        let all = db.keyspace("all").expect("there");
        for round in 0..2 {
            for number in 0..KEYS {
                let found = all.get(key(number)).expect("sound");
                assert_eq!(found.as_deref(), Some(&b"value"[..]), "round {round}, key {number}");
            }
        }
        let held = heap::live_of_all();
        drop(all);
        db.close().expect("no iterator is open");
        held
    });
    // The lower bound: otherwise an allocator that counts nothing would pass. Above, 3 % for what is not in the budget.
    // The peak is only reported: it includes the open, which the budget does not cover.
    assert!(held > BUDGET / 4, "{held} bytes: the allocator is not counted");
    assert!(held < BUDGET + BUDGET / 32, "{held} bytes of {BUDGET}, {tables} tables; peak {peak}");
}
