//! Tests of damaged tables and failing disks: each read returns the correct result or an error.

use super::*;
use crate::base::cursor::Cursor;
use crate::base::error::ErrorKind;
use drumlin_format::seal::{SEAL_LEN, seal};
use drumlin_format::table::{FOOTER_LEN, Footer};

/// Results of all kinds of reads of a table.
#[derive(PartialEq, Debug)]
struct Answers {
    entries: Vec<(Vec<u8>, Seq, Kind, Vec<u8>)>,
    gets: Vec<Option<LookupHit>>,
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
    let filter = FilterSpec::bloom(8.0, 2);
    let fixture = Fixture::write(&versions, &tombstones, options(200, Compression::Lz4), filter);
    (fixture, keys_around(&versions))
}

#[test]
fn each_damaged_byte_gives_the_truth_or_an_error() {
    let (fixture, keys) = small();
    let warm = fixture.open(1 << 20).expect("sound");
    let truth = answers(&warm, &keys).expect("sound");
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
                    // The second module may not have been read yet.
                    assert!(table.has_damaged_filter() || (place as u64) < filters[0].offset, "{what}");
                    assert!(table.verify().expect_err(&what).is_corruption());
                }
                Err(error) => {
                    assert!(error.is_corruption(), "{what}: {error}");
                    assert_eq!(error.path(), Some(&*fixture.path));
                    assert!(error.offset().expect("an offset") <= place as u64);
                }
            }
            assert!(warm.verify().expect_err(&what).is_corruption());
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
        let error = fixture.open(1 << 20).map(|_| ()).expect_err("cut");
        assert!(error.is_corruption(), "cut to {len}: {error}");
        let cache = Arc::new(BlockCache::new(0));
        let error = Table::open(&fixture.mem.env(), &fixture.path, ID, len, cache, SEED)
            .map(|_| ())
            .expect_err("cut");
        assert!(error.is_corruption(), "cut to {len} and believed: {error}");
    }
}

/// Returns the ranges of all sealed blocks of a table.
fn sealed_blocks(fixture: &Fixture, table: &Table) -> Vec<std::ops::Range<usize>> {
    let properties = table.properties();
    let mut blocks = Vec::new();
    let mut fences = super::super::fences::FenceCursor::default();
    fences.seek_first(table).expect("sound");
    while let Some(fence) = fences.fence() {
        blocks.push(fence.offset as usize..fence.end() as usize);
        fences.next(table).expect("sound");
    }
    let root = table.root.view();
    for number in 0..if root.level() == 1 { root.count() } else { 0 } {
        let fence = root.fence(number).expect("sound");
        blocks.push(fence.offset as usize..fence.end() as usize);
    }
    let good = fixture.mem.peek(&fixture.path).expect("there");
    let footer = &good[good.len() - FOOTER_LEN..];
    let footer = Footer::decode(footer, ID.0, good.len() as u64).expect("sound");
    let limit = (good.len() - FOOTER_LEN) as u64;
    let handles = [footer.properties, footer.root].into_iter();
    let handles = handles.chain(properties.tombstones.as_ref().map(|(handle, _)| *handle));
    let handles = handles.chain(properties.filter.modules.iter().filter_map(|m| m.handle(limit)));
    blocks.extend(handles.map(|handle| handle.offset as usize..handle.end() as usize));
    blocks
}

/// Replaces the block at `offset` by `sealed`, with a matching seal.
fn plant(fixture: &Fixture, offset: u64, mut sealed: Vec<u8>) {
    let stored = sealed.len() - SEAL_LEN;
    let method = Compression::from_u8(sealed[stored] % 3).expect("below 3");
    let seal = seal(ID.0, offset, &sealed[..stored], method);
    sealed[stored..].copy_from_slice(&seal);
    fixture.mem.patch(&fixture.path, offset, &sealed);
}

/// Changes one byte of the block at `offset` and makes the seal match. `len` includes the seal.
fn forge(fixture: &Fixture, offset: u64, len: usize, place: usize, change: impl Fn(u8) -> u8) {
    let file = fixture.mem.peek(&fixture.path).expect("there");
    let mut sealed = file[offset as usize..offset as usize + len].to_vec();
    sealed[place] = change(sealed[place]);
    plant(fixture, offset, sealed);
}

fn numbered(count: u32) -> Versions {
    (0..count).map(|i| ((i.to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![0; 20]))).collect()
}

/// Applies a forgery under a matching checksum and returns the error of `verify`.
fn verdict(forgery: impl Fn(&Fixture, &Table)) -> String {
    let filter = FilterSpec::bloom(8.0, 2);
    let fixture = Fixture::write(&numbered(64), &[], options(200, Compression::None), filter);
    let table = fixture.open(0).expect("sound");
    table.verify().expect("sound");
    forgery(&fixture, &table);
    let outcome = fixture.open(0).and_then(|table| table.verify());
    outcome.expect_err("a forgery").to_string()
}

#[test]
fn verify_finds_what_checksums_cannot() {
    let in_first_block = |place: usize| {
        move |fixture: &Fixture, table: &Table| {
            let mut fences = super::super::fences::FenceCursor::default();
            fences.seek_first(table).expect("sound");
            let fence = fences.fence().expect("there");
            forge(fixture, fence.offset, fence.sealed_len as usize, place, |byte| byte ^ 1);
        }
    };
    assert!(verdict(in_first_block(17)).contains("hash tag does not match"));
    assert!(verdict(in_first_block(8)).contains("sequence numbers differ"));
    let in_root = |place: fn(usize) -> usize, change: fn(u8) -> u8| {
        move |fixture: &Fixture, table: &Table| {
            let place = place(table.root.view().count());
            forge(fixture, table.root_offset, table.root.bytes() + SEAL_LEN, place, change);
        }
    };
    // The second ordinal; then the first and the second separator, each with its head.
    assert!(
        verdict(in_root(|count| 32 + 8 * count + 16 + 4, |byte| byte + 1))
            .contains("wrong offset or entry number")
    );
    assert!(verdict(in_root(|_| 32 + 7, |byte| byte - 1)).contains("head of a fence"));
    let separator = |change: fn(u8) -> u8| {
        move |fixture: &Fixture, table: &Table| {
            let len = table.root.bytes() + SEAL_LEN;
            let (count, common) = (table.root.view().count(), table.root.view().common().len());
            assert_eq!(table.root.view().separator_rest(1).expect("sound").len(), 1);
            forge(fixture, table.root_offset, len, 32 + 8 + 7, change);
            forge(fixture, table.root_offset, len, 32 + 24 * count + common + 1, change);
        }
    };
    assert!(verdict(separator(|byte| byte - 1)).contains("last key does not fit"));
    assert!(verdict(separator(|byte| byte + 1)).contains("first key of the block is not above"));
    for number in 0..2 {
        let clear = |fixture: &Fixture, table: &Table| {
            let module = table.properties().filter.modules[number];
            plant(fixture, module.offset, vec![0; module.lines as usize * 64 + SEAL_LEN]);
        };
        assert!(verdict(clear).contains("filter excludes a key"));
    }
}

#[test]
fn a_fence_cannot_make_a_reader_allocate_at_will() {
    let error = verdict(|fixture, table| {
        let len = table.root.bytes() + SEAL_LEN;
        // The top byte of the end offset of the last block.
        let count = table.root.view().count();
        forge(fixture, table.root_offset, len, 32 + 8 * count + 16 * (count - 1) + 3, |_| 0x7f);
    });
    assert!(error.contains("outside the data blocks"), "{error}");
}

#[test]
fn a_damaged_filter_is_tried_once() {
    let (fixture, keys) = small();
    let table = fixture.open(1 << 20).expect("sound");
    let truth = answers(&table, &keys).expect("sound");
    // Damages the second module, because the first is in memory.
    let module = fixture.summary.properties.filter.modules[1];
    fixture.mem.patch(&fixture.path, module.offset, &[0xff; 3]);
    let table = fixture.open(1 << 20).expect("sound");
    for _ in 0..4 {
        assert_eq!(answers(&table, &keys).expect("the data is sound"), truth);
    }
    assert!(table.has_damaged_filter());
    let before = fixture.mem.io_index();
    answers(&table, &keys).expect("the data is sound");
    let reads = fixture.mem.io_index() - before;
    assert!(reads < 5, "the cursor's, and none for the filter: {reads}");
}

/// An attacker can forge checksums. The results may be wrong then, but no read may panic or run without bound.
#[test]
fn damage_under_a_fitting_checksum_does_no_harm() {
    let mut versions = Draw(3).versions(40);
    for i in 0..2500u32 {
        let key = format!("user/{i:06}/and-so-on-so-that-hardly-two-fit-into-a-block").into_bytes();
        versions.insert((key, Reverse(1)), (Kind::Put, Vec::new()));
    }
    let tombstones = [(range(b"m", Some(b"q")), 400)];
    let filter = FilterSpec::bloom(4.0, 2);
    let fixture = Fixture::write(&versions, &tombstones, options(100, Compression::Lz4), filter);
    let table = fixture.open(0).expect("sound");
    assert_eq!(table.root.view().level(), 1);
    let blocks = sealed_blocks(&fixture, &table);
    let good = fixture.mem.peek(&fixture.path).expect("there");
    assert_eq!(blocks.iter().map(|block| block.len()).sum::<usize>() + FOOTER_LEN, good.len());
    let keys: Vec<Vec<u8>> = keys_around(&versions).into_iter().step_by(97).collect();
    let mut draw = Draw(9);
    let mut opened = 0;
    let data_blocks = table.properties().data_blocks;
    for round in 0..600 {
        // Every other round damages one of the few blocks that all others depend on.
        let first = if round % 2 == 0 { data_blocks } else { 0 };
        let block = blocks[(first + draw.next(blocks.len() as u64 - first)) as usize].clone();
        let mut bad = good[block.clone()].to_vec();
        let stored = bad.len() - SEAL_LEN;
        for _ in 0..1 + draw.next(3) {
            let place = draw.next(stored.min(64) as u64 + 1) as usize;
            bad[place.min(stored)] = [0, 1, 2, 0x7f, 0x80, 0xff][draw.next(6) as usize];
        }
        plant(&fixture, block.start as u64, bad);
        if let Ok(table) = fixture.open(1 << 20) {
            opened += 1;
            let _ = answers(&table, &keys);
            let _ = table.verify();
            let mut cursor = table.cursor(CursorOptions::SCAN);
            for key in &keys {
                let _ = table.approximate_bytes(&range(key, None));
                let _ = cursor.seek_before(key);
            }
            let mut cursor = table.cursor(CursorOptions::SCAN);
            let mut outcome = cursor.seek_last();
            while outcome.is_ok() && cursor.valid() {
                outcome = cursor.prev();
            }
        }
        fixture.mem.patch(&fixture.path, block.start as u64, &good[block]);
    }
    assert!((200..600).contains(&opened), "{opened}");
}

/// Damaged neighbours among the partitions of an index cost no entries: the data blocks of all of them are found
/// without the index.
#[test]
fn neighbouring_partitions_that_are_damaged_cost_no_entries() {
    let key = |i: u32| format!("user/{i:06}/and-so-on-so-that-hardly-two-fit-into-a-block").into_bytes();
    let versions: Versions = (0..9000).map(|i| ((key(i), Reverse(1)), (Kind::Put, vec![1]))).collect();
    let fixture = Fixture::write(&versions, &[], options(100, Compression::None), FilterSpec::from(4.0));
    let places: Vec<u64> = {
        let table = fixture.open(0).expect("sound");
        let view = table.root.view();
        assert_eq!(view.level(), 1);
        (0..view.count()).map(|number| view.fence(number).expect("sound").offset).collect()
    };
    let last = places.len() - 1;
    assert!(last >= 5, "{last}");
    for damaged in [vec![0, 1], vec![1, 2], vec![1, 2, 3, 5], vec![last - 1, last], (0..=last).collect()] {
        let good = fixture.mem.peek(&fixture.path).expect("there");
        for &number in &damaged {
            let at = places[number] + 10;
            fixture.mem.patch(&fixture.path, at, &[good[at as usize] ^ 0xff]);
        }
        let mut salvage = Salvage::open(&fixture.mem.env(), &fixture.path, ID).expect("a file");
        let found: Vec<Vec<u8>> = core::iter::from_fn(|| salvage.next()).map(|version| version.key).collect();
        assert!(found.iter().eq(versions.keys().map(|(key, _)| key)), "{damaged:?}: {} found", found.len());
        assert_eq!(salvage.losses.len(), damaged.len(), "{damaged:?}");
        assert!(salvage.losses.iter().all(|loss| loss.entries == Some(0)), "{:?}", salvage.losses);
        fixture.mem.patch(&fixture.path, 0, &good);
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
    let fixture = Fixture::write(&numbered(64), &[], options(200, Compression::None), FilterSpec::from(0.0));
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
        // A filter that cannot be read costs only time.
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
    let mut cursor = table.cursor(CursorOptions { readahead: 0, ..CursorOptions::SCAN });
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

#[test]
fn entries_outside_the_recorded_sequence_numbers_are_damage() {
    let (fixture, _) = small();
    let table = fixture.open(0).expect("sound");
    let (min, max) = (table.properties().min_seq, table.properties().max_seq);
    let scan = |min, max| -> Result<usize, Error> {
        let mut cursor = table.cursor(CursorOptions::MERGE).within(min, max);
        cursor.seek_first()?;
        let mut entries = 0;
        while cursor.valid() {
            entries += 1;
            cursor.next()?;
        }
        Ok(entries)
    };
    assert_eq!(scan(min, max).expect("sound"), fixture.summary.properties.entries as usize);
    // The tombstone at 400 is the newest; the entries end before it.
    assert_eq!(max, 400);
    for (min, max) in [(min + 1, max), (min, min), (max, max)] {
        let error = scan(min, max).expect_err("an entry lies outside");
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("outside the range recorded"), "{error}");
    }
    table.check_tombstones(min, max).expect("sound");
    let error = table.check_tombstones(min, max - 1).expect_err("the tombstone is newer");
    assert_eq!(error.kind(), ErrorKind::Corruption);
}
