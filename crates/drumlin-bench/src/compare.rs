//! Ratios between engines, and the verdicts drawn from them.
//!
//! A ratio compares two engines in one round in which the digests of their operation streams are equal. The result is
//! the median over the rounds, with minimum and maximum. Noisy rounds are excluded. A difference counts if it exceeds
//! 5 %, and the largest difference between the engine and its control run, if there was one. A ratio never combines
//! numbers of different invocations.

use crate::report::model::PhaseReport;
pub use crate::report::model::names;
use crate::rounds::CONTROL;

/// Relative difference in throughput below which engines count as equal.
pub const NO_DIFFERENCE: f64 = 0.05;

/// Number of usable rounds that a verdict needs.
pub const LEAST_ROUNDS: usize = 3;

/// Seconds that a phase of at least [`MANY`] operations must take for a verdict. The noise check sees nothing of a
/// shorter one: the system counts CPU time in steps of ten milliseconds.
pub const SHORTEST: f64 = 0.1;
/// Number of operations below which each is long.
pub const MANY: u64 = 1000;

/// Median, minimum and maximum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// Computes the spread of `values`; `None` if there are none.
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

    /// Returns the median with minimum and maximum; that of one round alone, which has no spread.
    pub fn text(&self) -> String {
        let Spread { median, min, max, rounds } = self;
        if *rounds == 1 { format!("{median:.2}") } else { format!("{median:.2} ({min:.2}-{max:.2})") }
    }
}

/// Verdict on a ratio. Ordered from the least favourable one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The engine is worse by more than the noise.
    Worse,
    /// The difference is at most 5 %, or the rounds disagree.
    NoDifference,
    /// The difference is above 5 % and the rounds agree, but two runs of the engine itself differ as much.
    WithinNoise,
    /// Fewer than [`LEAST_ROUNDS`] rounds, so a difference cannot be told from noise.
    TooFewRounds,
    /// The engine is better by more than the noise.
    Better,
}

impl Verdict {
    /// Returns the verdict as text.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifference => "no difference",
            Verdict::WithinNoise => "within A/A noise",
            Verdict::TooFewRounds => "too few rounds",
        }
    }

    /// Returns the verdict on `spread`, a ratio for which larger is better. `noise` is the relative noise, if it is
    /// known.
    pub fn of(spread: &Spread, noise: Option<f64>) -> Verdict {
        let Some(noise) = noise else { return Verdict::TooFewRounds };
        let difference = spread.median - 1.0;
        let agree = spread.min > 1.0 || spread.max < 1.0;
        match difference.abs() {
            _ if spread.rounds < LEAST_ROUNDS => Verdict::TooFewRounds,
            apart if !agree || apart <= NO_DIFFERENCE => Verdict::NoDifference,
            apart if apart <= noise => Verdict::WithinNoise,
            _ if difference > 0.0 => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// Comparison of two engines in one phase in which both did the same work.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Name of the phase.
    pub name: String,
    /// Engine in the numerator.
    pub engine: String,
    /// Engine in the denominator.
    pub base: String,
    /// Ratio of operations per second, with the settling after the phase.
    pub throughput: Spread,
    /// Ratio of the CPU time of the calling threads, base over engine; larger is better.
    pub thread_cpu: Option<Spread>,
    /// Verdict on the throughput.
    pub verdict: Verdict,
}

/// Returns the usable reports of `engine` in phase `name`.
fn of<'a>(
    phases: &'a [PhaseReport],
    engine: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a PhaseReport> {
    phases.iter().filter(move |p| p.usable && p.engine == engine && p.name == name)
}

/// Returns the ratio of `quantity` for each round in which both engines did the same work.
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

/// Returns whether two engines did different work in some round of phase `name`.
pub fn streams_differ(phases: &[PhaseReport], name: &str) -> bool {
    let of_name: Vec<_> = phases.iter().filter(|phase| phase.name == name).collect();
    of_name.iter().any(|a| of_name.iter().any(|b| a.round == b.round && a.stream != b.stream))
}

/// Returns the largest relative difference in `quantity` between `engine` and its control in phase `name`; 0 without
/// a control, and `None` if the control has too few usable rounds to tell.
pub fn control_noise(
    phases: &[PhaseReport],
    name: &str,
    engine: &str,
    quantity: impl Fn(&PhaseReport) -> Option<f64>,
) -> Option<f64> {
    let control = format!("{engine}{CONTROL}");
    let is_there = phases.iter().any(|phase| phase.name == name && phase.engine == control);
    let rates = ratios(phases, name, engine, &control, quantity);
    let noise = rates.iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    (!is_there || rates.len() >= LEAST_ROUNDS).then_some(noise)
}

/// Returns whether phase `name` was too short for a verdict, with `engine` or with an engine whose name begins with
/// `baseline`.
pub fn is_short(phases: &[PhaseReport], name: &str, engine: &str, baseline: &str) -> bool {
    let engines = names(phases, |phase| &phase.engine);
    let mut compared = engines.iter().filter(|known| *known == engine || known.starts_with(baseline));
    compared.any(|engine| {
        let has_many = of(phases, engine, name).all(|phase| phase.ops >= MANY);
        let seconds = of(phases, engine, name).map(|phase| phase.seconds + phase.settle_seconds);
        has_many && Spread::of(seconds.collect()).is_some_and(|it| it.median < SHORTEST)
    })
}

/// Compares every phase of `engine` with every other engine, worst ratio first.
pub fn compare(phases: &[PhaseReport], engine: &str) -> Vec<Comparison> {
    let engines = names(phases, |phase| &phase.engine);
    let mut comparisons = Vec::new();
    for base in engines.iter().filter(|base| *base != engine) {
        for name in names(phases, |phase| &phase.name) {
            let rates = ratios(phases, &name, engine, base, |phase| Some(phase.ops_per_s_settled()));
            let Some(throughput) = Spread::of(rates) else { continue };
            let cpu = ratios(phases, &name, base, engine, |phase| Some(phase.thread_cpu_us_per_op));
            let noise = control_noise(phases, &name, engine, |phase| Some(phase.ops_per_s_settled()));
            let verdict = Verdict::of(&throughput, noise);
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
            ops: rate as u64,
            seconds: 1.0,
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
            phase("a", 5, "x", 30.0),
            phase("b", 5, "x", 10.0),
        ];
        let [only] = &compare(&phases, "a")[..] else { panic!("one comparison") };
        assert_eq!(only.throughput, Spread { median: 3.0, min: 2.0, max: 3.0, rounds: 3 });
        assert_eq!(only.verdict, Verdict::Better);
        assert!(streams_differ(&phases, "fill"));
        let controls = [phase("a#2", 1, "s", 10.0), phase("a#2", 2, "t", 20.0), phase("a#2", 5, "x", 30.0)];
        let verdict = |controls: &[PhaseReport]| {
            let noisy = [&phases[..], controls].concat();
            compare(&noisy, "a").into_iter().find(|c| c.base == "b").expect("b is there").verdict
        };
        assert_eq!(verdict(&controls), Verdict::WithinNoise, "three times off its own control");
        assert_eq!(verdict(&controls[1..]), Verdict::TooFewRounds, "two rounds of the control");
    }

    #[test]
    fn small_or_contradictory_ratios_say_nothing() {
        let verdict = |values: &[f64]| Verdict::of(&Spread::of(values.to_vec()).expect("values"), Some(0.0));
        assert_eq!(verdict(&[1.04, 1.03, 1.02]), Verdict::NoDifference);
        assert_eq!(verdict(&[0.9, 1.2, 1.3]), Verdict::NoDifference);
        assert_eq!(verdict(&[1.06, 1.2, 1.3]), Verdict::Better);
        assert_eq!(verdict(&[0.7, 0.8, 0.99]), Verdict::Worse);
        assert_eq!(verdict(&[7.0, 7.0]), Verdict::TooFewRounds);
    }
}
