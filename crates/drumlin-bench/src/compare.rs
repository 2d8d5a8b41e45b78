//! Ratios of engines, and what they mean.
//!
//! A ratio is of two engines in one round, whose streams have equal digests; the result is the median of the rounds with
//! minimum and maximum. Rounds that met noise are left out. A difference counts when it is above 5 % and above what the
//! engine differs from its own control, where one ran. A ratio never uses a number of another invocation.

use crate::report::model::PhaseReport;
use crate::rounds::CONTROL;

/// Differences of throughput that say nothing.
pub const NO_DIFFERENCE: f64 = 0.05;

/// Median, minimum and maximum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there were.
    pub rounds: usize,
}

impl Spread {
    /// Of `values`; `None` when there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        Some(Spread { median, min, max, rounds: values.len() })
    }
}

/// What a ratio says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// More than the noise above 1.
    Better,
    /// More than the noise below 1.
    Worse,
    /// Neither, or the rounds disagree.
    NoDifference,
    /// There is no second round to tell a difference from noise.
    OneRound,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference => "no difference",
            Verdict::OneRound => "one round",
        }
    }

    /// Of the spread of a ratio of which more is better, against noise of `noise`.
    pub fn of(spread: &Spread, noise: f64) -> Verdict {
        let (low, high) = (1.0 - noise.max(NO_DIFFERENCE), 1.0 + noise.max(NO_DIFFERENCE));
        match spread.median {
            _ if spread.rounds < 2 => Verdict::OneRound,
            median if median > high && spread.min > 1.0 => Verdict::Better,
            median if median < low && spread.max < 1.0 => Verdict::Worse,
            _ => Verdict::NoDifference,
        }
    }
}

/// One phase in which two engines did the same work.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The phase.
    pub name: String,
    /// The engine above the line.
    pub engine: String,
    /// The engine below it.
    pub base: String,
    /// Operations per second.
    pub throughput: Spread,
    /// CPU time of the calling threads, base over engine: more is better.
    pub thread_cpu: Option<Spread>,
    /// What it says.
    pub verdict: Verdict,
}

/// The usable reports of `engine` in phase `name`.
fn of<'a>(
    phases: &'a [PhaseReport],
    engine: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a PhaseReport> {
    phases.iter().filter(move |p| p.usable && p.engine == engine && p.name == name)
}

/// Names of phases, and of engines, in the order in which they first come.
pub fn names(phases: &[PhaseReport], of: fn(&PhaseReport) -> &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for phase in phases {
        if !names.iter().any(|name| name == of(phase)) {
            names.push(of(phase).to_owned());
        }
    }
    names
}

/// Ratios of `quantity` over the rounds in which both engines did the same work.
pub fn ratios(
    phases: &[PhaseReport],
    name: &str,
    engine: &str,
    base: &str,
    quantity: impl Fn(&PhaseReport) -> Option<f64>,
) -> Vec<f64> {
    let pairs = of(phases, engine, name).filter_map(|a| {
        let b = of(phases, base, name).find(|b| b.round == a.round && b.stream == a.stream)?;
        let (above, below) = (quantity(a)?, quantity(b)?);
        (below > 0.0).then(|| above / below)
    });
    pairs.collect()
}

/// Whether two engines have a round of phase `name` with different work.
pub fn streams_differ(phases: &[PhaseReport], name: &str) -> bool {
    let of_name: Vec<_> = phases.iter().filter(|phase| phase.name == name).collect();
    of_name.iter().any(|a| of_name.iter().any(|b| a.round == b.round && a.stream != b.stream))
}

/// How far `engine` was from its own control in phase `name`; 0 without a control.
fn control_noise(phases: &[PhaseReport], name: &str, engine: &str) -> f64 {
    let control = format!("{engine}{CONTROL}");
    let rates = ratios(phases, name, engine, &control, |phase| Some(phase.ops_per_s));
    rates.iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max)
}

/// Every phase of `engine` beside every other engine, the worst first.
pub fn compare(phases: &[PhaseReport], engine: &str) -> Vec<Comparison> {
    let engines = names(phases, |phase| &phase.engine);
    let mut comparisons = Vec::new();
    for base in engines.iter().filter(|base| *base != engine) {
        for name in names(phases, |phase| &phase.name) {
            let rates = ratios(phases, &name, engine, base, |phase| Some(phase.ops_per_s));
            let Some(throughput) = Spread::of(rates) else { continue };
            let cpu = ratios(phases, &name, base, engine, |phase| Some(phase.thread_cpu_us_per_op));
            let verdict = Verdict::of(&throughput, control_noise(phases, &name, engine));
            comparisons.push(Comparison {
                name,
                engine: engine.to_owned(),
                base: base.clone(),
                throughput,
                thread_cpu: Spread::of(cpu),
                verdict,
            });
        }
    }
    comparisons.sort_by(|a, b| a.throughput.median.total_cmp(&b.throughput.median));
    comparisons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(engine: &str, round: u64, stream: &str, rate: f64) -> PhaseReport {
        PhaseReport {
            name: "fill".to_owned(),
            engine: engine.to_owned(),
            round,
            stream: stream.to_owned(),
            ops_per_s: rate,
            usable: rate > 0.5,
            ..PhaseReport::default()
        }
    }

    #[test]
    fn ratios_are_of_the_same_round_and_the_same_work() {
        let phases = [
            phase("a", 1, "s", 30.0),
            phase("b", 1, "s", 10.0),
            phase("a", 2, "t", 20.0),
            phase("b", 2, "t", 10.0),
            phase("a", 3, "u", 90.0),
            phase("b", 3, "v", 10.0),
            phase("a", 4, "w", 0.1),
            phase("b", 4, "w", 10.0),
        ];
        let [only] = &compare(&phases, "a")[..] else { panic!("one comparison") };
        assert_eq!(only.throughput, Spread { median: 2.5, min: 2.0, max: 3.0, rounds: 2 });
        assert_eq!(only.verdict, Verdict::Better);
        assert!(streams_differ(&phases, "fill"));
        let noisy = [&phases[..], &[phase("a#2", 1, "s", 10.0)]].concat();
        let against_b = compare(&noisy, "a").into_iter().find(|c| c.base == "b").expect("b is there");
        assert_eq!(against_b.verdict, Verdict::NoDifference, "three times off its own control");
    }

    #[test]
    fn small_or_contradictory_ratios_say_nothing() {
        let verdict = |values: &[f64]| Verdict::of(&Spread::of(values.to_vec()).expect("values"), 0.0);
        assert_eq!(verdict(&[1.04, 1.03]), Verdict::NoDifference);
        assert_eq!(verdict(&[0.9, 1.2, 1.3]), Verdict::NoDifference);
        assert_eq!(verdict(&[1.06, 1.2, 1.3]), Verdict::Better);
        assert_eq!(verdict(&[0.7, 0.8, 0.99]), Verdict::Worse);
        assert_eq!(verdict(&[7.0]), Verdict::OneRound);
    }
}
