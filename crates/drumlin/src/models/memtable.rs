//! Concurrency models of one memtable.

use crate::base::cursor::Cursor;
use crate::memtable::Memtable;
use drumlin_env::sync::Arc;
use drumlin_types::{Kind, LogNumber};
use shuttle::thread;

/// During and after a commit, `holds_writes` returns true to every thread.
pub(super) fn a_commit_is_always_seen() {
    let table = Arc::new(Memtable::new(LogNumber(1), 0));
    table.begin_write();
    let writer = table.clone();
    let writer = thread::spawn(move || {
        writer.insert(b"key", 1, Kind::Put, b"value");
        writer.end_write();
    });
    assert!(table.holds_writes(), "the memtable misses a commit in progress");
    writer.join().expect("the writer");
    assert!(table.is_complete() && table.holds_writes());
}

/// Returns the keys of a memtable in cursor order.
fn keys(table: &Arc<Memtable>) -> Vec<Vec<u8>> {
    let (mut cursor, mut keys) = (table.cursor(), Vec::new());
    cursor.seek_first().expect("memory");
    while cursor.valid() {
        keys.push(cursor.key().to_vec());
        cursor.next().expect("memory");
    }
    keys
}

/// Two writers and a reader: inserted entries never disappear, and the reader always sees them in order.
pub(super) fn entries_stay_in_order() {
    let table = Arc::new(Memtable::new(LogNumber(1), 0));
    table.insert(b"e", 1, Kind::Put, b"");
    let writers = [["a", "d", "h"], ["c", "b", "g"]].into_iter().zip([10, 20]).map(|(keys, first)| {
        let table = table.clone();
        thread::spawn(move || {
            for (key, seq) in keys.into_iter().zip(first..) {
                table.insert(key.as_bytes(), seq, Kind::Put, b"");
                assert!(table.versions(key.as_bytes(), seq).next().is_some(), "{key} was inserted");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for _ in 0..2 {
        let met = keys(&table);
        assert!(met.is_sorted() && met.contains(&b"e".to_vec()), "{met:?}");
    }
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    assert_eq!(keys(&table), ["a", "b", "c", "d", "e", "g", "h"].map(|key| key.as_bytes().to_vec()));
}
