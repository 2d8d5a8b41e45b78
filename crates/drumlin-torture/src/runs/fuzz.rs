//! The fuzz run: mutated inputs for every decoder, without coverage feedback. `ci/fuzz.sh` is the nightly search with
//! feedback.
//!
//! Each case mutates an input of the corpus, in half of the cases corrects its checksums, and runs the target. A case
//! is one number: target and number give the same input again.

use crate::failure::Failure;
use crate::fuzz::{Target, check, corpus, heap, mutate, targets};
use crate::parallel;
use drumlin_env::Random;
use drumlin_env::sync::Arc;

/// Distance between the first cases of neighbouring seeds.
pub const SEED_STEP: u64 = 1 << 32;
/// Number of cases per unit of parallel work.
const PIECE: u64 = 500;

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    targets: u64,
    executions: u64,
    /// Number of inputs accepted as sound.
    accepted: u64,
    /// Failures: target, case and description.
    pub failures: Vec<(&'static str, u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let Figures { targets, executions, accepted, failures } = self;
        let crashes = failures.len();
        format!("fuzz: targets {targets}, executions {executions}, accepted {accepted}, crashes {crashes}")
    }
}

/// Returns the inputs from which cases are made: the corpus, or the target's own seeds where it has none.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    match corpus::all(target) {
        Ok(kept) if !kept.is_empty() => kept.into_iter().map(|(_, bytes)| bytes).collect(),
        _ => (target.seeds)(),
    }
}

/// Returns the input of case `case`.
pub fn input(target: &Target, inputs: &[Vec<u8>], case: u64) -> Vec<u8> {
    let mut random = Random::new(case, target.name);
    let mut input = inputs[random.index(inputs.len())].clone();
    let other = &inputs[random.index(inputs.len())];
    mutate::mutate(&mut random, &mut input, other);
    if random.chance(1, 2) {
        (target.mend)(&mut input);
    }
    input
}

/// Runs one case; returns whether the target accepted the input.
pub fn one(target: &Target, inputs: &[Vec<u8>], case: u64) -> Result<bool, Failure> {
    let input = input(target, inputs, case);
    heap::set_case(target.name, case);
    let accepted = parallel::guarded(|| Ok(check(target, &input)));
    heap::set_case("", 0);
    accepted
}

/// Runs the corpus of each target, then `cases` cases of each from `first` on; fewer where a case costs more. `only`
/// selects one target.
pub fn run(first: u64, cases: u64, only: Option<&str>) -> Figures {
    let chosen = targets::all().into_iter().filter(|target| only.is_none_or(|name| name == target.name));
    let mut figures = Figures::default();
    for target in chosen {
        figures.targets += 1;
        let cases = (cases / target.cost).max(1);
        let inputs = Arc::new(inputs(&target));
        for (number, input) in inputs.iter().enumerate() {
            figures.executions += 1;
            match parallel::guarded(|| Ok(check(&target, input))) {
                Ok(accepted) => figures.accepted += u64::from(accepted),
                Err(failure) => {
                    figures.failures.push((
                        target.name,
                        0,
                        failure.within(&format!("input {number} of the corpus")),
                    ));
                }
            }
        }
        let piece = move |number: u64| {
            let from = number * PIECE;
            let mut done = Piece::default();
            for case in (from..(from + PIECE).min(cases)).map(|case| first.wrapping_add(case)) {
                done.executions += 1;
                match one(&target, &inputs, case) {
                    Ok(accepted) => done.accepted += u64::from(accepted),
                    Err(failure) => {
                        done.failure = Some((case, failure));
                        break;
                    }
                }
            }
            Ok(done)
        };
        let pieces = parallel::each(cases.div_ceil(PIECE), piece);
        for done in pieces.into_iter().filter_map(|(_, done)| done.ok()) {
            figures.executions += done.executions;
            figures.accepted += done.accepted;
            figures.failures.extend(done.failure.map(|(case, failure)| (target.name, case, failure)));
        }
    }
    figures
}

/// Results of one unit of work; the first failure ends it.
#[derive(Default)]
struct Piece {
    executions: u64,
    accepted: u64,
    failure: Option<(u64, Failure)>,
}
