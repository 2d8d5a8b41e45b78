//! Directions of the paper's figures at a small size: an eighth of its load, written twice as fast.

use super::*;
use crate::UnitReport;
use crate::unit_flushes;
use drumlin_policy::by_name;
use drumlin_policy::schedule::Concurrency;

const MIB: u64 = 1 << 20;
const LEVELED: &str = "1-leveling:5";
const TIERED: &str = "tiering:4";

fn setup(mode: Concurrency, slots: u32) -> Setup {
    let mut setup = Setup::downforce(slots).part(8);
    setup.settings.mode = mode;
    setup.write_rate = 1600 * MIB;
    setup
}

fn run(policy: &str, setup: &Setup) -> Report {
    load(&mut *by_name(policy).unwrap(), setup).unwrap()
}

/// Returns the reports of the unsplit, split and pipelined modes.
fn modes(policy: &str, slots: u32) -> [Report; 3] {
    [Concurrency::Unsplit, Concurrency::Split, Concurrency::Pipelined]
        .map(|mode| run(policy, &setup(mode, slots)))
}

#[test]
fn leveled_merges_gain_workers_and_write_less() {
    let [unsplit, split, pipelined] = modes(LEVELED, 4);
    assert!(pipelined.throughput() >= 1.3 * split.throughput());
    assert!(pipelined.throughput() >= 3.0 * unsplit.throughput());
    assert!(pipelined.write_amp() <= split.write_amp() && pipelined.write_amp() <= unsplit.write_amp());
    assert!(pipelined.mean_busy() >= 1.4 * unsplit.mean_busy());
    let [unsplit_more, _, pipelined_more] = modes(LEVELED, 16);
    assert!(
        unsplit_more.throughput() <= 1.5 * unsplit.throughput(),
        "without the pipeline more threads idle"
    );
    assert!(pipelined_more.throughput() >= 3.0 * unsplit_more.throughput());
    assert!(pipelined_more.most_level0 < 20, "writers are never slowed");
}

#[test]
fn tiered_merges_gain_workers() {
    let [unsplit, split, pipelined] = modes(TIERED, 4);
    assert!(pipelined.throughput() >= 1.1 * split.throughput());
    assert!(pipelined.throughput() >= 2.0 * unsplit.throughput());
    assert!(pipelined.share_busy(4) >= 0.8 && unsplit.share_busy(3) < 0.2);
}

#[test]
fn one_slot_holds_a_steady_writer() {
    let at = |policy, mode, rate: u64| {
        let mut setup = setup(mode, 1);
        setup.write_rate = rate * MIB;
        run(policy, &setup)
    };
    let (split, pipelined) = (at(LEVELED, Concurrency::Split, 80), at(LEVELED, Concurrency::Pipelined, 80));
    assert!(pipelined.throughput() > 79.0 && pipelined.most_level0 < split.most_level0);
    let (split, pipelined) = (at(TIERED, Concurrency::Split, 40), at(TIERED, Concurrency::Pipelined, 40));
    assert!(pipelined.most_level0 <= 6 && split.most_level0 > 12, "long compactions give way to level 0");
}

#[test]
fn the_same_setup_gives_the_same_report() {
    let report = || run(LEVELED, &setup(Concurrency::Pipelined, 4).part(4));
    assert_eq!(report(), report());
}

#[test]
fn figures_add_up() {
    for (policy, slots) in [(LEVELED, 4), (TIERED, 4), ("universal", 2), ("arce", 2), ("leveling:4", 2)] {
        let setup = setup(Concurrency::Pipelined, slots).part(4);
        let report = run(policy, &setup);
        assert_eq!(report.busy.iter().sum::<u64>(), report.nanos, "{policy}");
        assert!(
            report.busy[slots as usize + 1..].iter().all(|time| *time == 0),
            "{policy}: slots over-committed"
        );
        let busy: u64 = report.busy.iter().enumerate().map(|(n, time)| n as u64 * time).sum();
        assert_eq!(report.by_level.iter().sum::<u64>(), busy, "{policy}");
        assert!(report.ingested >= setup.total && report.flushed <= report.ingested, "{policy}");
    }
}

#[test]
fn tiers_rewrite_what_the_closed_form_says() {
    // 1 + (1/n) sum of C^j floor(n / C^j), for n flushes and C runs per compaction.
    let exact = |n: u32, c: u64| {
        let UnitReport { merged, .. } =
            unit_flushes(&mut *by_name(&std::format!("tiering:{c}")).unwrap(), n).unwrap();
        1.0 + merged as f64 / f64::from(n)
    };
    for (n, c, amplification) in [(800, 4, 4.92), (400, 4, 4.60), (256, 4, 5.0), (1000, 10, 4.0)] {
        assert!((exact(n, c) - amplification).abs() < 0.005, "{n} {c}");
    }
    // Compactions in progress lag behind, and never rewrite more.
    let report = run(TIERED, &setup(Concurrency::Pipelined, 4));
    let flushes = (report.ingested / (64 * MIB)) as u32;
    assert!(report.write_amp() <= exact(flushes, 4) && report.write_amp() > 0.5 * exact(flushes, 4));
}

#[test]
fn fewer_extra_runs_cost_throughput_and_reads_make_merging_pay() {
    let with = |change: &dyn Fn(&mut Setup)| {
        let mut setup = setup(Concurrency::Pipelined, 4).part(2);
        change(&mut setup);
        run(LEVELED, &setup)
    };
    // With half of these bytes, only the flush would limit throughput.
    let whole = |setup: &mut Setup| setup.total *= 2;
    let free = with(&whole);
    let capped = with(&|setup| {
        whole(setup);
        setup.settings.depth_cap = Some(2);
    });
    assert!(capped.throughput() < free.throughput() && capped.folded >= free.folded);
    // At full write speed, compacting extra runs costs too much at any read rate. Here the writer leaves bandwidth
    // for it.
    let calm = with(&|setup| setup.write_rate = 100 * MIB);
    let read = with(&|setup| (setup.write_rate, setup.reads) = (100 * MIB, (4e6, 0.0)));
    assert!(read.merged > calm.merged && read.mean_depth() < calm.mean_depth(), "reads make merging pay");
    let slow = with(&|setup| {
        whole(setup);
        setup.slow_one_in = 20;
    });
    assert!(slow.throughput() <= free.throughput());
}
