//! Tests of hot counters: reads of a counter do not pay for operands that were already combined.

use drumlin::env::MemEnv;
use drumlin::{AddI64, Db, Keyspace, MergeOperator};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Merge operator that adds, and counts the operands that it receives.
struct Counting {
    given: AtomicU64,
}

impl MergeOperator for Counting {
    fn name(&self) -> &str {
        AddI64::Text.name()
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.given.fetch_add(operands.len() as u64, Relaxed);
        AddI64::Text.merge(key, base, operands)
    }

    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        self.given.fetch_add(1, Relaxed);
        AddI64::Text.partial_merge(key, left, right)
    }
}

fn number(counter: &Keyspace, key: &str) -> Option<i64> {
    let value = counter.get(key).expect("get")?;
    Some(std::str::from_utf8(&value).expect("digits").parse().expect("a number"))
}

/// The number of operands that a read of a counter applies is about the same after 100 merges and after 10,000.
#[test]
fn a_counter_does_not_pay_for_what_was_merged() {
    let operator = Arc::new(Counting { given: AtomicU64::new(0) });
    let builder = Db::builder(Path::new("/counter")).env(MemEnv::new(5).env());
    let builder = builder.set("memory_budget", "64MiB").expect("a known option");
    let db = builder.merge_operator("hits", operator.clone()).open().expect("a new store");
    let hits = db.keyspace_with("hits", &[("memtable_bytes", "32MiB")]).expect("a keyspace");
    hits.put("page", "1000").expect("put");
    let mut costs = Vec::new();
    let mut snapshots = Vec::new();
    for n in 1..=10_000i64 {
        hits.merge("page", "1").expect("merge");
        if n % 500 != 100 {
            continue;
        }
        snapshots.push((n, db.snapshot()));
        assert_eq!(number(&hits, "page"), Some(1000 + n));
        operator.given.store(0, Relaxed);
        (0..10).for_each(|_| assert_eq!(number(&hits, "page"), Some(1000 + n)));
        costs.push(operator.given.swap(0, Relaxed));
        // Earlier snapshots still see their values.
        for (n, snapshot) in &snapshots {
            let value = snapshot.get(&hits, "page").expect("get").expect("a value");
            assert_eq!(*value, *(1000 + n).to_string().as_bytes());
        }
    }
    assert!(costs.iter().all(|cost| *cost <= 10 * 20), "{costs:?}");
    // A delete by key or by range, and merges after it.
    hits.delete_range("p".."q").expect("delete_range");
    assert_eq!(number(&hits, "page"), None);
    for n in 1..=100 {
        hits.merge("page", "1").expect("merge");
        assert_eq!(number(&hits, "page"), Some(n));
    }
    hits.delete("page").expect("delete");
    hits.merge("page", "5").expect("merge");
    assert_eq!(number(&hits, "page"), Some(5));
}

/// A range delete between two combined operands of one key hides the older one, which must not come back.
#[test]
fn a_range_delete_between_two_folds() {
    let builder = Db::builder(Path::new("/counter")).env(MemEnv::new(7).env());
    let db = builder.merge_operator("hits", Arc::new(AddI64::Text)).open().expect("a new store");
    let hits = db.keyspace("hits").expect("a keyspace");
    for round in 1..4 {
        for _ in 0..20 {
            hits.merge("page", "1").expect("merge");
        }
        for _ in 0..3 {
            assert_eq!(number(&hits, "page"), Some(20), "round {round}");
            let values = hits.multi_get(["page"]).expect("multi_get");
            assert_eq!(values[0].as_deref(), Some(&b"20"[..]), "round {round}");
            let (_, value) = hits.iter().next().expect("an entry").expect("an entry");
            assert_eq!(&*value, b"20", "round {round}");
        }
        hits.delete_range("page"..="page").expect("delete_range");
    }
    db.flush().expect("flush");
    assert_eq!(number(&hits, "page"), None);
}
