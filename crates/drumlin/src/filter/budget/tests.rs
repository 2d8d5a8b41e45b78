//! Tests of [`super`]: jobs beside each other, jobs that end in any way, frozen keyspaces, dropped keyspaces.

use super::*;
use crate::api::db::Db;
use crate::api::keyspace::Keyspace;
use crate::filter::{JobFilters, MergedInputs, MergedPart, OutputTarget};
use crate::stats::KNOWN_TABLES;
use drumlin_env::MemEnv;

/// A store with a tree of some runs under `filter_mode = mnemosyne`.
fn filled(mem: &MemEnv) -> (Db, Keyspace) {
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let options = [
        ("compaction", "leveling:4"),
        ("memtable_bytes", "64KiB"),
        ("file_bytes", "32KiB"),
        ("filter_mode", "mnemosyne"),
        ("filter_bits", "4"),
    ];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    for number in 0..12_000_u32 {
        keys.put(number.wrapping_mul(2_654_435_761).to_be_bytes(), [1; 40]).expect("put");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    (db, keys)
}

fn begin(keys: &Keyspace, level: u8, inputs: MergedInputs) -> JobFilters {
    let destination = OutputTarget { level, file_bytes: 32 << 10, design: Vec::new(), block_ns: 65_000.0 };
    JobFilters::begin(&keys.store.filters, &keys.state, inputs, destination)
}

/// The compaction of the whole tree.
fn whole(keys: &Keyspace) -> MergedInputs {
    let tree = keys.state.view().tree.clone();
    let part = |(level, file): (u8, &Arc<FileMeta>)| MergedPart {
        level,
        file: file.clone(),
        range: file.bounds.clone(),
        entries: file.counts.entries,
    };
    let scope = MergeScope { share: 1.0, is_manual: false };
    MergedInputs::Parts(tree.files().map(|(level, _, file)| part((level, file))).collect(), scope)
}

fn allot(keys: &Keyspace, job: &mut JobFilters) -> f64 {
    granted(keys, job).allotment.bits
}

fn granted(keys: &Keyspace, job: &mut JobFilters) -> Granted {
    job.allot(&keys.store.files.tables, 500, &Key::empty(), None, 500)
}

fn registered(keys: &Keyspace) -> usize {
    keys.store.filters.state.lock().jobs.len()
}

#[test]
fn a_job_keeps_its_price_when_others_begin() {
    let (_db, keys) = filled(&MemEnv::new(1));
    let mut large = begin(&keys, 3, whole(&keys));
    let before = keys.store.filters.state.lock().jobs.values().next().expect("a job").price;
    let bits = allot(&keys, &mut large);
    let _small = begin(&keys, 0, MergedInputs::Memtables(500));
    let state = keys.store.filters.state.lock();
    let prices: Vec<_> = state.jobs.values().map(|job| job.price).collect();
    assert_eq!(prices[0], before);
    assert_ne!(prices[0], prices[1], "a flush is not judged like a compaction of all keys");
    assert!(bits > 0.0);
}

#[test]
fn jobs_that_end_in_any_way_leave_nothing() {
    let (db, keys) = filled(&MemEnv::new(2));
    assert_eq!(registered(&keys), 0, "flushes and compactions have ended");
    let (large, small) = (begin(&keys, 3, whole(&keys)), begin(&keys, 0, MergedInputs::Memtables(500)));
    assert_eq!(registered(&keys), 2);
    let ledger =
        |keys: &Keyspace| keys.store.filters.ledger(&keys.store.filters.state.lock(), group(&keys.state));
    let beside = ledger(&keys);
    drop(small);
    large.end();
    large.end();
    assert_eq!(registered(&keys), 0, "dropped, and ended twice");
    let alone = ledger(&keys);
    assert!(beside.keys > alone.keys && alone.bits > 0.0, "{beside:?} {alone:?}");
    let running = begin(&keys, 3, whole(&keys));
    db.drop_keyspace("k").expect("dropped");
    assert_eq!(ledger(&keys), Ledger::default(), "jobs of a dropped keyspace do not count");
    drop(running);
    assert_eq!(registered(&keys), 0);
}

#[test]
fn a_frozen_keyspace_keeps_its_price_until_its_budget_changes() {
    let (_db, keys) = filled(&MemEnv::new(3));
    let price = |keys: &Keyspace| keys.store.filters.state.lock().prices[&group(&keys.state)];
    keys.set_option("adaptation", "frozen").expect("a live option");
    let before = price(&keys);
    drop(begin(&keys, 3, whole(&keys)));
    assert_eq!(price(&keys), before);
    keys.set_option("filter_bits", "8").expect("a live option");
    drop(begin(&keys, 3, whole(&keys)));
    assert_ne!(price(&keys), before);
}

/// Some tables get one bit per key and others none.
#[test]
fn uniform_filters_of_less_than_a_bit_use_their_budget() {
    let db = Db::builder("/s").env(MemEnv::new(9).env()).open().expect("open");
    let sizes = [("memtable_bytes", "64KiB"), ("file_bytes", "32KiB"), ("compaction", "leveling:4")];
    let options = [sizes[0], sizes[1], sizes[2], ("filter_mode", "uniform"), ("filter_bits", "0.7")];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    (0..12_000_u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [1; 40]).expect("put"));
    db.flush().expect("flush");
    keys.compact::<&[u8]>(..).expect("compact");
    let filters = keys.state.view().tree.filters();
    let average = filters.bits / filters.keys;
    assert!((0.4..=0.75).contains(&average), "{average} bits per key");
}

#[test]
fn nothing_is_kept_of_many_dropped_keyspaces() {
    let db = Db::builder("/s").env(MemEnv::new(4).env()).open().expect("open");
    let options = [("filter_mode", "mnemosyne+"), ("filter_bits", "4")];
    for _ in 0..100 {
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        keys.put("a", "b").expect("put");
        db.flush().expect("flush");
        db.drop_keyspace("k").expect("dropped");
    }
    let keys = db.keyspace("default").expect("a keyspace");
    let state = keys.store.filters.state.lock();
    let most = KEPT_PER_KEYSPACE * 3;
    assert!(state.survival.len() <= most && state.prices.len() <= most && state.means.len() <= most);
}

#[test]
fn tables_that_live_long_get_ribbon_filters() {
    let (_db, keys) = filled(&MemEnv::new(5));
    keys.set_option("filter_mode", "mnemosyne+").expect("a live option");
    for number in 0..200_000_u32 {
        keys.get(number.to_be_bytes()).expect("get");
    }
    let method = |life: Option<u64>| {
        keys.state.lives.clear();
        if let Some(life) = life {
            keys.state.lives.note(&[(3, life); KNOWN_TABLES as usize]);
        }
        let granted = granted(&keys, &mut begin(&keys, 3, whole(&keys)));
        assert!(granted.allotment.bits > 0.0);
        granted.method
    };
    assert_eq!(method(None), Method::Bloom, "nothing is known of level 3");
    assert_eq!((method(Some(1 << 40)), method(Some(10))), (Method::Ribbon, Method::Bloom));
    keys.set_option("filter_mode", "mnemosyne").expect("a live option");
    assert_eq!(method(Some(1 << 40)), Method::Bloom, "lookups are not counted in this mode");
}

/// From the statistics to the answers: a compaction builds Ribbon filters, and lookups use them.
#[test]
fn compactions_build_ribbon_filters() {
    let db = Db::builder("/s").env(MemEnv::new(7).env()).open().expect("open");
    let options = [
        ("compaction", "leveling:4"),
        ("filter_mode", "mnemosyne+"),
        ("filter_bits", "6"),
        ("block_bytes", "512"),
    ];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    let key = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes();
    (0..20_000).for_each(|number| _ = keys.put(key(number), [1; 8]).expect("put"));
    db.flush().expect("flush");
    (20_000..140_000).for_each(|number| _ = keys.get(key(number)).expect("get"));
    // Blocks of a device, and tables that live long.
    (0..1000).for_each(|_| keys.store.costs.probes.reached(65_000));
    for level in 0..LEVELS as u8 {
        keys.state.lives.note(&[(level, 1 << 30); KNOWN_TABLES as usize]);
    }
    keys.compact::<&[u8]>(..).expect("compact");
    let tree = keys.state.view().tree.clone();
    for (_, _, file) in tree.files() {
        let (bits, rate) = (file.filter_bits, file.fp_rate);
        assert!(
            (5.5..7.5).contains(&bits) && rate < 0.03,
            "{bits} bits pass {rate}; a Bloom filter passes 0.058"
        );
    }
    let log = format!("{:?}", db.explain());
    assert!(log.contains("as Ribbon filter"), "{log}");
    for number in 0..20_000 {
        assert!(keys.get(key(number)).expect("get").is_some(), "key {number}");
    }
    let blocks = || keys.store.lookups.totals().absent;
    let before = blocks();
    (20_000..120_000).for_each(|number| assert!(keys.get(key(number)).expect("get").is_none()));
    let unneeded = (blocks() - before) as f64 / 1e5;
    assert!((0.005..0.03).contains(&unneeded), "{unneeded} blocks a lookup");
}

#[test]
fn tables_live_until_they_are_merged_away() {
    let (db, keys) = filled(&MemEnv::new(6));
    keys.set_option("filter_mode", "mnemosyne+").expect("a live option");
    keys.compact::<&[u8]>(..).expect("compact");
    keys.state.lives.clear();
    for number in 0..20_000_u32 {
        keys.get(number.to_be_bytes()).expect("get");
    }
    let counted = keys.state.density.all();
    assert!((15_000..25_000).contains(&counted), "{counted}");
    let files = keys.state.view().tree.files().count() as u32;
    keys.put("a", "b").expect("put");
    db.flush().expect("flush");
    keys.compact::<&[u8]>(..).expect("compact");
    let lives = keys.state.lives.saved();
    let of_life = |lookups: f32| -> u32 {
        lives.iter().filter(|life| life.lookups == lookups).map(|life| life.tables).sum()
    };
    let old = of_life(counted as f32);
    assert_eq!(old, files, "files of the whole tree");
    let young = of_life(0.0);
    assert_eq!(young, 1, "the flushed file");
}

/// Lives survive a restart, and so does the manifest that holds them.
#[test]
fn lives_are_known_after_a_restart() {
    let mem = MemEnv::new(9);
    let (db, keys) = filled(&mem);
    keys.set_option("filter_mode", "mnemosyne+").expect("a live option");
    (0..200_000_u32).for_each(|number| _ = keys.get(number.to_be_bytes()).expect("get"));
    keys.state.lives.note(&[(3, 1 << 40); KNOWN_TABLES as usize]);
    let name = keys.name();
    drop(keys);
    db.close().expect("close");
    for _ in 0..2 {
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace(&name).expect("a keyspace");
        assert_eq!(keys.state.lives.of(3), Some((1_u64 << 40) as f64));
        let granted = granted(&keys, &mut begin(&keys, 3, whole(&keys)));
        assert_eq!(granted.method, Method::Ribbon, "without new lookups");
        drop(keys);
        db.close().expect("close");
    }
}

/// Of a table from before the open only the life since then is known. A short one says nothing.
#[test]
fn tables_from_before_the_open_lower_no_mean() {
    let mem = MemEnv::new(10);
    let (db, keys) = filled(&mem);
    keys.set_option("filter_mode", "mnemosyne+").expect("a live option");
    let levels = || 0..LEVELS as u8;
    levels().for_each(|level| keys.state.lives.note(&[(level, 1 << 20); KNOWN_TABLES as usize]));
    let before = keys.state.lives.saved();
    drop(keys);
    db.close().expect("close");
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    keys.compact::<&[u8]>(..).expect("compact");
    assert_eq!(keys.state.lives.saved(), before, "no lookup since the open");
    // The outputs were built in this process, so their lives are whole.
    keys.put("a", "b").expect("put");
    db.flush().expect("flush");
    keys.compact::<&[u8]>(..).expect("compact");
    let after = keys.state.lives.saved();
    assert!(after.iter().zip(&before).any(|(after, before)| after.lookups < before.lookups), "{after:?}");
}

/// Tables that were built in a mode that counts no lives are not older than they are.
#[test]
fn lives_count_from_the_birth_in_every_mode() {
    let (db, keys) = filled(&MemEnv::new(8));
    let read = || (0..20_000_u32).for_each(|number| _ = keys.get(number.to_be_bytes()).expect("get"));
    read();
    keys.compact::<&[u8]>(..).expect("compact");
    keys.set_option("filter_mode", "mnemosyne+").expect("a live option");
    keys.put("a", "b").expect("put");
    db.flush().expect("flush");
    keys.compact::<&[u8]>(..).expect("compact");
    let lives = keys.state.lives.saved();
    assert!(!lives.is_empty() && lives.iter().all(|life| life.lookups == 0.0), "no lookup since: {lives:?}");
    // A job whose outputs are dropped ends no life.
    let mut job = begin(&keys, 3, whole(&keys));
    job.finish(&keys.store.files.tables, &[]);
    drop(job);
    assert_eq!(keys.state.lives.saved(), lives);
}

/// Lookups that all find their key skip the filter. Once absent keys are looked up, the filter is used again after
/// a bounded number of blocks that were read in vain. No answer changes.
#[test]
fn a_filter_that_saves_nothing_is_skipped_until_it_would_save_something() {
    const KEYS: u32 = 20_000;
    let key = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes();
    let db = Db::builder("/s").env(MemEnv::new(31).env()).open().expect("open");
    let options = [("compaction", "leveling:4"), ("filter_mode", "uniform"), ("file_bytes", "128KiB")];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    // The simulated clock stands still, but blocks take 1 us.
    let keep_time = |number: u32| {
        if number.is_multiple_of(64) {
            (0..100).for_each(|_| keys.store.costs.probes.reached(1000));
        }
    };
    (0..KEYS).for_each(|number| _ = keys.put(key(number), [1; 60]).expect("put"));
    keys.compact::<&[u8]>(..).expect("compact");
    let skipped = |db: &Db| {
        let shapes = db.tree();
        let shape = shapes.iter().find(|shape| shape.name == "k").expect("the keyspace");
        let files = shape.levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.files);
        let (skipped, all) = files.fold((0, 0), |(s, n), file| (s + u32::from(file.filter_skipped), n + 1));
        f64::from(skipped) / f64::from(all)
    };
    let present = || {
        for number in (0..10 * KEYS).map(|number| number % KEYS) {
            keep_time(number);
            assert!(keys.get(key(number)).expect("get").is_some());
        }
    };
    let vain = || db.metrics().lookup_tables_absent;
    // Few lookups say nothing.
    (0..1000).for_each(|number| assert!(keys.get(key(number)).expect("get").is_some()));
    assert_eq!(skipped(&db), 0.0);
    present();
    assert!(skipped(&db) > 0.9, "{} of the filters are skipped", skipped(&db));
    assert_eq!(vain(), 0);
    let look_up_absent = || {
        for number in 0..KEYS {
            keep_time(number);
            let [a, b, c, d] = key(number);
            assert_eq!(keys.get([a, b, c, d, 1]).expect("get"), None);
        }
    };
    look_up_absent();
    let (first, before) = (vain(), skipped(&db));
    assert_eq!(before, 0.0, "the filters are used again");
    // 256 lookups for each of about a dozen tables, and false positives.
    assert!(first < u64::from(KEYS) / 5, "{first} blocks read in vain");
    look_up_absent();
    assert!(vain() - first < u64::from(KEYS) / 50, "{} blocks read in vain", vain() - first);
    // A frozen keyspace keeps what it has.
    keys.set_option("adaptation", "frozen").expect("a live option");
    present();
    assert_eq!(skipped(&db), 0.0);
    keys.set_option("adaptation", "on").expect("a live option");
    present();
    assert!(skipped(&db) > 0.9);
    // Keys that are read together skip the filter too.
    let pairs: Vec<[[u8; 4]; 2]> = (0..64).map(|number| [key(number), key(KEYS + number)]).collect();
    let found = keys.multi_get(pairs.iter().flatten()).expect("multi_get");
    assert!(found.iter().enumerate().all(|(at, found)| found.is_some() == (at % 2 == 0)));
    // A frozen keyspace uses a filter again all the same.
    keys.set_option("adaptation", "frozen").expect("a live option");
    assert!(skipped(&db) > 0.9);
    look_up_absent();
    assert_eq!(skipped(&db), 0.0, "the filters are used again");
}

/// Divides the filter bits of `keys` by lookups, `bits` per key on average.
fn by_lookups(keys: &Keyspace, bits: &str) {
    for (name, value) in [("filter_mode", "mnemosyne+"), ("filter_bits", bits)] {
        keys.set_option(name, value).expect("a live option");
    }
}

/// Puts the keys of [`filled`] again and compacts all.
fn overwrite_and_compact(keys: &Keyspace) {
    for number in 0..12_000_u32 {
        keys.put(number.wrapping_mul(2_654_435_761).to_be_bytes(), [1; 40]).expect("put");
    }
    keys.compact::<&[u8]>(..).expect("compact");
}

/// The reads that follow a bulk load and a compaction meet one run, not the many of the load.
#[test]
fn a_bulk_load_that_is_compacted_has_the_whole_budget() {
    let (db, keys) = filled(&MemEnv::new(9));
    by_lookups(&keys, "10");
    let bits = || {
        let filters = keys.state.view().tree.filters();
        filters.bits / filters.keys
    };
    // The inputs of the first compaction were built under another budget.
    for _ in 0..2 {
        overwrite_and_compact(&keys);
        assert!((9.5..11.5).contains(&bits()), "{} bits per key", bits());
    }
    let absent = || {
        (0..12_000_u32).try_for_each(|number| keys.get([&number.to_be_bytes()[..], &[1]].concat()).map(drop))
    };
    absent().expect("get");
    let vain = db.metrics().lookup_tables_absent;
    assert!(vain < 12_000 / 50, "{vain} blocks read in vain");
}

/// A manual compaction does not forget where lookups are, and the keyspace as a whole has its budget.
#[test]
fn a_manual_compaction_gives_more_bits_where_lookups_are() {
    let (_db, keys) = filled(&MemEnv::new(10));
    by_lookups(&keys, "6");
    overwrite_and_compact(&keys);
    // Absent keys of the first quarter.
    for number in 0..60_000_u32 {
        let [a, b, c, d] = number.wrapping_mul(2_654_435_761).to_be_bytes();
        keys.get([a / 4, b, c, d, 1]).expect("get");
    }
    overwrite_and_compact(&keys);
    let tree = keys.state.view().tree.clone();
    let bits = |wanted: &dyn Fn(u8) -> bool| {
        let files =
            tree.files().filter(|(_, _, file)| wanted(file.bounds.start.first().copied().unwrap_or(0)));
        let sums = files.map(|(_, _, file)| (file.counts.keys as f64, f64::from(file.filter_bits)));
        let (keys, bits) = sums.fold((0.0, 0.0), |sum, (keys, bits)| (sum.0 + keys, sum.1 + keys * bits));
        bits / keys
    };
    let (hot, cold) = (bits(&|first| first < 60), bits(&|first| first > 70));
    assert!(hot > cold + 1.0, "{hot} and {cold} bits per key");
    let filters = tree.filters();
    let mean = filters.bits / filters.keys;
    assert!((5.0..7.1).contains(&mean), "{mean} bits per key, {hot} and {cold}");
}
