//! Tests of filter allocation: bits follow lookups, stay within their budget, and never change an answer.

use drumlin::env::MemEnv;
use drumlin::{Db, Keyspace};
use drumlin_policy::SplitMix;

const KEYS: u32 = 40_000;

fn key(number: u32) -> [u8; 4] {
    // Multiplication by an odd number shuffles the keys over the whole range.
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// Number of keys in the tables of `keys`, and their filter bits.
fn keys_and_bits(db: &Db, keys: &Keyspace) -> (f64, f64) {
    let shapes = db.tree();
    let shape = shapes.iter().find(|shape| shape.name == keys.name()).expect("the keyspace");
    let files = shape.levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.files);
    files.fold((0.0, 0.0), |(keys, bits), file| {
        (keys + file.entries as f64, bits + file.entries as f64 * file.filter_bits)
    })
}

fn open(mem: &MemEnv, mode: &str, bits: &str) -> (Db, Keyspace) {
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let options = [
        ("compaction", "leveling:4"),
        ("memtable_bytes", "256KiB"),
        ("file_bytes", "128KiB"),
        ("filter_mode", mode),
        ("filter_bits", bits),
    ];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    (db, keys)
}

/// Loads, looks up absent keys in a tenth of the key space, and overwrites, so that tables are rewritten with the
/// lookup statistics. Returns the unneeded blocks per lookup afterwards, and the average bits per key.
fn load_and_look_up(mode: &str) -> (f64, f64) {
    let mem = MemEnv::new(8);
    let (db, keys) = open(&mem, mode, "4");
    let put = |number| _ = keys.put(key(number), [1; 60]).expect("put");
    (0..KEYS).for_each(put);
    // Absent keys: odd variants of the keys in the first tenth of the key space.
    let absent: Vec<[u8; 5]> =
        (0..KEYS).map(key).filter(|key| key[0] < 26).map(|key| [key[0], key[1], key[2], key[3], 1]).collect();
    let look_up = || {
        for key in absent.iter().cycle().take(40_000) {
            assert_eq!(keys.get(key).expect("get"), None);
        }
    };
    for round in 0..3 {
        look_up();
        (0..KEYS).filter(|number| number % 3 == round).for_each(put);
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let before = db.metrics();
    look_up();
    let after = db.metrics();
    let vain = after.lookup_tables_absent - before.lookup_tables_absent;
    let (held, bits) = keys_and_bits(&db, &keys);
    (vain as f64 / 40_000.0, bits / held)
}

#[test]
fn bits_where_lookups_are_save_most_of_the_blocks_read_in_vain() {
    let (uniform, bits) = load_and_look_up("uniform");
    assert!((4.0..4.3).contains(&bits), "{bits} bits");
    let (lookups, by_lookups) = load_and_look_up("mnemosyne+");
    println!("uniform {uniform} at {bits}, mnemosyne+ {lookups} at {by_lookups}");
    assert!(by_lookups <= bits, "{by_lookups}");
    assert!(lookups < 0.3 * uniform, "{lookups} against {uniform}");
}

/// A load of lookups and overwrites on a leveled tree.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Whether keys are drawn near the middle of the key space, or uniformly.
    is_skewed: bool,
    /// Number of absent keys in ten lookups.
    absent: u32,
}

/// Results of a load: unneeded blocks per lookup, and the mean and maximum bits per key.
#[derive(Clone, Copy, Debug)]
struct Shown {
    vain: f64,
    mean: f64,
    most: f64,
}

fn run(mode: &str, bits: f64, load: Load) -> Shown {
    let mem = MemEnv::new(12);
    let (db, keys) = open(&mem, mode, &bits.to_string());
    keys.set_option("memtable_bytes", "128KiB").expect("a live option");
    keys.set_option("file_bytes", "64KiB").expect("a live option");
    let mut random = SplitMix::new(12);
    let place = |number: u32| (u64::from(number) * (u64::MAX / u64::from(2 * KEYS))).to_be_bytes();
    let draw = |random: &mut SplitMix| {
        // The mean of three uniform numbers is nearly normal.
        let times = if load.is_skewed { 3 } else { 1 };
        ((0..times).map(|_| random.below(KEYS as usize)).sum::<usize>() / times) as u32
    };
    (0..KEYS).for_each(|number| {
        let number = number.wrapping_mul(7919) % KEYS;
        keys.put(place(2 * number), [4; 60]).expect("put");
    });
    let (mut lookups, mut before) = (0, 0);
    let (mut most, mut sum, mut count) = (0.0_f64, 0.0, 0);
    let operations = 5 * KEYS;
    for operation in 0..operations {
        if operation == operations / 4 {
            (lookups, before) = (0, db.metrics().lookup_tables_absent);
        }
        if operation % 2 == 0 {
            keys.put(place(2 * draw(&mut random)), [5; 60]).expect("put");
        } else {
            let is_absent = u32::from(random.below(10) < load.absent as usize);
            keys.get(place(2 * draw(&mut random) + is_absent)).expect("get");
            lookups += 1;
        }
        if operation % (operations / 50) == 0 {
            let (held, bits) = keys_and_bits(&db, &keys);
            most = most.max(bits / held);
            (sum, count) = (sum + bits / held, count + 1);
        }
    }
    let vain = db.metrics().lookup_tables_absent - before;
    Shown { vain: vain as f64 / f64::from(lookups), mean: sum / f64::from(count), most }
}

/// Checks that under `load` the modes that divide the budget unevenly read fewer unneeded blocks with the same
/// average bits. Each load has a test of its own, so that they run in parallel.
fn reads_fewer_blocks_in_vain(load: Load) {
    let [uniform, sizes, lookups] = ["uniform", "mnemosyne", "mnemosyne+"].map(|mode| run(mode, 4.0, load));
    println!("{load:?}: uniform {uniform:?}, mnemosyne {sizes:?}, mnemosyne+ {lookups:?}");
    for shown in [sizes, lookups] {
        assert!((shown.mean - 4.0).abs() < 0.5 && shown.most <= 5.1, "{load:?}: {shown:?}");
        assert!(shown.vain < 0.75 * uniform.vain, "{load:?}: {shown:?} against {uniform:?}");
    }
    assert!(lookups.vain < 1.1 * sizes.vain, "{load:?}: {lookups:?} against {sizes:?}");
}

#[test]
fn even_lookups_of_absent_keys_read_fewer_blocks_in_vain() {
    reads_fewer_blocks_in_vain(Load { is_skewed: false, absent: 10 });
}

#[test]
fn skewed_lookups_of_absent_keys_read_fewer_blocks_in_vain() {
    reads_fewer_blocks_in_vain(Load { is_skewed: true, absent: 10 });
}

#[test]
fn skewed_lookups_of_both_kinds_read_fewer_blocks_in_vain() {
    reads_fewer_blocks_in_vain(Load { is_skewed: true, absent: 5 });
}

#[test]
fn even_lookups_of_present_keys_read_fewer_blocks_in_vain() {
    reads_fewer_blocks_in_vain(Load { is_skewed: false, absent: 0 });
}

#[test]
fn the_average_stays_below_the_budget_and_one_bit() {
    for mode in ["mnemosyne", "mnemosyne+", "monkey", "monkey-dynamic"] {
        for bits in [1.0, 4.0, 8.0] {
            let mem = MemEnv::new(9);
            let (db, keys) = open(&mem, mode, &bits.to_string());
            let mut most: f64 = 0.0;
            for number in 0..3 * KEYS {
                keys.put(key(number % KEYS), [2; 60]).expect("put");
                if number % 7 == 0 {
                    keys.get(key(number + 1)).expect("get");
                }
                if number % 2000 == 0 {
                    let (held, built) = keys_and_bits(&db, &keys);
                    most = most.max(built / held.max(1.0));
                }
            }
            db.wait_idle().expect("idle");
            let (held, built) = keys_and_bits(&db, &keys);
            println!("{mode} {bits}: most {most}, at the end {}", built / held);
            // Filters consist of whole cache lines, so they are slightly larger than requested.
            assert!(most <= bits + 1.1, "{mode} {bits}: {most}");
        }
    }
}

#[test]
fn modes_change_live_and_by_reopening_and_no_answer_changes() {
    let mem = MemEnv::new(10);
    let modes = ["uniform", "mnemosyne+", "monkey", "mnemosyne", "monkey-dynamic", "mnemosyne+"];
    for (round, mode) in (0u32..).zip(modes) {
        let (db, keys) = open(&mem, "uniform", "auto");
        keys.set_option("filter_mode", mode).expect("a live option");
        keys.set_option("filter_bits", ["2", "auto", "0.5", "0", "16", "1"][round as usize])
            .expect("a live option");
        for number in 0..KEYS / 4 {
            keys.put(key(number * (round + 1)), round.to_be_bytes()).expect("put");
        }
        db.flush().expect("flush");
        for number in (0..KEYS).step_by(7) {
            let newest =
                (0..=round).rev().find(|round| number % (round + 1) == 0 && number / (round + 1) < KEYS / 4);
            let found = keys.get(key(number)).expect("get");
            assert_eq!(found.as_deref(), newest.map(|round| round.to_be_bytes()).as_ref().map(|v| &v[..]));
        }
    }
    let (db, _) = open(&mem, "uniform", "auto");
    let refused =
        db.keyspace("k").expect("a keyspace").set_option("filter_mode", "even").expect_err("no mode");
    let modes = "uniform, monkey, monkey-dynamic, mnemosyne or mnemosyne+";
    assert_eq!(refused.to_string(), format!("filter_mode = even: must be {modes}"));
}

/// The first tables of a keyspace get filters beside those of a larger keyspace with the same budget.
#[test]
fn the_first_flush_of_a_further_keyspace_has_filters() {
    let mem = MemEnv::new(12);
    let (db, large) = open(&mem, "mnemosyne+", "auto");
    (0..KEYS).for_each(|number| _ = large.put(key(number), [1; 60]).expect("put"));
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let (_, of_large) = keys_and_bits(&db, &large);
    let small = db.keyspace("small").expect("a keyspace");
    (0..1000).for_each(|number| _ = small.put(key(number), [2; 60]).expect("put"));
    db.flush().expect("flush");
    let (keys, bits) = keys_and_bits(&db, &small);
    let average = of_large / f64::from(KEYS);
    assert!(keys == 1000.0 && bits / keys > 0.7 * average, "{} bits per key, others {average}", bits / keys);
}

#[test]
fn decisions_say_what_set_the_bits() {
    let mem = MemEnv::new(11);
    let (db, keys) = open(&mem, "mnemosyne+", "4");
    (0..KEYS).for_each(|number| _ = keys.put(key(number), [3; 60]).expect("put"));
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let decisions = db.explain();
    let told: Vec<_> = decisions.iter().filter(|decision| decision.what.starts_with("filters of")).collect();
    assert!(!told.is_empty());
    let last = told.last().expect("one");
    assert!(
        last.reason.contains("mnemosyne+: all tables have")
            && last.reason.contains("one more bit of filters avoids"),
        "{last:?}"
    );
}
