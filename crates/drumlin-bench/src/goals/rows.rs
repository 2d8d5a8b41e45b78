//! The goals themselves, and how a measurement is judged by them.
//!
//! `bench goals` and the page of the comparison share them.

use crate::compare::{Spread, Verdict, control_noise, is_equal, is_short, names, ratios};
use crate::report::model::PhaseReport;

/// Engine whose goals these are.
pub(crate) const OURS: &str = "drumlin";
/// Beginning of the names of the engines that goals compare with.
pub(crate) const BASELINE: &str = "rocksdb";

/// Quantity that a goal compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    /// Operations per second; more is better.
    Throughput,
    /// Operations per second of a phase with its settling: the time until no flush or compaction is pending. More is
    /// better.
    Settled,
    /// Operations per second of the calling thread's CPU time; more is better.
    PerCpu,
    /// Table bytes written over bytes ingested (write amplification); less is better.
    WriteAmp,
    /// Peak disk space over live bytes; less is better.
    PeakSpace,
    /// CPU time per operation outside the calling threads, without the drawing of keys; less is better.
    BackgroundCpu,
    /// 99.9th percentile of call latency; less is better.
    Tail,
}

impl Row {
    /// Returns the target with its direction.
    pub(crate) fn target(&self) -> String {
        format!("{} {}", if self.quantity.less_is_better() { "<=" } else { ">=" }, self.target)
    }

    fn is_reached(&self, ratio: f64) -> bool {
        if self.quantity.less_is_better() { ratio <= self.target } else { ratio >= self.target }
    }

    /// Returns whether the rounds contradict the median: it differs from 1 by more than 5 %, but the rounds lie on
    /// both sides of 1, and some round misses the target.
    fn is_contradicted(&self, spread: &Spread) -> bool {
        let agree = spread.min > 1.0 || spread.max < 1.0;
        !is_equal(spread.median) && !agree && !self.all_reach(spread)
    }

    /// Returns whether all rounds reach the target.
    fn all_reach(&self, spread: &Spread) -> bool {
        self.is_reached(spread.min) && self.is_reached(spread.max)
    }

    /// Judges `spread`, whose median is the least favourable one over the baselines. `said` is the least favourable
    /// verdict over them, and `disagree` says whether the rounds contradict the median of one of them. `noise` is the
    /// noise as the absolute logarithm of a ratio.
    fn verdict(&self, spread: &Spread, said: Verdict, disagree: bool, noise: f64) -> &'static str {
        let from_target = (spread.median / self.target).ln().abs();
        // A ratio of 1 reaches some targets. The others need a difference that is not noise.
        let asks_for_more = !self.is_reached(1.0);
        if self.is_reached(spread.median) {
            // Some rounds miss the target, and the median reaches it by no more than the noise.
            let is_doubtful = !self.all_reach(spread) && from_target < noise;
            let is_contradicted = if asks_for_more { said != Verdict::Better } else { disagree };
            match said {
                Verdict::WithinNoise => said.text(),
                _ if is_contradicted || is_doubtful => "undecided",
                _ => "met",
            }
        } else if from_target < noise {
            "missed, within A/A noise"
        } else if is_equal(spread.median / self.target) {
            "missed by less than 5 %"
        } else {
            "missed"
        }
    }
}

impl Quantity {
    fn less_is_better(self) -> bool {
        matches!(self, Quantity::WriteAmp | Quantity::PeakSpace | Quantity::BackgroundCpu | Quantity::Tail)
    }

    /// Returns the quantity in words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Quantity::Throughput => "operations per second",
            Quantity::Settled => "operations per second, with settling",
            Quantity::PerCpu => "operations per second of client CPU time",
            Quantity::WriteAmp => "write amplification",
            Quantity::PeakSpace => "peak space amplification",
            Quantity::BackgroundCpu => "background CPU time per operation",
            Quantity::Tail => "p99.9",
        }
    }

    fn of(self, phase: &PhaseReport) -> Option<f64> {
        match self {
            Quantity::Throughput => Some(phase.ops_per_s),
            Quantity::Settled => Some(phase.ops_per_s_settled()),
            Quantity::PerCpu => (phase.thread_cpu_us_per_op > 0.0).then(|| 1e6 / phase.thread_cpu_us_per_op),
            Quantity::WriteAmp => phase.write_amp,
            Quantity::PeakSpace => phase.space_amp.peak,
            Quantity::Tail => phase.latency_us.p99_9,
            Quantity::BackgroundCpu => {
                Some((phase.process_cpu_us_per_op - phase.thread_cpu_us_per_op).max(f64::MIN_POSITIVE))
            }
        }
    }
}

/// A goal: one row of the table.
pub(crate) struct Row {
    pub(crate) number: u32,
    /// Name of the goal.
    pub(crate) what: &'static str,
    /// Name of the phase in reports.
    pub(crate) phase: &'static str,
    pub(crate) source: Source,
    pub(crate) quantity: Quantity,
    pub(crate) target: f64,
}

/// Workload that contains the phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Micro benchmark with 16-byte keys and 100-byte values.
    Small(&'static str),
    /// Micro benchmark with 24-byte keys and 1000-byte values.
    Large(&'static str),
    /// The load of 16 + 100 bytes at 60 % of the rate of the slowest engine; latency is measured from the intended
    /// start of each call.
    AtRate,
    /// YCSB workload.
    Ycsb(&'static str),
    /// All phases of a dynamic plan together.
    Dynamic(&'static str),
}

impl Source {
    /// Returns the name of the published report that decides the goals of this workload.
    pub(crate) fn deciding(self) -> &'static str {
        match self {
            Small("fillrandom") => "load",
            Small("fillbatch") => "batch",
            Small("fillsync") => "sync",
            Small("readuncached" | "readuncached16" | "multiget" | "readpagecache") => "uncached",
            Small("readwhilewriting") => "beside-writer",
            Small("overwrite") => "overwrite",
            Small(_) => "large",
            Large(_) => "kib",
            AtRate => "rate",
            Ycsb(_) => "ycsb-large",
            Dynamic("I") => "dynamic-1",
            Dynamic(_) => "dynamic-2",
        }
    }

    /// Returns the names of other published reports with these phases and the same settings, but with other sizes or
    /// other phases around them.
    pub(crate) fn informing(self) -> &'static [&'static str] {
        match self {
            Small("fillrandom") => &["large", "overwrite", "small"],
            Small("readrandom" | "readmissing" | "seekrandom" | "scan50" | "readseq") => &["small"],
            Ycsb(_) => &["ycsb"],
            _ => &[],
        }
    }
}

const fn row(
    number: u32,
    what: &'static str,
    phase: &'static str,
    source: Source,
    quantity: Quantity,
    target: f64,
) -> Row {
    Row { number, what, phase, source, quantity, target }
}

use Quantity::{BackgroundCpu, PeakSpace, PerCpu, Settled, Tail, Throughput, WriteAmp};
use Source::{AtRate, Dynamic, Large, Small, Ycsb};

pub(crate) const ROWS: [Row; 28] = [
    row(1, "fillrandom 16+100", "micro fillrandom", Small("fillrandom"), Settled, 4.0),
    row(2, "fillrandom 24+1000", "micro fillrandom", Large("fillrandom"), Settled, 1.8),
    row(3, "fillbatch", "micro fillbatch", Small("fillbatch"), Settled, 2.5),
    row(4, "fillsync", "micro fillsync", Small("fillsync"), Throughput, 1.0),
    row(5, "readrandom cached", "micro readrandom", Small("readrandom"), PerCpu, 2.3),
    row(6, "readmissing cached", "micro readmissing", Small("readmissing"), PerCpu, 1.6),
    row(7, "readuncached", "micro readuncached", Small("readuncached"), Throughput, 1.0),
    row(8, "multiget of 32, uncached", "micro multiget", Small("multiget"), Throughput, 3.0),
    row(8, "16 threads, uncached", "micro readuncached16", Small("readuncached16"), Throughput, 1.2),
    row(9, "readpagecache", "micro readpagecache", Small("readpagecache"), Throughput, 1.6),
    row(10, "seekrandom", "micro seekrandom", Small("seekrandom"), PerCpu, 2.2),
    row(11, "readseq", "micro readseq", Small("readseq"), PerCpu, 2.2),
    row(12, "YCSB A", "ycsb A", Ycsb("a"), Settled, 2.3),
    row(13, "YCSB B", "ycsb B", Ycsb("b"), Settled, 2.0),
    row(14, "YCSB C", "ycsb C", Ycsb("c"), Settled, 2.0),
    row(15, "YCSB D", "ycsb D", Ycsb("d"), Settled, 2.5),
    row(16, "YCSB E", "ycsb E", Ycsb("e"), Settled, 2.0),
    row(16, "scan50", "micro scan50", Small("scan50"), PerCpu, 2.2),
    row(17, "YCSB F", "ycsb F", Ycsb("f"), Settled, 2.2),
    row(18, "dynamic I", "dynamic I", Dynamic("I"), Settled, 2.0),
    row(19, "dynamic II", "dynamic II", Dynamic("II"), Settled, 1.6),
    row(21, "write amp of overwrite", "micro overwrite", Small("overwrite"), WriteAmp, 0.7),
    row(22, "peak space of overwrite", "micro overwrite", Small("overwrite"), PeakSpace, 1.1),
    row(26, "put p99.9 under load", "micro fillrandom", AtRate, Tail, 0.5),
    row(27, "background CPU, 100 B", "micro fillrandom", Small("fillrandom"), BackgroundCpu, 0.5),
    row(27, "background CPU, 1 KB", "micro fillrandom", Large("fillrandom"), BackgroundCpu, 0.5),
    row(28, "gets beside a writer", "micro readwhilewriting", Small("readwhilewriting"), Throughput, 1.2),
    row(28, "p99.9 of gets beside a writer", "micro readwhilewriting", Small("readwhilewriting"), Tail, 1.0),
];

/// Combines all phases of a plan except the load: total operations over total time, with the settling after phases.
fn combined(phases: &[PhaseReport], plan: &str) -> Vec<PhaseReport> {
    let mut combined: Vec<PhaseReport> = Vec::new();
    let of_plan =
        phases.iter().filter(|phase| phase.name.starts_with(plan) && !phase.name.ends_with("preload"));
    // A noisy attempt and its repetition have the same round number, so only usable phases are combined.
    for phase in of_plan.filter(|phase| phase.usable) {
        let found = combined.iter_mut().find(|c| c.engine == phase.engine && c.round == phase.round);
        match found {
            Some(whole) => {
                whole.ops += phase.ops;
                whole.seconds += phase.seconds;
                whole.settle_seconds += phase.settle_seconds;
                whole.stream += &phase.stream;
            }
            None => combined.push(PhaseReport { name: plan.to_owned(), ..phase.clone() }),
        }
    }
    combined.iter_mut().for_each(|whole| whole.ops_per_s = whole.ops as f64 / whole.seconds.max(1e-9));
    combined
}

/// Result of judging a measurement by a goal.
pub(crate) struct Judged {
    /// Ratio against the baseline with the least favourable median.
    pub(crate) spread: Spread,
    /// Name of that baseline.
    pub(crate) base: String,
    pub(crate) verdict: &'static str,
}

/// Judges `phases` by the goal `row`, against the baseline with the least favourable median. Returns `None` if no
/// round measured both engines.
pub(crate) fn judge(row: &Row, phases: &[PhaseReport]) -> Option<Judged> {
    let whole;
    let phases = match row.source {
        Dynamic(_) => {
            whole = combined(phases, row.phase);
            &whole[..]
        }
        _ => phases,
    };
    let less = row.quantity.less_is_better();
    let of_goal: Vec<PhaseReport> = phases.iter().filter(|phase| phase.name == row.phase).cloned().collect();
    let bases = names(&of_goal, |phase| &phase.engine).into_iter().filter(|name| name.starts_with(BASELINE));
    let quantity = |phase: &PhaseReport| row.quantity.of(phase);
    let noise = control_noise(&of_goal, row.phase, OURS, quantity);
    let mut said = Verdict::Better;
    let (mut has_too_few, mut disagree) = (false, false);
    let mut worst: Option<(String, Spread)> = None;
    for base in bases {
        let values = ratios(&of_goal, row.phase, OURS, &base, quantity);
        // `Verdict::of` expects ratios of which more is better.
        let upright = if less { values.iter().map(|value| 1.0 / value).collect() } else { values.clone() };
        // A baseline without a usable round may be the best one, so there is no verdict without it.
        let of_base = Spread::of(upright).map_or(Verdict::TooFewRounds, |it| Verdict::of(&it, noise));
        has_too_few |= of_base == Verdict::TooFewRounds;
        said = said.min(of_base);
        let Some(spread) = Spread::of(values) else { continue };
        disagree |= row.is_contradicted(&spread);
        let is_worse = |than: &(String, Spread)| match less {
            true => spread.median > than.1.median,
            false => spread.median < than.1.median,
        };
        if worst.as_ref().is_none_or(is_worse) {
            worst = Some((base, spread));
        }
    }
    let (base, spread) = worst?;
    let verdict = match said {
        _ if is_short(&of_goal, row.phase, OURS, BASELINE) => "too short",
        _ if has_too_few => Verdict::TooFewRounds.text(),
        _ => row.verdict(&spread, said, disagree, noise.unwrap_or(f64::INFINITY)),
    };
    Some(Judged { spread, base, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(engine: &str, ops: u64, seconds: f64) -> PhaseReport {
        PhaseReport {
            name: "dynamic I A".to_owned(),
            engine: engine.to_owned(),
            round: 1,
            usable: true,
            ops,
            seconds,
            ops_per_s: ops as f64 / seconds,
            ..PhaseReport::default()
        }
    }

    #[test]
    fn a_plan_counts_as_all_operations_over_all_time() {
        let mut slow = phase("drumlin", 10, 10.0);
        slow.name = "dynamic I B".to_owned();
        slow.settle_seconds = 2.0;
        let noisy = PhaseReport { usable: false, ..phase("drumlin", 10, 100.0) };
        let phases = [noisy, phase("drumlin", 10, 1.0), slow];
        let [whole] = &combined(&phases, "dynamic I")[..] else { panic!("one") };
        assert!((whole.ops_per_s - 20.0 / 11.0).abs() < 1e-9);
        assert!((whole.ops_per_s_settled() - 20.0 / 13.0).abs() < 1e-9);
    }

    #[test]
    fn the_better_baseline_counts() {
        let row = row(18, "dynamic I", "dynamic I A", Small("x"), Throughput, 2.0);
        let of_round = |round: u64| {
            let engines = [("drumlin", 30), ("rocksdb", 10), ("rocksdb-tuned", 20)];
            engines.map(|(engine, ops)| PhaseReport { round, ..phase(engine, ops, 1.0) })
        };
        let phases = [of_round(1), of_round(2), of_round(3)].concat();
        let judged = judge(&row, &phases).expect("a ratio");
        assert_eq!((judged.spread.median, &*judged.base, judged.verdict), (1.5, "rocksdb-tuned", "missed"));
        let judged = judge(&row, &phases[..6]).expect("a ratio");
        assert_eq!(judged.verdict, "too few rounds");
        // The better baseline was too noisy in every round.
        let noisy = phases
            .iter()
            .map(|phase| PhaseReport { usable: phase.engine != "rocksdb-tuned", ..phase.clone() });
        let judged = judge(&row, &noisy.collect::<Vec<_>>()).expect("a ratio");
        assert_eq!((judged.spread.median, judged.verdict), (3.0, "too few rounds"));
    }

    #[test]
    fn a_median_is_judged_with_the_target() {
        let said_with = |noise: f64, row: &Row, [min, median, max]: [f64; 3]| {
            let spread = Spread { median, min, max, rounds: 3 };
            let upright = match row.quantity.less_is_better() {
                true => Spread { median: 1.0 / median, min: 1.0 / max, max: 1.0 / min, rounds: 3 },
                false => spread,
            };
            row.verdict(&spread, Verdict::of(&upright, Some(noise)), row.is_contradicted(&spread), noise)
        };
        let said = |row: &Row, rounds: [f64; 3]| said_with(0.0, row, rounds);
        let fast = |target| row(1, "x", "x", Small("x"), Throughput, target);
        let lean = |target| row(1, "x", "x", Small("x"), WriteAmp, target);
        assert_eq!(said(&lean(0.7), [0.5, 0.6, 0.8]), "met");
        assert_eq!(said(&fast(2.0), [1.9, 1.95, 2.1]), "missed by less than 5 %");
        assert_eq!(said(&fast(2.0), [1.0, 1.01, 1.02]), "missed");
        assert_eq!(said(&fast(2.0), [0.9, 2.5, 2.6]), "undecided");
        // Parity meets a target of 1, and one that allows a bit more.
        assert_eq!(said(&fast(1.0), [0.99, 1.01, 1.02]), "met");
        assert_eq!(said(&lean(1.1), [1.06, 1.08, 1.09]), "met");
        // But not if the rounds disagree.
        assert_eq!(said(&fast(1.0), [0.9, 1.2, 1.3]), "undecided");
        assert_eq!(said(&fast(1.0), [0.84, 0.86, 1.14]), "missed");
        assert_eq!(said(&lean(1.0), [0.7, 0.8, 1.02]), "undecided");
        assert_eq!(said(&lean(1.1), [0.7, 0.8, 1.02]), "met", "every round reaches it");
        // Not by less than the noise, unless every round reaches it.
        assert_eq!(said_with(0.6, &fast(2.3), [1.2, 2.35, 3.5]), "undecided");
        assert_eq!(said_with(0.6, &fast(2.3), [2.3, 2.35, 3.5]), "met");
        assert_eq!(said_with(0.6, &fast(1.0), [0.55, 1.01, 1.9]), "undecided", "parity");
        assert_eq!(said_with(0.03, &fast(2.3), [2.1, 2.25, 3.5]), "missed, within A/A noise");
        assert_eq!(said_with(0.03, &fast(2.3), [2.1, 2.2, 3.5]), "missed by less than 5 %");
    }

    #[test]
    fn one_report_decides() {
        for row in &ROWS {
            assert!(!row.source.informing().contains(&row.source.deciding()), "{}", row.what);
        }
        assert_eq!((Small("fillrandom").deciding(), Ycsb("a").deciding()), ("load", "ycsb-large"));
        assert_eq!((Small("scan50").deciding(), Small("scan50").informing()), ("large", &["small"][..]));
    }

    #[test]
    fn what_says_nothing_meets_no_goal() {
        // Seconds of drumlin, its control and rocksdb in each round, for a ratio of at least 2.
        let judged = |row: &Row, rounds: [[f64; 3]; 3]| {
            let of_round = |(round, seconds): (usize, [f64; 3])| {
                let engines = ["drumlin", "drumlin#2", "rocksdb"].into_iter().zip(seconds);
                engines.map(move |(engine, s)| PhaseReport {
                    round: round as u64 + 1,
                    write_amp: Some(s),
                    ..phase(engine, 100_000, s)
                })
            };
            let phases: Vec<PhaseReport> = rounds.into_iter().enumerate().flat_map(of_round).collect();
            judge(row, &phases).expect("a ratio").verdict
        };
        let fast = row(18, "x", "dynamic I A", Small("x"), Throughput, 2.0);
        let quiet = [1.0, 1.0, 2.5];
        assert_eq!(judged(&fast, [quiet; 3]), "met");
        assert_eq!(judged(&fast, [quiet.map(|s| s / 20.0); 3]), "too short");
        assert_eq!(judged(&fast, [quiet, quiet, [1.0, 3.0, 2.5]]), "within A/A noise");
        assert_eq!(judged(&fast, [quiet, quiet, [1.0, 0.5, 2.5]]), "met", "the noise is smaller");
        assert_eq!(judged(&fast, [quiet, quiet, [1.0, 1.0, 0.9]]), "undecided", "one round is slower");
        assert_eq!(judged(&fast, [[1.0, 1.0, 1.5]; 3]), "missed");
        assert_eq!(judged(&fast, [[1.0, 2.0, 1.5]; 3]), "missed, within A/A noise");
        // Less is better: the same seconds are a ratio of 0.4.
        let lean = row(21, "x", "dynamic I A", Small("x"), WriteAmp, 0.7);
        assert_eq!(judged(&lean, [quiet; 3]), "met");
        assert_eq!(judged(&lean, [quiet, quiet, [1.0, 1.0, 0.9]]), "undecided");
    }

    #[test]
    fn a_load_counts_with_the_work_it_leaves_behind() {
        let load = PhaseReport { settle_seconds: 3.0, ..phase("drumlin", 8, 1.0) };
        assert_eq!((Throughput.of(&load), Settled.of(&load)), (Some(8.0), Some(2.0)));
    }
}
