//! Ratios between engines, and the verdicts drawn from them.
//!
//! A ratio compares two engines in one round in which the digests of their operation streams are equal. A control is
//! a second run of an engine in the same round; the engine then counts with the geometric mean of both runs. The
//! result is the median over the rounds, with minimum and maximum. Noisy rounds are excluded. A difference counts if
//! all rounds agree on its direction and it exceeds both 5 % and the largest difference between the engine and its
//! control. A ratio never combines numbers of different invocations.
//!
//! Differences and noise are absolute logarithms of ratios, so a verdict does not depend on which engine is the base.

pub use crate::report::model::names;
use crate::report::model::{CONTROL, PhaseReport};

/// Relative difference in throughput below which engines count as equal.
const NO_DIFFERENCE: f64 = 0.05;

/// Number of usable rounds that a verdict needs.
pub const LEAST_ROUNDS: usize = 3;

/// Minimum duration of a phase for a verdict: seconds with settling, as the median over the rounds. The noise check
/// cannot judge a shorter phase, because the kernel counts CPU time in steps of ten milliseconds.
pub const SHORTEST: f64 = 0.1;
/// Number of operations from which on [`SHORTEST`] applies. With fewer operations, each is long enough to measure.
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

    /// Returns the median with minimum and maximum, or the median alone if there is only one round.
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
    /// The difference of the median is above 5 %, but in some round the other engine was ahead.
    Undecided,
    /// The difference of the median is at most 5 %.
    Equal,
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
            Verdict::Undecided => "undecided",
            Verdict::Equal => "equal",
            Verdict::WithinNoise => "within A/A noise",
            Verdict::TooFewRounds => "too few rounds",
        }
    }

    /// Returns the verdict on `spread`, a ratio for which larger is better. `noise` is the noise as the absolute
    /// logarithm of a ratio, if it is known.
    pub fn of(spread: &Spread, noise: Option<f64>) -> Verdict {
        let Some(noise) = noise else { return Verdict::TooFewRounds };
        let agree = spread.min > 1.0 || spread.max < 1.0;
        match spread.median.ln().abs() {
            _ if spread.rounds < LEAST_ROUNDS => Verdict::TooFewRounds,
            _ if is_equal(spread.median) => Verdict::Equal,
            _ if !agree => Verdict::Undecided,
            apart if apart <= noise => Verdict::WithinNoise,
            _ if spread.median > 1.0 => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

/// Returns whether a ratio is within 5 % of 1, upwards or downwards.
pub fn is_equal(ratio: f64) -> bool {
    ratio.ln().abs() <= NO_DIFFERENCE.ln_1p()
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

/// Returns the ratio of `quantity` for each round in which both engines did the same work. An engine with a control
/// counts with the geometric mean of the usable runs of both, unless it is compared with its own control.
pub fn ratios(
    phases: &[PhaseReport],
    name: &str,
    engine: &str,
    base: &str,
    quantity: impl Fn(&PhaseReport) -> Option<f64>,
) -> Vec<f64> {
    let is_control = engine.trim_end_matches(CONTROL) == base.trim_end_matches(CONTROL);
    let runs = |engine: &str| {
        let is_it = |phase: &&PhaseReport| match phase.engine.strip_suffix(CONTROL) {
            Some(own) if !is_control => own == engine,
            _ => phase.engine == engine,
        };
        phases.iter().filter(|p| p.usable && p.name == name).filter(is_it).collect::<Vec<_>>()
    };
    let (above, below) = (runs(engine), runs(base));
    // Operation streams are equal in one round, so one report stands for each round.
    let mut done: Vec<(u64, &str)> = Vec::new();
    let mut found = Vec::new();
    for run in &above {
        let same = |other: &&&PhaseReport| other.round == run.round && other.stream == run.stream;
        if done.contains(&(run.round, &*run.stream)) {
            continue;
        }
        done.push((run.round, &run.stream));
        let mean =
            |runs: &[&PhaseReport]| geometric_mean(runs.iter().filter(same).filter_map(|run| quantity(run)));
        if let (Some(above), Some(below)) = (mean(&above), mean(&below))
            && below > 0.0
        {
            found.push(above / below);
        }
    }
    found
}

/// Returns the geometric mean of `values`; `None` if there are none.
fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().product::<f64>().powf(1.0 / values.len() as f64))
}

/// Returns whether two engines did different work in some round of phase `name`.
pub fn streams_differ(phases: &[PhaseReport], name: &str) -> bool {
    let of_name: Vec<_> = phases.iter().filter(|phase| phase.name == name).collect();
    of_name.iter().any(|a| of_name.iter().any(|b| a.round == b.round && a.stream != b.stream))
}

/// Returns the noise of `engine` in phase `name`: its largest difference in `quantity` from its control, as the
/// absolute logarithm of a ratio. It is 0 without a control, and `None` if the control has too few usable rounds.
pub fn control_noise(
    phases: &[PhaseReport],
    name: &str,
    engine: &str,
    quantity: impl Fn(&PhaseReport) -> Option<f64>,
) -> Option<f64> {
    let control = format!("{engine}{CONTROL}");
    let is_there = phases.iter().any(|phase| phase.name == name && phase.engine == control);
    let rates = ratios(phases, name, engine, &control, quantity);
    let noise = rates.iter().map(|ratio| ratio.ln().abs()).fold(0.0, f64::max);
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
        assert_eq!(verdict(&[1.04, 1.03, 1.02]), Verdict::Equal);
        assert_eq!(verdict(&[0.9, 1.04, 1.3]), Verdict::Equal);
        assert_eq!(verdict(&[0.9, 1.2, 1.3]), Verdict::Undecided);
        assert_eq!(verdict(&[1.06, 1.2, 1.3]), Verdict::Better);
        assert_eq!(verdict(&[0.7, 0.8, 0.99]), Verdict::Worse);
        assert_eq!(verdict(&[7.0, 7.0]), Verdict::TooFewRounds);
    }

    #[test]
    fn exchanged_engines_exchange_the_verdict() {
        let exchanged = |verdict: Verdict| match verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            verdict => verdict,
        };
        for noise in [0.0, 0.1, 0.47, 0.8] {
            for median in [0.2, 0.4, 0.625, 0.94, 0.96, 1.0, 1.04, 1.06, 1.6, 2.5, 5.0] {
                let of = |median: f64| {
                    let values = vec![median * 0.99, median, median / 0.99];
                    Verdict::of(&Spread::of(values).expect("values"), Some(noise))
                };
                assert_eq!(of(1.0 / median), exchanged(of(median)), "{median}, noise {noise}");
            }
        }
    }

    #[test]
    fn both_runs_of_an_engine_count_in_its_ratio() {
        let phases = [phase("a", 1, "s", 40.0), phase("a#2", 1, "s", 10.0), phase("b", 1, "s", 5.0)];
        let rate = |phase: &PhaseReport| Some(phase.ops_per_s);
        assert_eq!(ratios(&phases, "fill", "a", "b", rate), [4.0]);
        assert_eq!(ratios(&phases, "fill", "b", "a", rate), [0.25]);
        assert_eq!(ratios(&phases, "fill", "a", "a#2", rate), [4.0]);
        assert_eq!(ratios(&phases[1..], "fill", "a", "b", rate), [2.0], "one of them was too noisy");
    }
}
