//! Damaged tables and failing disks: the truth or an error, never anything else.

use super::*;
use crate::cursor::Cursor;

/// What a table says about everything.
#[derive(PartialEq, Debug)]
struct Answers {
    entries: Vec<(Vec<u8>, Seq, Kind, Vec<u8>)>,
    gets: Vec<Option<Found>>,
    ranks: Vec<u64>,
    covering: Vec<Seq>,
}

fn answers(table: &Arc<Table>, keys: &[Vec<u8>]) -> Result<Answers, Error> {
    let mut entries = Vec::new();
    let mut cursor = table.cursor(CursorOptions::MERGE);
    cursor.seek_first()?;
    while cursor.valid() {
        entries.push((cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec()));
        cursor.next()?;
    }
    let gets = keys.iter().map(|key| table.get(key, hash(key), 500)).collect::<Result<_, _>>()?;
    let ranks = keys.iter().map(|key| table.rank(key)).collect::<Result<_, _>>()?;
    let covering = keys.iter().map(|key| table.range_tombstones().covering(key, 500)).collect();
    Ok(Answers { entries, gets, ranks, covering })
}

fn small() -> (Fixture, Vec<Vec<u8>>) {
    let versions = Draw(3).versions(25);
    let tombstones = [(range(b"m", Some(b"q")), 400)];
    let filter = FilterSpec { bits_per_key: 8.0, modules: 2 };
    let fixture = Fixture::write(&versions, &tombstones, options(200, Compression::Lz4), filter);
    (fixture, keys_around(&versions))
}

#[test]
fn each_damaged_byte_gives_the_truth_or_an_error() {
    let (fixture, keys) = small();
    let truth = answers(&fixture.open(1 << 20).expect("sound"), &keys).expect("sound");
    let good = fixture.mem.peek(&fixture.path).expect("there");
    let filters = &fixture.summary.properties.filter.modules;
    let filter_bytes = filters[1].offset..filters[0].offset + filters[0].lines * 64 + 5;
    for (place, &byte) in good.iter().enumerate() {
        for mask in [0x01, 0x80, 0xff] {
            fixture.mem.patch(&fixture.path, place as u64, &[byte ^ mask]);
            let what = format!("byte {place} xor {mask:#x}");
            match fixture.open(1 << 20).and_then(|table| Ok((answers(&table, &keys)?, table))) {
                Ok((got, table)) => {
                    assert_eq!(got, truth, "{what}");
                    assert!(filter_bytes.contains(&(place as u64)), "{what} passes unnoticed");
                    // The second module need not have been read yet.
                    assert!(table.has_damaged_filter() || (place as u64) < filters[0].offset, "{what}");
                    assert!(table.verify().expect_err(&what).is_corruption());
                }
                Err(error) => {
                    assert!(error.is_corruption(), "{what}: {error}");
                    assert_eq!(error.path(), Some(&*fixture.path));
                    assert!(error.offset().expect("an offset") <= place as u64);
                }
            }
            if let Ok(table) = fixture.open(0) {
                assert!(table.verify().is_err(), "{what}");
            }
        }
        fixture.mem.patch(&fixture.path, place as u64, &[byte]);
    }
    fixture.open(0).expect("sound").verify().expect("sound again");
}

#[test]
fn each_truncation_is_an_error() {
    let (fixture, _) = small();
    let good = fixture.mem.peek(&fixture.path).expect("there");
    for len in (0..good.len() as u64).rev() {
        fixture.mem.truncate_file(&fixture.path, len);
        let error = fixture.open(1 << 20).err().expect("cut");
        assert!(error.is_corruption(), "cut to {len}: {error}");
        let cache = Arc::new(BlockCache::new(0));
        let error = Table::open(&fixture.mem.env(), &fixture.path, ID, len, cache, SEED).err().expect("cut");
        assert!(error.is_corruption(), "cut to {len} and believed: {error}");
    }
}

#[test]
fn a_table_under_another_number_is_an_error() {
    let (fixture, _) = small();
    let cache = Arc::new(BlockCache::new(0));
    let len = fixture.summary.file_len;
    let error = Table::open(&fixture.mem.env(), &fixture.path, TableId(13), len, cache, SEED).err();
    assert!(error.expect("swapped").is_corruption());
}

#[test]
fn swapped_blocks_are_an_error() {
    let mut versions = Versions::new();
    for i in 0..64u32 {
        versions.insert((i.to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![0; 20]));
    }
    let fixture = Fixture::write(&versions, &[], options(200, Compression::None), FilterSpec::from(0.0));
    let table = fixture.open(0).expect("sound");
    let mut fences = super::super::fences::FenceCursor::default();
    fences.seek_first(&table).expect("sound");
    let first = fences.fence().expect("there");
    fences.next(&table).expect("sound");
    let second = fences.fence().expect("there");
    assert_eq!(first.sealed_len, second.sealed_len);
    let good = fixture.mem.peek(&fixture.path).expect("there");
    let (a, b) = good.split_at(second.offset as usize);
    fixture.mem.patch(&fixture.path, 0, &b[..first.sealed_len as usize]);
    fixture.mem.patch(&fixture.path, second.offset, a);
    let key = 0u32.to_be_bytes();
    assert!(table.get(&key, hash(&key), 9).expect_err("swapped").is_corruption());
}

#[test]
fn each_failed_read_surfaces_and_stays() {
    let (fixture, keys) = small();
    let run = || -> Result<Answers, Error> { answers(&fixture.open(1 << 20)?, &keys) };
    let start = fixture.mem.io_index();
    let truth = run().expect("sound");
    let calls = fixture.mem.io_index() - start;
    let mut errors = 0;
    for index in 0..calls {
        fixture.mem.fail_at(fixture.mem.io_index() + index, 5);
        // A filter that cannot be read costs nothing but time.
        match run() {
            Ok(got) => assert_eq!(got, truth),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                errors += 1;
            }
        }
        fixture.mem.clear_faults();
    }
    assert!(errors > 5 && errors + 1 >= calls, "{errors} of {calls}");
}

#[test]
fn a_cursor_keeps_its_error() {
    let versions = Draw(3).versions(100);
    let fixture = Fixture::write(&versions, &[], options(200, Compression::None), FilterSpec::from(0.0));
    let table = fixture.open(1 << 20).expect("sound");
    let mut cursor = table.cursor(CursorOptions { fill_cache: true, readahead: 0 });
    cursor.seek_first().expect("sound");
    fixture.mem.fail_at(fixture.mem.io_index(), 5);
    let mut moves = 0;
    let error = loop {
        moves += 1;
        match cursor.next() {
            Ok(()) => assert!(cursor.valid() && moves < 100),
            Err(error) => break error,
        }
    };
    fixture.mem.clear_faults();
    assert!(!cursor.valid());
    let again = [
        cursor.next(),
        cursor.prev(),
        cursor.seek_first(),
        cursor.seek_last(),
        cursor.seek(b"", 1),
        cursor.seek_before(b""),
    ];
    for outcome in again {
        assert_eq!(outcome.expect_err("kept").to_string(), error.to_string());
    }
    assert!(!cursor.valid());
    table.cursor(CursorOptions::SCAN).seek_first().expect("another cursor is not concerned");
}
