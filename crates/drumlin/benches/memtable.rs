//! Prints the cost of memtable inserts and lookups: `cargo bench -p drumlin --bench memtable -- [entries] [value
//! bytes]`.
//!
//! The modules are included by path, because the memtable is private to the engine.
#![expect(dead_code, unused_imports, unreachable_pub, reason = "private modules, used in part")]

#[path = "../src/base"]
mod base {
    pub(crate) mod cache_padded;
    pub(crate) mod cursor;
    pub(crate) mod error;
    #[expect(unsafe_code, reason = "the prefetch instruction")]
    pub(crate) mod prefetch;
    pub(crate) mod rangedel;
    pub(crate) mod slice;
}
#[path = "../src/memtable/mod.rs"]
mod memtable;

use crate::base::cursor::Cursor;
use drumlin_env::Env;
use drumlin_types::{Kind, LogNumber, Seq};
use memtable::Memtable;
use std::sync::Arc;

/// Returns a bijective hash of `n`: distinct keys in random order, without a list.
fn scatter(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Returns a key of sixteen bytes, binary or text, whose random digits are in the first or the second half.
fn key(style: &str, n: u64) -> [u8; 16] {
    let mut key = *b"key-of-16-bytes.";
    match style {
        "binary" => key[..8].copy_from_slice(&scatter(n).to_be_bytes()),
        "text" => key.copy_from_slice(format!("{:016x}", scatter(n)).as_bytes()),
        "common prefix" => {
            key.copy_from_slice(format!("user{:012}", scatter(n) % 1_000_000_000_000).as_bytes())
        }
        _ => key[8..].copy_from_slice(&n.to_be_bytes()),
    }
    key
}

fn measure(label: &str, operations: u64, run: impl FnOnce()) {
    let environment = Env::os();
    let start = environment.clock().monotonic_nanos();
    run();
    let nanos = environment.clock().monotonic_nanos() - start;
    println!("  {label:<24} {:7.0} ns", nanos as f64 / operations as f64);
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let entries = numbers.first().copied().unwrap_or(500_000);
    let value = vec![7u8; numbers.get(1).copied().unwrap_or(100) as usize];
    for style in ["binary", "text", "common prefix", "sequential"] {
        println!("{entries} entries, {style} keys of 16 bytes, values of {} bytes", value.len());
        let table = Arc::new(Memtable::new(LogNumber(1), 42));
        let keys: Vec<[u8; 16]> = (0..entries).map(|n| key(style, n)).collect();
        let order: Vec<usize> = (0..entries).map(|n| (scatter(n ^ 0xabcd) % entries) as usize).collect();
        measure("insert", entries, || {
            for (n, key) in keys.iter().enumerate() {
                table.insert(key, 1 + n as Seq, Kind::Put, &value);
            }
        });
        measure("get", entries, || {
            let found = order.iter().filter(|&&n| table.get(&keys[n], Seq::MAX).is_some()).count();
            assert_eq!(found as u64, entries);
        });
        let mut cursor = table.cursor();
        measure("next", entries, || {
            cursor.seek_first().expect("in memory");
            let mut bytes = 0;
            while cursor.valid() {
                bytes += cursor.value().len();
                cursor.next().expect("in memory");
            }
            assert_eq!(bytes as u64, entries * value.len() as u64);
        });
        measure("prev", entries / 4, || {
            cursor.seek_last().expect("in memory");
            for _ in 0..entries / 4 {
                cursor.prev().expect("in memory");
            }
        });
        println!("  {:<24} {:7.1} bytes", "memory per entry", table.held_bytes() as f64 / entries as f64);
    }
    two_threads(entries, &value);
}

#[expect(clippy::disallowed_methods, reason = "a measurement of real threads")]
fn two_threads(entries: u64, value: &[u8]) {
    println!("{entries} entries by two threads, binary keys");
    let table = Memtable::new(LogNumber(1), 42);
    measure("insert, wall", entries, || {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let table = &table;
                scope.spawn(move || {
                    for n in (thread..entries).step_by(2) {
                        table.insert(&key("binary", n), 1 + n, Kind::Put, value);
                    }
                });
            }
        });
    });
}
