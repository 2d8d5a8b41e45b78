//! Tests of counting by real threads and by one thread, and of the resulting rates.

use super::*;

impl Meter {
    fn sample_counts(&self) -> [u64; 3] {
        let [points, seeks, writes, ..] = self.counted();
        [points, seeks, writes]
    }
}

#[test]
fn a_new_mix_is_seen_between_the_ticks() {
    let meter = Meter::new(&fresh_store());
    let count = |kind: OperationKind, samples: u64| meter.add(kind, EACH * samples);
    let second = |n: u64| n * 1_000_000;
    for n in 1..5 {
        assert!(!meter.turns(second(n)), "nothing is known, or it is as before");
        count(OperationKind::Write, 100);
        meter.roll(second(n));
    }
    assert!(meter.is_busy());
    count(OperationKind::Write, 20);
    count(OperationKind::Seek, 3);
    assert!(!meter.turns(second(4) + LOOK), "a few others");
    meter.add(OperationKind::Seek, LOOK_OPERATIONS - 1);
    assert!(!meter.turns(second(4) + 2 * LOOK), "too few of them");
    meter.add(OperationKind::Seek, 1);
    assert!(!meter.turns(second(4) + 2 * LOOK - 1), "too soon");
    assert!(meter.turns(second(4) + 2 * LOOK));
    count(OperationKind::Point, 5);
    assert!(meter.turns(second(4) + 3 * LOOK), "each time, until rates follow");
    meter.roll(second(5));
    assert!(!meter.turns(second(5)), "nothing new");
    meter.roll(second(6));
    assert!(!meter.is_busy());
}

#[test]
fn all_are_counted_and_one_in_sixty_four_is_sampled() {
    let meter = Meter::new(&fresh_store());
    let (operations, mut sampled) = (640_000, 0);
    for n in 0..operations as u32 {
        let kind = [OperationKind::Point, OperationKind::Write, OperationKind::Write][n as usize % 3];
        if meter.count_and_sample(kind, 1) {
            sampled += 1;
            meter.keep_sampled_key(kind, &n.to_be_bytes());
        }
        let counted: u64 = meter.sample_counts().iter().sum();
        assert!((u64::from(n) + 1 - counted) < 2 * EACH, "{counted} of {n}");
    }
    assert!((f64::from(sampled) * EACH as f64 / f64::from(operations) - 1.0).abs() < 0.03, "{sampled}");
    let [points, seeks, writes] = meter.sample_counts();
    assert!(points.abs_diff(writes / 2) < 2 * EACH && seeks == 0, "{points} and {writes}");
    let keys = meter.sample().wanted;
    assert_eq!(keys.len(), KEYS);
    assert!(keys.is_sorted());
    let mut kept = meter.keys[OperationKind::Point as usize].lock().ring.clone();
    kept.sort();
    assert_eq!(keys, kept);
}

/// Samples take little memory, however long the keys are.
#[test]
fn a_prefix_of_a_long_key_is_kept() {
    let meter = Meter::new(&fresh_store());
    for n in 0..1000u32 {
        meter.keep_sampled_key(OperationKind::Point, &[&n.to_be_bytes()[..], &[7; 1 << 20]].concat());
    }
    let keys = meter.keys[OperationKind::Point as usize].lock();
    assert_eq!((keys.ring.len(), keys.sorted.len()), (KEYS, KEYS));
    assert!(keys.ring.iter().all(|key| key.len() == MOST_KEY_BYTES));
}

#[test]
fn a_thread_that_turns_from_keyspace_to_keyspace_is_counted_by_its_samples() {
    let store = fresh_store();
    let meters = [Meter::new(&store), Meter::new(&store), Meter::new(&store)];
    let operations = 300_000;
    for n in 0..operations {
        // The first keyspace is read, the second is written, and the third is written ten operations at a time.
        let (kind, each) =
            [(OperationKind::Point, 1), (OperationKind::Write, 1), (OperationKind::Write, 10)][n % 3];
        meters[n % 3].count_and_sample(kind, each);
    }
    let expected = [[1, 0, 0], [0, 0, 1], [0, 0, 10]];
    for (meter, expected) in meters.iter().zip(expected) {
        let counted = meter.sample_counts().map(|count| count as f64 / (operations / 3) as f64);
        for (counted, expected) in counted.iter().zip(expected.map(f64::from)) {
            assert!((counted - expected).abs() <= 0.1 * expected, "{counted} for {expected}");
        }
    }
    // Long sequences on one meter are counted exactly, except for the calls around a switch.
    let meters = [Meter::new(&store), Meter::new(&store)];
    for meter in &meters {
        (0..10_000).for_each(|_| {
            meter.count_and_sample(OperationKind::Seek, 1);
        });
        let [_, seeks, _] = meter.sample_counts();
        assert!(seeks.abs_diff(10_000) < 3 * EACH, "{seeks}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "counts on real threads")]
fn each_thread_owes_less_than_a_gap() {
    let meter = Meter::new(&fresh_store());
    let kinds = [OperationKind::Point, OperationKind::Seek, OperationKind::Write, OperationKind::Write];
    std::thread::scope(|scope| {
        for kind in kinds {
            let meter = &meter;
            scope.spawn(move || {
                for _ in 0..10_000 {
                    meter.count_and_sample(kind, 1);
                }
            });
        }
    });
    for (counted, threads) in meter.sample_counts().into_iter().zip([1u64, 1, 2]) {
        let off = (threads * 10_000).abs_diff(counted);
        assert!(off < threads * 2 * EACH, "{threads} threads are off by {off}");
    }
    meter.roll(1);
    meter.add(OperationKind::Point, 1);
    meter.roll(2_000_000);
    assert_eq!(meter.sample().load.clients, 4.0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "counts on real threads")]
fn threads_that_end_soon_are_counted_too() {
    let store = fresh_store();
    let meter = Meter::new(&store);
    let (threads, calls) = (4000, 20);
    for _ in 0..threads {
        let run = || {
            for call in 0..calls {
                meter.count_and_sample(if call < 5 { OperationKind::Point } else { OperationKind::Write }, 1);
            }
        };
        std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
    }
    let [points, seeks, writes] = meter.sample_counts().map(|count| count as f64 / f64::from(threads));
    assert!((points - 5.0).abs() < 1.0 && seeks == 0.0, "{points} of 5");
    assert!((writes - 15.0).abs() < 2.0, "{writes} of 15");
}

#[test]
fn a_thread_between_two_stores_is_counted_in_both() {
    let meters = [Meter::new(&fresh_store()), Meter::new(&fresh_store())];
    meters.iter().for_each(|meter| {
        meter.roll(1);
    });
    let operations = 200_000;
    for n in 0..operations {
        meters[n % 2].count_and_sample([OperationKind::Seek, OperationKind::Write][n % 2], 1);
    }
    for (meter, kind) in meters.iter().zip([OperationKind::Seek, OperationKind::Write]) {
        let counted = meter.sample_counts()[kind as usize] as f64 / (operations / 2) as f64;
        assert!((counted - 1.0).abs() < 0.1, "{counted}");
        meter.roll(2_000_000);
        assert_eq!(meter.sample().load.clients, 1.0, "one thread, however often it turns");
    }
}

#[test]
fn calls_on_several_keyspaces_count_where_they_are_sampled() {
    let meter = Meter::new(&fresh_store());
    for _ in 0..100_000 {
        if meter.samples_several() {
            meter.add(OperationKind::Write, EACH * 3);
        }
    }
    let [_, _, writes] = meter.sample_counts();
    assert!((writes as f64 / 300_000.0 - 1.0).abs() < 0.05, "{writes}");
}

#[test]
fn rates_follow_the_load_and_fade_slowly() {
    let meter = Meter::new(&fresh_store());
    assert!(!meter.roll(5_000_000));
    meter.add(OperationKind::Write, 6400);
    meter.keep_sampled_key(OperationKind::Write, b"k");
    meter.wrote(100, 6400);
    meter.waited(500_000);
    assert!(!meter.roll(5_500_000), "less than a tick");
    assert!(meter.roll(7_000_000));
    let load = meter.sample().load;
    assert_eq!((load.writes, load.entry_bytes, load.waited), (3200.0, 64.0, 0.25));
    // Ten idle minutes halve the rate.
    assert!(!meter.roll(607_000_000));
    assert_eq!(meter.sample().load.writes, 1600.0);
    assert_eq!(meter.sample().wanted.len(), 1, "written keys stand in");
}

#[test]
fn rates_of_late_forget_in_a_few_seconds() {
    let meter = Meter::new(&fresh_store());
    let second = |n: u64| meter.roll(n * 1_000_000);
    second(1);
    assert_eq!(meter.sample().lately.writes, 0.0, "nothing is known");
    for n in 2..8 {
        meter.add(OperationKind::Write, 6400);
        second(n);
        assert_eq!(meter.sample().lately.writes, 6400.0);
    }
    for n in 8..12 {
        meter.add(OperationKind::Seek, 640);
        second(n);
    }
    let Sample { load, lately, .. } = meter.sample();
    assert_eq!((lately.writes, lately.seeks), (0.0, 640.0));
    assert!(load.writes > 4000.0, "it fades slowly: {}", load.writes);
}

#[test]
fn lookups_that_stop_early_pass_over_older_runs() {
    let meter = Meter::new(&fresh_store());
    let share = || meter.sample().load.vain_share;
    meter.searched(1, 0);
    meter.searched(1, 1);
    assert_eq!(share(), 0.0, "one run has to be searched in any tree");
    (0..1000).for_each(|_| meter.searched(5, 5));
    assert!((share() - 1.0).abs() < 1e-9, "absent keys: {}", share());
    (0..2000).for_each(|n| meter.searched(5, n % 5));
    assert!((share() - 0.5).abs() < 0.02, "each run has as many of the keys: {}", share());
    (0..2000).for_each(|_| meter.searched(5, 0));
    assert!(share() > 0.0 && share() < 0.002, "all in the newest run: {}", share());
    assert_eq!(meter.sample().lately.vain_share, share());
    (0..1000).for_each(|_| meter.searched(3, 2));
    let before = share();
    (0..1000).for_each(|_| meter.searched(1, 0));
    assert!((share() - before).abs() < 0.01, "what is known outlasts a compaction: {before}, {}", share());
}

#[test]
fn lookups_of_a_store_count_the_runs_that_they_search_in_vain() {
    let db = crate::Db::builder("/s").env(drumlin_env::MemEnv::new(4).env()).open().expect("open");
    let keys = db.keyspace_with("k", &[("adaptation", "frozen")]).expect("a keyspace");
    for run in 0..4u8 {
        // Each run covers all keys, and holds its own.
        for key in [[0, run], [1, run], [2, run]] {
            keys.put(key, "value").expect("put");
        }
        db.flush().expect("flush");
    }
    let share = |run: u8| {
        (0..60_000).for_each(|_| _ = keys.get([1, run]).expect("get"));
        keys.state.meter.sample().load.vain_share
    };
    assert!(share(3) < 0.1, "in the newest run");
    assert!(share(0) > 0.9, "in the oldest run");
}
