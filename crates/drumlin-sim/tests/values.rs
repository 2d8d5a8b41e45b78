//! What collection copies, against closed forms and against simulations made for the design.

use drumlin_policy::SplitMix;
use drumlin_sim::values::{Collector, ValueReport, ValueSetup, ValueWorld, copies_at};

const BYTES: u64 = 4096;

/// Draws keys by Zipf's law with exponent `theta`, ranks scattered over the keys.
struct Zipf {
    sums: Vec<f64>,
    keys: Vec<u32>,
    random: SplitMix,
}

impl Zipf {
    fn new(count: usize, theta: f64, seed: u64) -> Zipf {
        let mut random = SplitMix::new(seed);
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        });
        let sums = sums.collect();
        let mut keys: Vec<u32> = (0..count as u32).collect();
        for last in (1..count).rev() {
            keys.swap(last, random.below(last + 1));
        }
        Zipf { sums, keys, random }
    }

    fn key(&mut self) -> u32 {
        let last = self.sums.len() - 1;
        let at = self.random.next_u64() as f64 / u64::MAX as f64 * self.sums[last];
        self.keys[self.sums.partition_point(|sum| *sum < at).min(last)]
    }
}

/// Loads `keys` keys and updates each ten times in the mean. A memtable and a file have a fiftieth of the values.
/// Returns what the last three quarters of the updates cost.
fn zipf(keys: usize, theta: f64, target: f64, collector: Collector) -> ValueReport {
    let part = keys as u64 * BYTES / 50;
    let setup =
        ValueSetup { collector, target, memtable_bytes: part, file_bytes: part, class_bytes: part / 16 };
    let mut world = ValueWorld::new(setup);
    (0..keys as u32).for_each(|key| world.write(key, Some(BYTES)));
    let mut choice = Zipf::new(keys, theta, 7);
    let mut before = world.report();
    let updates = 10 * keys;
    for update in 0..updates {
        if update == updates / 4 {
            before = world.report();
        }
        world.write(choice.key(), Some(BYTES));
    }
    world.report().since(&before)
}

/// Copies per flushed byte if all values are equally likely to be overwritten, and the oldest file is collected: its
/// share of live values u solves u = exp(-S (1 - u)).
fn uniform(space: f64) -> f64 {
    let live = (0..200).fold(0.5, |u: f64, _| (-space * (1.0 - u)).exp());
    live / (1.0 - live)
}

#[test]
fn uniform_overwrites_cost_what_the_closed_form_says() {
    for (space, copies) in [(1.25, 1.6927), (1.5, 0.7158), (2.0, 0.2550)] {
        assert!((uniform(space) - copies).abs() < 1e-4, "{space}: {}", uniform(space));
    }
    for target in [1.25, 1.5] {
        let report = zipf(10_000, 0.0, target, Collector::GarbageRatio);
        let ratio = report.copies() / uniform(report.mean_space());
        assert!((ratio - 1.0).abs() < 0.08, "target {target}: {ratio} of the closed form, {report:?}");
        assert!(report.peak_space <= target + 1e-9, "{report:?}");
    }
}

#[test]
fn lifetimes_save_copies_where_some_keys_are_written_more_often() {
    let keys = 20_000;
    let run = |theta, collector| {
        let report = zipf(keys, theta, 1.25, collector);
        assert!(report.mean_space() <= 1.25, "{report:?}");
        report.copies()
    };
    let lifetimes = Collector::Lifetimes { remembered: keys / 4, watched: 0 };
    let skewed =
        [Collector::GarbageRatio, Collector::AgeScore, lifetimes].map(|collector| run(0.9, collector));
    assert!(skewed[2] <= 0.7 * skewed[0], "zipf 0.9: {skewed:?}");
    assert!(skewed[1] <= 0.92 * skewed[0], "the score alone: {skewed:?}");
    let flat = [Collector::GarbageRatio, lifetimes].map(|collector| run(0.2, collector));
    assert!(flat[1] <= 1.03 * flat[0], "zipf 0.2: {flat:?}");
}

/// The collectors of other stores. Those without a space target are run with several settings.
#[test]
fn published_collectors_copy_more_at_equal_space_on_zipf() {
    let keys = 20_000;
    let ours = zipf(keys, 0.9, 1.25, Collector::Lifetimes { remembered: keys / 4, watched: 0 });
    let oldest = [1.2, 1.25, 1.3].map(|target| {
        let report = zipf(keys, 0.9, target, Collector::OldestFirst);
        assert!(report.peak_space <= target + 1e-9, "{report:?}");
        (report.mean_space(), report.copies())
    });
    let mut found = vec![("oldest first", copies_at(ours.mean_space(), &oldest))];
    let ratios = [0.1, 0.15, 0.2, 0.25, 0.3, 0.4].map(|least| {
        let report = zipf(keys, 0.9, 1.25, Collector::Ratio(least));
        // No file has more garbage than the ratio, and each copy frees at least so much.
        let (space, copies) = (1.0 / (1.0 - least), (1.0 - least) / least);
        assert!(report.peak_space <= space && report.copies() <= copies, "{least}: {report:?}");
        (report.mean_space(), report.copies())
    });
    let dumpkv = |watched| {
        [0.06, 0.12, 0.25, 0.5, 1.0, 2.0].map(|factor| {
            let report = zipf(keys, 0.9, 1.25, Collector::DumpKv { factor, watched });
            (report.mean_space(), report.copies())
        })
    };
    let factors = [0, 2000].map(dumpkv);
    found.push(("ratio", copies_at(ours.mean_space(), &ratios)));
    found.push(("dumpkv-h", copies_at(ours.mean_space(), &factors[0])));
    found.push(("dumpkv", copies_at(ours.mean_space(), &factors[1])));
    assert_ne!(factors[0], factors[1], "the model places nothing");
    println!("{:?} at {:.3}; {found:?}; {ratios:?}; {factors:?}", ours.copies(), ours.mean_space());
    for (name, copies) in found {
        let copies = copies.unwrap_or_else(|| panic!("{name}: no setting is near {}", ours.mean_space()));
        assert!(ours.copies() < 0.8 * copies, "{name} copies {copies}, lifetimes {}", ours.copies());
    }
}

#[test]
fn copies_are_interpolated_between_the_nearest_runs() {
    let runs = [(1.1, 3.0), (1.3, 1.0), (1.2, 2.0), (2.0, 0.1)];
    assert_eq!(copies_at(1.2, &runs), Some(2.0));
    // The mean of a half and one byte written for each byte copied.
    assert!(copies_at(1.25, &runs).is_some_and(|copies| (copies - 1.0 / 0.75).abs() < 1e-9));
    assert_eq!((copies_at(1.0, &runs), copies_at(2.1, &runs), copies_at(1.5, &[])), (None, None, None));
}

/// Every collector keeps the bound on copies, whatever it predicts.
#[test]
fn copies_stay_within_the_bound() {
    for target in [1.1, 1.5, 3.0] {
        for collector in [
            Collector::GarbageRatio,
            Collector::AgeScore,
            Collector::Lifetimes { remembered: 500, watched: 500 },
        ] {
            let report = zipf(4000, 0.7, target, collector);
            let bound = 1.0 / (target - 1.0);
            assert!(report.copies() <= bound, "{collector:?} at {target}: {} > {bound}", report.copies());
        }
    }
}
