//! Tests of the block cache and the table cache.

use super::super::block::Block;
use super::super::block::{CachedPointer, Pointers};
use super::super::block_cache::MOST_CACHED_VALUE;
use super::super::carry::Carry;
use super::*;
use crate::base::slice::Slice;

fn data_blocks(count: usize) -> (Fixture, Arc<Table>, Vec<(u64, Block)>) {
    let mut versions = Versions::new();
    for i in 0..count as u32 {
        versions.insert((i.to_be_bytes().to_vec(), Reverse(1)), (Kind::Put, vec![i as u8; 1000]));
    }
    let fixture = Fixture::write(&versions, &[], options(1000, Compression::None), FilterSpec::from(0.0));
    let table = fixture.open(0).expect("sound");
    let mut fences = super::super::fences::FenceCursor::default();
    fences.seek_first(&table).expect("sound");
    let mut blocks = Vec::new();
    while let Some(fence) = fences.fence() {
        blocks.push((fence.offset, Block::Data(table.blocks.read_data(&fence).expect("sound"))));
        fences.next(&table).expect("sound");
    }
    (fixture, table, blocks)
}

/// Cache whose readers have no pointers.
struct Plain {
    cache: BlockCache,
    none: Pointers,
}

impl Plain {
    fn new(capacity: usize) -> Plain {
        let cache = BlockCache::new(capacity);
        Plain { none: Pointers::new(0, cache.epochs()), cache }
    }

    fn pointer(&self) -> CachedPointer<'_> {
        self.none.pointer(0)
    }

    fn has(&self, table: TableId, offset: u64) -> bool {
        self.cache.get(table, offset, self.pointer(), &self.cache.epochs().pin()).is_some()
    }

    fn holds(&self, table: TableId, offset: u64) -> bool {
        self.cache.peek(table, offset, self.pointer(), &self.cache.epochs().pin()).is_some()
    }

    fn insert(&self, table: TableId, offset: u64, block: Block) {
        self.cache.insert(table, offset, self.pointer(), block);
    }
}

impl std::ops::Deref for Plain {
    type Target = BlockCache;
    fn deref(&self) -> &BlockCache {
        &self.cache
    }
}

/// When a block is evicted or dropped, its pointer is cleared. `check` reports the number of set pointers.
#[test]
fn what_was_put_in_comes_out_or_is_gone() {
    let (_, _, blocks) = data_blocks(300);
    let cache = BlockCache::new(100_000);
    // Two sets of pointers for the same blocks, as after an index block is read again.
    let sets = [(); 2].map(|()| Pointers::new(1200, cache.epochs()));
    let full = || {
        let pin = cache.epochs().pin();
        let is_set = |set: &Pointers, at| set.pointer(at).borrow(false, &pin).is_some();
        sets.iter().flat_map(|set| (0..1200).filter(|&at| is_set(set, at))).count()
    };
    let mut draw = Draw(1);
    let mut hits = 0;
    for step in 0..20_000 {
        let number = draw.next(300) as usize;
        let (offset, block) = &blocks[number];
        let table = TableId(1 + draw.next(3));
        let pointer = sets[draw.next(2) as usize].pointer(table.0 as usize * 300 + number);
        match draw.next(100) {
            0 => cache.forget_table(table),
            1 => cache.set_memory(draw.next(200_000) as usize),
            2..44 => cache.insert(table, *offset, pointer, block.clone()),
            44..48 => drop(cache.carry(table, *offset, block.clone())),
            48..50 => drop(cache.hand_over(table, *offset)),
            _ => {
                if let Some(got) = cache.get(table, *offset, pointer, &cache.epochs().pin()) {
                    let Block::Data(block) = block else { unreachable!("all are data blocks") };
                    assert_eq!(got.data().expect("a data block").bytes, block.bytes);
                    hits += 1;
                }
            }
        }
        if step % 50 == 0 {
            assert_eq!(full(), cache.check());
        }
    }
    cache.check();
    assert!(hits > 500, "{hits}");
    assert_eq!(cache.stats().hits, hits);
    for table in 1..=3 {
        cache.forget_table(TableId(table));
    }
    let stats = cache.stats();
    assert_eq!((stats.blocks, stats.bytes), (0, 0));
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    let (_, _, blocks) = data_blocks(1000);
    let (hot, cold) = blocks.split_at(50);
    let cache = Plain::new(100 * 1300);
    for _ in 0..3 {
        for (offset, block) in hot {
            if !cache.has(ID, *offset) {
                cache.insert(ID, *offset, block.clone());
            }
        }
    }
    for (offset, block) in cold {
        assert!(!cache.has(ID, *offset));
        cache.insert(ID, *offset, block.clone());
    }
    let kept = hot.iter().filter(|(offset, _)| cache.holds(ID, *offset)).count();
    assert!(kept >= 48, "{kept} of 50 hot blocks survive a scan of 950");
}

#[test]
fn a_block_that_comes_back_is_remembered() {
    let (_, _, blocks) = data_blocks(200);
    let cache = Plain::new(20 * 1300);
    for (offset, block) in &blocks[..30] {
        cache.insert(ID, *offset, block.clone());
    }
    let (offset, block) = &blocks[3];
    assert!(!cache.holds(ID, *offset));
    cache.insert(ID, *offset, block.clone());
    for (offset, block) in &blocks[30..] {
        cache.insert(ID, *offset, block.clone());
    }
    assert!(cache.holds(ID, *offset));
}

#[test]
fn filters_and_indexes_outlive_data() {
    let (_, _, blocks) = data_blocks(500);
    let cache = Plain::new(100_000);
    cache.insert(TableId(9), 7, Block::Filter(Slice::from(vec![1; 20_000])));
    for (number, (offset, block)) in blocks.iter().enumerate() {
        cache.insert(ID, *offset, block.clone());
        cache.has(ID, *offset);
        // Requested about once per three times the cache's capacity of inserted blocks.
        if number % 180 == 0 {
            assert!(cache.has(TableId(9), 7));
        }
    }
    cache.check();
    assert!(cache.stats().evictions > 300);
    assert!(cache.holds(TableId(9), 7));
    cache.set_memory(1000);
    assert!(!cache.holds(TableId(9), 7));
    assert!(!cache.admits(1000) && cache.admits(500));
}

/// Short-lived tables leave nothing behind, not even keys in the queues.
#[test]
fn tables_that_go_are_forgotten_whole() {
    let (_, _, blocks) = data_blocks(40);
    let cache = Plain::new(30 << 20);
    for table in 0..400 {
        for (offset, block) in &blocks {
            cache.insert(TableId(table), *offset, block.clone());
        }
        if table >= 2 {
            cache.forget_table(TableId(table - 2));
        }
        if table % 50 == 0 {
            cache.check();
        }
    }
    let held = |table: u64| blocks.iter().filter(|(at, _)| cache.holds(TableId(table), *at)).count();
    assert_eq!([397, 398, 399].map(held), [0, blocks.len(), blocks.len()]);
    assert_eq!(cache.stats().evictions, 0, "there was room for all of them");
    let names = cache.names();
    assert!(names < 8 * 1024 + 8 * blocks.len(), "{names} names for {} blocks", cache.stats().blocks);
}

/// The bytes that an open table holds grow with its bounds and its list of value files.
#[test]
fn bounds_and_value_files_count_as_held() {
    let table = |key_bytes: usize, value_files: u64| {
        let mut versions = Versions::new();
        for number in 0..100u64 {
            let mut key = number.to_be_bytes().to_vec();
            key.resize(key_bytes, 0);
            let value = pointer(number % value_files, 100);
            versions.insert((key, Reverse(1)), (Kind::PutPointer, value));
        }
        let fixture =
            Fixture::write(&versions, &[], options(1 << 20, Compression::None), FilterSpec::from(0.0));
        fixture.open(1 << 20).expect("sound").held_bytes()
    };
    let plain = table(8, 1);
    // The single block has an index key of its own.
    assert!(table(5008, 1) >= plain + 2 * 5000);
    assert_eq!(table(8, 50), plain + 49 * size_of::<ValueReference>());
}

/// A value is found by file, place and version. It leaves with its file.
#[test]
fn values_are_found_by_version_and_leave_with_their_file() {
    let cache = BlockCache::new(8 << 20);
    let (file, other) = (ValueFileId(7), ValueFileId(8));
    let value = |len: usize| Slice::from(vec![len as u8; len]);
    cache.insert_value(file, 100, 5, value(4000));
    cache.insert_value(other, 100, 6, value(3000));
    cache.insert_value(file, 9000, 9, value(MOST_CACHED_VALUE + 100));
    let len = |file, offset, seq| cache.value(file, offset, seq, false).map(|value| value.len());
    assert_eq!(len(file, 100, 5), Some(4000));
    assert_eq!(len(other, 100, 6), Some(3000));
    assert_eq!([len(file, 100, 6), len(file, 101, 5), len(ValueFileId(9), 100, 5)], [None; 3]);
    assert_eq!(len(file, 9000, 9), None, "it is too large");
    assert!(!cache.hand_over_value(file, 100), "nobody has asked for it again");
    assert!(cache.value(file, 100, 5, true).is_some() && cache.hand_over_value(file, 100));
    assert!(!cache.hand_over_value(file, 100), "its heat went to the copy");
    cache.carry_value(other, 5000, 5, value(4000));
    assert_eq!(len(other, 5000, 5), Some(4000));
    cache.check();
    cache.forget_values(file);
    assert_eq!([len(file, 100, 5), len(other, 100, 6)], [None, Some(3000)]);
    cache.forget_values(other);
    let stats = cache.stats();
    assert_eq!((stats.blocks, stats.bytes, stats.hits, stats.misses), (0, 0, 0, 0));
    for offset in 0..10_000 {
        cache.insert_value(file, offset * 4000, offset, value(4000));
    }
    cache.check();
    let stats = cache.stats();
    assert!(stats.evictions > 7000 && stats.bytes <= 8 << 20, "{stats:?}");
}

#[test]
fn a_cache_without_room_keeps_nothing() {
    let (_, _, blocks) = data_blocks(3);
    let cache = Plain::new(0);
    cache.insert(ID, blocks[0].0, blocks[0].1.clone());
    assert!(!cache.has(ID, blocks[0].0));
    assert_eq!(cache.stats(), CacheStats { misses: 1, ..CacheStats::default() });
}

impl TableCache {
    fn pointer(&self) -> TablePointer {
        TablePointer::new(self.blocks().epochs())
    }
}

/// Creates a directory with tables 1 to `count`. Returns the lengths of their files.
fn directory(mem: &MemEnv, count: u64) -> Vec<u64> {
    mem.env().fs().create_dir_all("/db".as_ref()).expect("room");
    let mut lengths = Vec::new();
    for number in 1..=count {
        let path = PathBuf::from("/db").join(table_file_name(TableId(number)));
        let mut writer =
            TableWriter::create(&mem.env(), &path, TableId(number), TableOptions::default()).expect("room");
        writer.add(&number.to_be_bytes(), number, Kind::Put, b"", false).expect("first");
        lengths.push(writer.finish(0.0).expect("room").file_len);
    }
    lengths
}

#[test]
fn tables_are_opened_once_and_let_go_in_order_of_use() {
    let mem = MemEnv::new(1);
    let lengths = directory(&mem, 5);
    let cache = TableCache::new(&mem.env(), "/db".as_ref(), Arc::new(BlockCache::new(1 << 20)), SEED, 3);
    let pointers: Vec<TablePointer> = (0..5).map(|_| cache.pointer()).collect();
    let open = |number: u64| {
        let place = number as usize - 1;
        cache.open(TableId(number), lengths[place], &pointers[place]).expect("there")
    };
    let opens = |number: u64| {
        let before = mem.io_index();
        open(number);
        mem.io_index() > before
    };
    assert_eq!([1, 2, 3, 1, 3, 4].map(opens), [true, true, true, false, false, true]);
    assert_eq!(cache.open_tables(), 3);
    assert_eq!([1, 3, 4, 2].map(opens), [false, false, false, true]);
    // A second pointer for an open table replaces the first.
    let (again, before) = (cache.pointer(), mem.io_index());
    cache.open(TableId(2), lengths[1], &again).expect("there");
    assert_eq!((mem.io_index(), cache.open_tables()), (before, 3));
    let held = open(3);
    assert!(held.get(&3u64.to_be_bytes(), hash(&3u64.to_be_bytes()), 9).expect("sound").is_some());
    assert_eq!(cache.blocks().stats().blocks, 1);
    cache.remove(TableId(3));
    assert_eq!((cache.open_tables(), cache.blocks().stats().blocks), (2, 0));
    assert_eq!(
        held.get(&3u64.to_be_bytes(), hash(&3u64.to_be_bytes()), 9).expect("still open").expect("there").seq,
        3
    );
    cache.set_limit(0);
    assert_eq!(cache.open_tables(), 1);
    assert!(cache.open(TableId(77), 100, &cache.pointer()).is_err());
}

#[test]
fn threads_share_tables() {
    let mem = MemEnv::threaded(1);
    let lengths = directory(&mem, 8);
    let blocks = Arc::new(BlockCache::new(1 << 20));
    let cache = Arc::new(TableCache::new(&mem.env(), "/db".as_ref(), blocks, SEED, 4));
    let pointers: Arc<[TablePointer]> = (0..8).map(|_| cache.pointer()).collect();
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let (cache, pointers, lengths) = (Arc::clone(&cache), Arc::clone(&pointers), lengths.clone());
            let job = move || {
                let mut draw = Draw(thread);
                for _ in 0..500 {
                    let number = 1 + draw.next(8);
                    let place = number as usize - 1;
                    let (id, len, pin) = (TableId(number), lengths[place], cache.blocks().epochs().pin());
                    let table = cache.get(id, len, &pointers[place], &pin).expect("there");
                    let key = number.to_be_bytes();
                    assert_eq!(table.get(&key, hash(&key), 99).expect("sound").expect("there").seq, number);
                    if draw.next(50) == 0 {
                        cache.remove(TableId(number));
                    }
                }
            };
            mem.env().spawn("reader", job).expect("threads")
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(cache.open_tables() <= 4);
    cache.blocks().check();
}

/// A reader that stays pinned holds evicted blocks back, but not without limit.
#[test]
fn a_pinned_reader_holds_few_blocks_back() {
    let (_, _, blocks) = data_blocks(1500);
    let cache = BlockCache::new(100_000);
    let pointers = Pointers::new(blocks.len(), cache.epochs());
    let pin = cache.epochs().pin();
    for _ in 0..3 {
        for (number, (offset, block)) in blocks.iter().enumerate() {
            let pointer = pointers.pointer(number);
            cache.insert(ID, *offset, pointer, block.clone());
            // The second request sets the pointer.
            let _ = cache.get(ID, *offset, pointer, &pin);
        }
    }
    let retired = cache.epochs().retired_bytes();
    assert!((200 << 10..300 << 10).contains(&retired), "{retired} bytes are held back");
    drop(pin);
    cache.epochs().collect();
    assert_eq!(cache.epochs().retired_bytes(), 0);
    cache.insert(ID, blocks[0].0, pointers.pointer(0), blocks[0].1.clone());
    assert!(cache.peek(ID, blocks[0].0, pointers.pointer(0), &cache.epochs().pin()).is_some());
    cache.check();
}

/// Open tables hold at most half of the memory for blocks and tables, and blocks get the rest.
#[test]
fn open_tables_share_the_memory_with_blocks() {
    const MEMORY: usize = 256 << 10;
    let mem = MemEnv::new(1);
    let lengths = directory(&mem, 200);
    let blocks = Arc::new(BlockCache::new(MEMORY));
    let cache = TableCache::new(&mem.env(), "/db".as_ref(), Arc::clone(&blocks), SEED, 1000);
    let pointers: Vec<TablePointer> = lengths.iter().map(|_| cache.pointer()).collect();
    let open = |place: usize| {
        cache.open(TableId(place as u64 + 1), lengths[place], &pointers[place]).expect("there")
    };
    let one = open(0).held_bytes();
    assert_eq!(blocks.capacity(), MEMORY, "few tables are free of charge");
    let opened: Vec<_> = (0..lengths.len()).map(open).collect();
    assert!(cache.open_bytes() <= MEMORY / 2 && cache.open_bytes() > MEMORY / 3, "{}", cache.open_bytes());
    assert_eq!(cache.open_tables(), cache.open_bytes() / one);
    // Readers still have all of them.
    assert_eq!(blocks.capacity(), MEMORY / 4, "{} bytes are open", opened.len() * one);
    let (first, last) = (cache.open_tables(), mem.io_index());
    open(lengths.len() - 1);
    assert_eq!((cache.open_tables(), mem.io_index()), (first, last), "the newest are open");
    drop(opened);
    blocks.epochs().collect();
    open(0);
    let rest = MEMORY - cache.open_bytes();
    assert!((rest..rest + MEMORY / 16).contains(&blocks.capacity()), "{} of {rest}", blocks.capacity());
    for number in 1..=lengths.len() as u64 {
        cache.remove(TableId(number));
    }
    blocks.epochs().collect();
    cache.remove(TableId(1));
    assert_eq!((cache.open_bytes(), blocks.capacity()), (0, MEMORY));
    blocks.check();
}

/// A block is warm if a reader has asked for it since it was inserted. A block that was carried over is no warmer.
#[test]
fn blocks_are_handed_over_once_unless_a_reader_asks() {
    let (_, _, blocks) = data_blocks(2);
    let cache = Plain::new(1 << 20);
    let [(old, block), (new, _)] = &blocks[..] else { unreachable!("two blocks") };
    assert!(!cache.hand_over(ID, *old), "it is not there");
    cache.insert(ID, *old, block.clone());
    assert!(!cache.hand_over(ID, *old), "it was read once");
    assert!(cache.has(ID, *old));
    assert!(cache.hand_over(ID, *old));
    assert!(!cache.hand_over(ID, *old), "nobody has asked for it since");
    assert!(cache.carry(ID, *new, block.clone()));
    assert!(!cache.carry(ID, *new, block.clone()), "it is there");
    assert!(!cache.hand_over(ID, *new), "nobody has asked for it");
    assert!(cache.has(ID, *new));
    assert!(cache.hand_over(ID, *new));
    cache.check();
    cache.set_memory(0);
    assert!(!cache.carry(ID, *new, block.clone()), "there is no room");
    assert_eq!(cache.stats().blocks, 0);
}

/// Ends blocks with entries of these bytes: all, and warm ones. Returns the numbers of those that the cache holds.
fn carried(entries: &[(usize, usize)]) -> Vec<usize> {
    let (_, _, blocks) = data_blocks(1);
    let Block::Data(block) = &blocks[0].1 else { unreachable!("it is a data block") };
    let cache = Arc::new(BlockCache::new(10 << 20));
    let mut carry = Carry::new(Arc::clone(&cache), TableId(7));
    let mut held = Vec::new();
    for (number, &(all, warm)) in entries.iter().enumerate() {
        carry.add(all - warm, false);
        carry.add(warm, true);
        let before = cache.stats().carried;
        carry.end_block(number as u64, &block.bytes);
        if cache.stats().carried > before {
            held.push(number);
        }
    }
    cache.check();
    assert_eq!(cache.stats().blocks, held.len() as u64);
    carry.abandon();
    assert_eq!(cache.stats().blocks, 0);
    held
}

#[test]
fn warm_blocks_are_carried_over_and_cold_ones_are_not() {
    let thousand = |warm: &[usize]| carried(&warm.iter().map(|&warm| (1000, warm)).collect::<Vec<_>>());
    assert_eq!(thousand(&[1000, 0, 0, 1000, 1000, 0]), [0, 3, 4]);
    assert_eq!(thousand(&[500; 8]), [1, 3, 5, 7], "half of the bytes are warm");
    assert_eq!(thousand(&[900, 100, 100, 100]), [1], "the credit of two blocks pays for one");
    assert_eq!(thousand(&[0; 4]), [0; 0]);
}

#[test]
fn a_large_block_does_not_pay_for_many_cold_ones() {
    let mut entries = vec![(100_000, 99_000)];
    entries.extend([(1000, 10); 50]);
    assert_eq!(carried(&entries), [1, 2]);
}
