//! Tests of lookups, ranks, sizes and cursors.

use super::super::filter::BYTES_PER_MISS;
use super::super::read_ahead::known_length;
use super::*;
use crate::base::cursor::Cursor;
use drumlin_format::filter::Method;

/// Creates a table with keys 0, 1, ... and values of `value_bytes`, in blocks of 4 KiB without a filter.
fn numbered(entries: u32, value_bytes: usize, compression: Compression) -> Fixture {
    let entry = |i: u32| ((i.to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![i as u8; value_bytes]));
    let versions: Versions = (0..entries).map(entry).collect();
    Fixture::write(&versions, &[], options(4096, compression), FilterSpec::from(0.0))
}

/// Runs `check` for each combination of block length, compression, filter and cache.
fn for_each_shape(count: usize, check: impl Fn(&Versions, &Fixture, &Arc<Table>, &mut Draw)) {
    let shapes = [
        (64, Compression::None, 10.0, 1, 0),
        (200, Compression::Lz4, 2.0, 3, 1 << 20),
        (200, Compression::Zstd, 0.0, 1, 8 << 10),
        (4096, Compression::None, 6.0, 2, 64 << 20),
    ];
    for (number, (block_bytes, compression, bits_per_key, modules, cache)) in shapes.into_iter().enumerate() {
        for seed in 0..4 {
            let mut draw = Draw(number as u64 * 100 + seed);
            let versions = draw.versions(count);
            let filter = FilterSpec::bloom(bits_per_key, modules);
            let fixture = Fixture::write(&versions, &[], options(block_bytes, compression), filter);
            let table = fixture.open(cache).expect("sound");
            table.verify().expect("sound");
            check(&versions, &fixture, &table, &mut draw);
        }
    }
}

#[test]
fn lookups_agree_with_the_map() {
    for_each_shape(300, |versions, _, table, draw| {
        for key in keys_around(versions) {
            for snapshot in [0, draw.next(400), draw.next(1500), Seq::MAX] {
                let expected: Vec<LookupHit> = versions
                    .range((key.clone(), Reverse(snapshot))..)
                    .take_while(|((k, _), _)| *k == key)
                    .map(|((_, Reverse(seq)), (kind, value))| LookupHit {
                        seq: *seq,
                        kind: *kind,
                        value: value.clone().into(),
                    })
                    .collect();
                assert_eq!(table.get(&key, hash(&key), snapshot).expect("sound").as_ref(), expected.first());
                let mut all = Vec::new();
                let outcome = table.lookup(&key, hash(&key), snapshot, false, |found| {
                    all.push(found);
                    true
                });
                assert_eq!(all, expected);
                let outcome = outcome.expect("sound");
                assert_eq!(outcome == Lookup::Found, !expected.is_empty());
                if outcome == Lookup::Denied {
                    assert!(table.properties().filter.bits_per_key() > 0.0);
                }
            }
        }
    });
}

#[test]
fn a_ribbon_filter_rejects_as_built() {
    let entry = |i: u32| (((2 * i).to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![1; 20]));
    let versions: Versions = (0..5000).map(entry).collect();
    for modules in [1, 2] {
        let filter = FilterSpec { bits_per_key: 6.0, modules, method: Method::Ribbon };
        let fixture = Fixture::write(&versions, &[], options(4096, Compression::None), filter);
        let built = &fixture.summary.properties.filter;
        assert_eq!((built.method(), built.modules.len()), (Some(Method::Ribbon), modules));
        let rate = built.false_positive_rate;
        assert!(rate < 0.03, "a Bloom filter of this size has 0.058: {rate}");
        let table = fixture.open(1 << 20).expect("sound");
        table.verify().expect("sound");
        let (mut passed, mut found) = (0, 0);
        for i in 0..10_000u32 {
            let key = i.to_be_bytes();
            match table.lookup(&key, hash(&key), Seq::MAX, false, |_| true).expect("sound") {
                Lookup::Found => found += 1,
                Lookup::Denied => {}
                _ => passed += 1,
            }
        }
        assert_eq!(found, 5000, "no key is denied");
        let expected = rate * 5000.0;
        assert!((f64::from(passed) - expected).abs() < 5.0 * expected.sqrt() + 5.0, "{passed} of {expected}");
    }
    let few: Versions = (0..100).map(entry).collect();
    let filter = FilterSpec { bits_per_key: 6.0, modules: 1, method: Method::Ribbon };
    let fixture = Fixture::write(&few, &[], options(4096, Compression::None), filter);
    assert_eq!(fixture.summary.properties.filter.method(), Some(Method::Bloom), "too few keys");
}

#[test]
fn a_filter_saves_reads() {
    let mut versions = Versions::new();
    for i in 0..2000u32 {
        versions.insert((i.to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![1; 20]));
    }
    let fixture = Fixture::write(&versions, &[], options(4096, Compression::None), FilterSpec::from(10.0));
    let table = fixture.open(1 << 20).expect("sound");
    let before = fixture.mem.io_index();
    let absent = (10_000..20_000u32).map(|i| i.to_be_bytes());
    let denied = absent.filter(|k| table.get(k, hash(k), 9).expect("sound").is_none()).count();
    assert_eq!(denied, 10_000);
    // One key in a hundred passes the filter; all of those lie after the last separator. The module was read with the
    // tail.
    assert_eq!(fixture.mem.io_index(), before);
    let mut passed = 0;
    for i in 0..10_000u32 {
        let key = [&(i / 5).to_be_bytes()[..], &[i as u8]].concat();
        passed +=
            u32::from(table.lookup(&key, hash(&key), 9, false, |_| false).expect("sound") != Lookup::Denied);
    }
    assert!((50..200).contains(&passed), "{passed}");
}

#[test]
fn hashes_of_another_seed_are_made_again() {
    let versions = Draw(5).versions(100);
    let fixture = Fixture::write(&versions, &[], options(200, Compression::None), FilterSpec::from(10.0));
    let cache = Arc::new(BlockCache::new(1 << 20));
    let len = fixture.summary.file_len;
    let table = Table::open(&fixture.mem.env(), &fixture.path, ID, len, cache, 77).expect("sound");
    for (key, _) in versions.keys() {
        assert!(table.get(key, key_hash(key, 77), Seq::MAX).expect("sound").is_some());
    }
}

#[test]
fn ranks_are_exact() {
    for_each_shape(300, |versions, fixture, table, _| {
        for key in keys_around(versions) {
            let rank = versions.range(..(key.clone(), Reverse(Seq::MAX))).count() as u64;
            let before = fixture.mem.io_index();
            assert_eq!(table.rank(&key).expect("sound"), rank);
            assert!(fixture.mem.io_index() <= before + 2, "a partition and a data block at most");
            assert_eq!(table.entries_in(&range(&key, None)).expect("sound"), versions.len() as u64 - rank);
        }
    });
}

#[test]
fn sizes_add_up() {
    for_each_shape(300, |versions, _, table, draw| {
        let size = |range: &KeyRange| table.approximate_bytes(range).expect("sound");
        assert_eq!(size(&KeyRange::all()), table.file_len());
        let keys = keys_around(versions);
        for _ in 0..20 {
            let cut = &keys[draw.next(keys.len() as u64) as usize];
            let parts = size(&range(b"", Some(cut))) + size(&range(cut, None));
            assert!(table.file_len() - parts <= 1);
        }
    });
}

/// Moves a cursor and an index into the sorted list in the same random way.
fn walk(versions: &Versions, table: &Arc<Table>, draw: &mut Draw, options: CursorOptions) {
    let list: Vec<_> = versions.iter().collect();
    let keys = keys_around(versions);
    let mut cursor = table.cursor(options);
    assert!(!cursor.valid());
    let mut at: Option<usize> = None;
    for _ in 0..600 {
        let key = &keys[draw.next(keys.len() as u64) as usize];
        let seq = [0, draw.next(1000), Seq::MAX][draw.next(3) as usize];
        let moves = if at.is_some() { 30 } else { 4 };
        at = match draw.next(moves) {
            0 => cursor.seek_first().map(|()| (!list.is_empty()).then_some(0)),
            1 => cursor.seek_last().map(|()| list.len().checked_sub(1)),
            2 => cursor.seek(key, seq).map(|()| {
                let before = versions.range(..(key.clone(), Reverse(seq))).count();
                (before < list.len()).then_some(before)
            }),
            3 => cursor
                .seek_before(key)
                .map(|()| versions.range(..(key.clone(), Reverse(Seq::MAX))).count().checked_sub(1)),
            n if n % 3 == 0 => cursor.prev().map(|()| at.and_then(|at| at.checked_sub(1))),
            _ => cursor.next().map(|()| at.map(|at| at + 1).filter(|&at| at < list.len())),
        }
        .expect("sound");
        assert_eq!(cursor.valid(), at.is_some());
        if let Some(at) = at {
            let ((key, Reverse(seq)), (kind, value)) = list[at];
            assert_eq!((cursor.key(), cursor.seq(), cursor.kind()), (&key[..], *seq, *kind));
            assert_eq!(cursor.value(), &value[..]);
            assert_eq!(cursor.value_slice(), value[..]);
        }
    }
}

#[test]
fn cursors_agree_with_the_map() {
    for_each_shape(300, |versions, _, table, draw| {
        for readahead in [0, 100, 1000, 1 << 20] {
            for (fill_cache, first) in [(false, 0), (true, 0), (false, 300), (true, 32 << 10)] {
                walk(
                    versions,
                    table,
                    draw,
                    CursorOptions { fill_cache, readahead, first, hands_over: !fill_cache },
                );
            }
        }
    });
}

#[test]
fn merges_read_ahead_and_leave_the_cache_alone() {
    let fixture = numbered(20_000, 100, Compression::Lz4);
    let table = fixture.open(64 << 20).expect("sound");
    let count = |options| {
        let (reads, blocks) = (fixture.mem.io_index(), table.cache.stats().blocks);
        let mut cursor = table.cursor(options);
        cursor.seek_first().expect("sound");
        let mut entries = 0;
        while cursor.valid() {
            entries += 1;
            cursor.next().expect("sound");
        }
        assert_eq!(entries, 20_000);
        (fixture.mem.io_index() - reads, table.cache.stats().blocks - blocks)
    };
    let data_blocks = table.properties().data_blocks;
    let (reads, filled) = count(CursorOptions::MERGE);
    assert!(reads < 10, "{reads}");
    assert_eq!(filled, 0);
    let (reads, filled) = count(CursorOptions { readahead: 0, ..CursorOptions::SCAN });
    assert_eq!((reads, filled), (data_blocks, data_blocks));
    assert_eq!(count(CursorOptions::SCAN), (0, 0));
    // Compactions also use cached blocks.
    assert_eq!(count(CursorOptions::MERGE), (0, 0));
}

#[test]
fn scans_read_ahead_by_whole_blocks_and_little_in_vain() {
    let fixture = numbered(8000, 1000, Compression::None);
    let table = fixture.open(64 << 20).expect("sound");
    fixture.mem.set_io_cost(0, 1_000_000);
    // Returns the number of reads and the KiB read by a scan.
    let scan = |from: u32, entries: u32, options| {
        let clock = || fixture.mem.env().clock().monotonic_micros();
        let before = (fixture.mem.io_index(), clock());
        let mut cursor = table.cursor(options);
        cursor.seek(&from.to_be_bytes(), 9).expect("sound");
        for _ in 1..entries {
            cursor.next().expect("sound");
        }
        assert!(cursor.valid());
        (fixture.mem.io_index() - before.0, (clock() - before.1) as f64 / 1000.0)
    };
    // A block holds four entries. The scan reads one block, then one, two, and four.
    let cold = [(0, 1, (1, 4.0)), (1000, 8, (2, 8.0)), (2000, 16, (3, 16.0)), (3000, 32, (4, 32.0))];
    for (from, entries, (reads, kib)) in cold {
        let found = scan(from, entries, CursorOptions::SCAN);
        assert_eq!(found.0, reads, "{entries}: {found:?}");
        assert!((found.1 - kib).abs() <= 0.1 * kib, "{entries}: {found:?}");
    }
    // The estimated scan length makes scans read one block, then the rest. One scan of everything does not extend it.
    let taken = |from: u32, entries| {
        (from..)
            .step_by(200)
            .take(10)
            .map(|from| scan(from, entries, CursorOptions::SCAN))
            .collect::<Vec<_>>()
    };
    taken(4000, 20);
    taken(4004, 20);
    scan(6000, 1500, CursorOptions::SCAN);
    let found = taken(4100, 20);
    let (reads, kib) = found.iter().fold((0, 0.0), |(reads, kib), one| (reads + one.0, kib + one.1));
    assert!(reads <= 24 && (kib - 200.0).abs() <= 20.0, "{found:?}");
    let length = known_length(&table);
    let mut cursor = table.cursor(CursorOptions::SCAN);
    cursor.seek_before(&3800u32.to_be_bytes()).expect("sound");
    for _ in 0..300 {
        cursor.prev().expect("sound");
    }
    drop(cursor);
    assert_eq!(known_length(&table), length, "blocks that were read backward");
    let (reads, kib) = scan(0, 8000, CursorOptions::MERGE);
    let all = table.properties().data_bytes as f64 / 1024.0;
    assert!(reads < 20 && kib <= 1.001 * all, "{reads} reads of {kib} KiB of {all}");
}

#[test]
fn scans_cache_blocks_one_by_one() {
    let fixture = numbered(5000, 100, Compression::None);
    let table = fixture.open(64 << 20).expect("sound");
    let mut cursor = table.cursor(CursorOptions::SCAN);
    cursor.seek_first().expect("sound");
    while cursor.valid() {
        cursor.next().expect("sound");
    }
    let stats = table.cache.stats();
    assert_eq!(stats.blocks, table.properties().data_blocks);
    assert!(stats.bytes < table.file_len() * 11 / 10, "no block keeps the read-ahead buffer alive");
}

#[test]
fn jumps_read_one_block_each() {
    let fixture = numbered(5000, 100, Compression::None);
    let table = fixture.open(0).expect("sound");
    let mut cursor = table.cursor(CursorOptions::MERGE);
    fixture.mem.set_io_cost(0, 1_000_000);
    let clock = |mem: &MemEnv| mem.env().clock().monotonic_micros();
    let before = clock(&fixture.mem);
    for i in 0..50u32 {
        cursor.seek(&(i * 1999 % 5000).to_be_bytes(), 9).expect("sound");
    }
    let kib = (clock(&fixture.mem) - before) / 1000;
    assert!(kib <= 50 * 5, "{kib} KiB read for 50 blocks of 4 KiB");
}

#[test]
fn a_filter_that_cannot_stay_is_not_fetched() {
    let mut versions = Versions::new();
    for i in 0..5000u32 {
        versions.insert((i.to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![i as u8; 10]));
    }
    let fixture = Fixture::write(&versions, &[], options(4096, Compression::None), FilterSpec::from(10.0));
    let table = fixture.open(1000).expect("sound");
    let before = fixture.mem.io_index();
    for i in 0..100u32 {
        let key = [&i.to_be_bytes()[..], b"absent"].concat();
        assert_eq!(table.get(&key, hash(&key), 9).expect("sound"), None);
    }
    assert_eq!(fixture.mem.io_index() - before, 100);
}

/// Two filters that do not fit into the cache together are not read at each lookup.
#[test]
fn filters_that_evict_each_other_are_seldom_read() {
    let entry = |i: u32| (((2 * i).to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![1]));
    let versions: Versions = (0..80_000).map(entry).collect();
    let plain = options(4096, Compression::None);
    let write = |id| Fixture::write_as(TableId(id), &versions, &[], plain, FilterSpec::from(20.0));
    let fixtures = [write(12), write(13)];
    let filter_bytes = fixtures[0].summary.properties.filter.bytes();
    assert!((3..4).contains(&(filter_bytes / BYTES_PER_MISS)), "{filter_bytes} bytes");
    let cache = Arc::new(BlockCache::new(filter_bytes as usize * 3 / 2));
    let tables = fixtures.each_ref().map(|fixture| fixture.open_with(&cache).expect("sound"));
    // A KiB takes a millisecond.
    let clock = || fixtures.iter().map(|fixture| fixture.mem.env().clock().monotonic_micros()).sum::<u64>();
    let read = |tables: &[Arc<Table>]| {
        fixtures.iter().for_each(|fixture| fixture.mem.set_io_cost(0, 1_000_000));
        let before = clock();
        for i in 0..300u32 {
            let key = ((i * 7919 % 160_000) | 1).to_be_bytes();
            for table in tables {
                assert_eq!(table.get(&key, hash(&key), 9).expect("sound"), None);
            }
        }
        (clock() - before) / 1000 * 1024
    };
    let bytes = read(&tables);
    // One miss in three reads the filter, the others a data block.
    let most = 200 * filter_bytes + 400 * 2 * 4096;
    assert!(bytes <= most, "{bytes} bytes read, {most} expected");
    assert!(bytes >= 100 * filter_bytes, "{bytes}: the filters do not evict each other");
    // A filter that fits is read once.
    let bytes = read(&tables[..1]);
    assert!(bytes < 2 * filter_bytes + 10 * 4096, "{bytes} bytes read");
}

#[test]
fn two_index_levels() {
    let mut versions = Versions::new();
    for i in 0..6000u32 {
        let key = format!("a-rather-long-prefix-of-a-key/{:08}/and-its-end", i * 7).into_bytes();
        versions.insert((key, Reverse(u64::from(i) + 1)), (Kind::Put, vec![i as u8; 4]));
    }
    let fixture = Fixture::write(&versions, &[], options(64, Compression::None), FilterSpec::from(8.0));
    let table = fixture.open(16 << 20).expect("sound");
    assert_eq!(table.root.view().level(), 1);
    let counts = table.verify().expect("sound");
    assert_eq!((counts.entries, counts.keys), (6000, 6000));
    assert_eq!((counts.bytes, counts.checksum), (fixture.summary.file_len, fixture.summary.checksum));
    let mut draw = Draw(1);
    walk(&versions, &table, &mut draw, CursorOptions::SCAN);
    let mut cursor = table.cursor(CursorOptions::SCAN);
    cursor.seek_last().expect("sound");
    for (key, Reverse(seq)) in versions.keys().rev() {
        assert_eq!((cursor.key(), cursor.seq()), (&key[..], *seq));
        cursor.prev().expect("sound");
    }
    assert!(!cursor.valid());
    for (rank, (key, Reverse(seq))) in versions.keys().enumerate() {
        assert_eq!(table.rank(key).expect("sound"), rank as u64);
        assert_eq!(table.get(key, hash(key), Seq::MAX).expect("sound").expect("there").seq, *seq);
    }
}

#[test]
fn range_tombstones_are_kept_in_memory() {
    let tombstones = [(range(b"b", Some(b"f")), 10), (range(b"d", None), 20)];
    let fixture = Fixture::write(
        &Versions::new(),
        &tombstones,
        options(4096, Compression::None),
        FilterSpec::from(8.0),
    );
    let table = fixture.open(0).expect("sound");
    let at = |key: &[u8], snapshot| table.range_tombstones().covering(key, snapshot);
    assert_eq!([at(b"a", 99), at(b"b", 99), at(b"e", 15), at(b"e", 25), at(b"z", 99)], [0, 10, 10, 20, 20]);
    let counts = table.verify().expect("sound");
    assert_eq!((counts.entries, counts.range_tombstones), (0, 2));
    assert_eq!(table.rank(b"x").expect("sound"), 0);
    assert_eq!(table.approximate_bytes(&KeyRange::all()).expect("sound"), 0);
    assert_eq!(table.get(b"b", hash(b"b"), 99).expect("sound"), None);
    let mut cursor = table.cursor(CursorOptions::SCAN);
    for outcome in [cursor.seek_first(), cursor.seek_last(), cursor.seek(b"b", 9), cursor.seek_before(b"b")] {
        outcome.expect("sound");
        assert!(!cursor.valid());
    }
}
