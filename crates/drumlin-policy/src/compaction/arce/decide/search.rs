//! The search for the cheapest parameter tuple (Algorithm 1 of the paper).
//!
//! Every tuple is simulated from the same start over the same horizon. The incumbent, the tuple in force, goes first.
//! It is replaced only by a tuple that is at least 0.5 % cheaper. The search abandons tuples that can no longer win.
//! Its last candidates are the neighbours of the best tuple. It runs in small steps, and their number depends on the
//! start alone, so a replay is exact.

use crate::compaction::arce::measure::model::bounded;
use crate::compaction::arce::score::formula::Tuple;
use crate::compaction::arce::score::state::{LEAST_SLOW_ABOVE, MOST_SLOW_ABOVE, StateReader, StateWriter};
use crate::compaction::arce::simulate::rollout::{Ended, Rollout, RolloutStart, Scratch};
use crate::real;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drumlin_types::contract::{PolicyError, SearchTask};

/// Cost of a new tuple, relative to the incumbent's, below which it replaces the incumbent.
const HYSTERESIS: f64 = 0.995;
/// Number of values of M in the grid.
const GAIN_STEPS: usize = 6;
/// Values of c in the grid, as shares of the run limit.
const SLOW_ABOVE_SHARES: [f64; 3] = [8.0 / 64.0, 24.0 / 64.0, 48.0 / 64.0];
/// Values of rho tried for the best tuple; the grid has the first and the last.
const SIZE_RATIOS: [f64; 4] = [1.0, 4.0, 16.0, f64::INFINITY];
/// Events that a step simulates.
const EVENTS: u32 = 256;
/// Number of tuples that the answer lists.
const TOLD: usize = 5;

/// A running search.
pub(crate) struct Search {
    start: Arc<RolloutStart>,
    queue: Vec<Tuple>,
    next: usize,
    rollout: Option<Rollout>,
    scratch: Scratch,
    refined: bool,
    /// Whether tuples may have a finite size ratio rho.
    rho: bool,
    /// Whether the engine should prefer this search, since the operation mix changed.
    urgent: bool,
    answer: SearchResult,
}

/// The result of a search.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SearchResult {
    pub(crate) tuple: Tuple,
    /// Predicted cost of an operation.
    pub(crate) cost: f64,
    /// Predicted mean of the covered runs.
    pub(crate) runs: f64,
    /// Cost of the incumbent.
    pub(crate) incumbent: f64,
    /// Steps taken.
    pub(crate) steps: u64,
    /// Whether the search has finished.
    pub(crate) done: bool,
    /// The best tuples with their costs, best first.
    pub(crate) best: Vec<(Tuple, f64)>,
}

impl Search {
    /// Creates a search that starts with `incumbent` and goes on with the grid. Without `rho` it tries only tuples of
    /// an infinite size ratio. `whole_tree` is the number of flush intervals that a compaction of the whole tree
    /// takes.
    pub(crate) fn new(start: RolloutStart, incumbent: Tuple, whole_tree: f64, rho: bool) -> Search {
        let mut queue = grid(incumbent, start.limits.max_runs, whole_tree);
        queue.retain(|tuple| rho || tuple.size_ratio.is_infinite());
        let answer = SearchResult {
            tuple: incumbent,
            cost: f64::INFINITY,
            runs: 0.0,
            incumbent: f64::INFINITY,
            steps: 0,
            done: false,
            best: Vec::new(),
        };
        let (start, scratch) = (Arc::new(start), Scratch::default());
        Search { start, queue, next: 0, rollout: None, scratch, refined: false, rho, urgent: false, answer }
    }

    /// Sets whether the search answers a new mix of operations.
    pub(crate) fn urgent(self, urgent: bool) -> Search {
        Search { urgent, ..self }
    }

    /// Returns the cost above which the running rollout can no longer win.
    fn bound(&self) -> f64 {
        if self.next <= 1 { f64::INFINITY } else { self.answer.cost.min(self.answer.incumbent * HYSTERESIS) }
    }

    /// Records the result of a rollout that reached the horizon.
    fn ended(&mut self, tuple: Tuple, cost: f64, runs: f64) {
        let answer = &mut self.answer;
        if self.next == 1 {
            answer.incumbent = cost;
        }
        let is_better = self.next == 1 || (cost < answer.incumbent * HYSTERESIS && cost < answer.cost);
        if is_better {
            (answer.tuple, answer.cost, answer.runs) = (tuple, cost, runs);
        }
        let at = answer.best.partition_point(|(_, other)| *other <= cost);
        answer.best.insert(at, (tuple, cost));
        answer.best.truncate(TOLD);
    }
}

impl SearchTask for Search {
    fn is_urgent(&self) -> bool {
        self.urgent
    }

    fn step(&mut self) -> Option<Vec<u8>> {
        self.answer.steps += 1;
        let bound = self.bound();
        if let Some(rollout) = &mut self.rollout {
            let ended = rollout.advance(EVENTS, bound);
            if ended == Ended::No {
                return None;
            }
            let (tuple, runs) = (rollout.tuple(), rollout.mean_runs());
            self.scratch = self.rollout.take().map(Rollout::into_scratch).unwrap_or_default();
            if let Ended::At(cost) = ended {
                self.ended(tuple, cost, runs);
            }
        }
        if self.next == self.queue.len() && !self.refined {
            self.refined = true;
            let tried = core::mem::take(&mut self.queue);
            let best = self.answer.best.first().map_or(self.answer.tuple, |(tuple, _)| *tuple);
            let neighbours = neighbours(best, self.start.limits.max_runs);
            self.queue = tried.clone();
            let is_new =
                |tuple: &Tuple| !tried.contains(tuple) && (self.rho || tuple.size_ratio.is_infinite());
            self.queue.extend(neighbours.into_iter().filter(is_new));
        }
        let Some(&tuple) = self.queue.get(self.next) else {
            self.answer.done = true;
            return Some(self.answer.encode());
        };
        self.next += 1;
        self.rollout = Some(Rollout::new(&self.start, tuple, core::mem::take(&mut self.scratch)));
        None
    }

    fn best(&self) -> Option<Vec<u8>> {
        (!self.answer.best.is_empty()).then(|| self.answer.encode())
    }
}

/// Returns the incumbent, then all combinations of the coarse values.
fn grid(incumbent: Tuple, max_runs: f64, whole_tree: f64) -> Vec<Tuple> {
    let mut tuples = Vec::from([incumbent]);
    let most = whole_tree.max(8.0);
    let limits = SLOW_ABOVE_SHARES.map(|share| bounded(share * max_runs, LEAST_SLOW_ABOVE, MOST_SLOW_ABOVE));
    for step in 0..GAIN_STEPS {
        let gain_intervals = real::power(most, step as f64 / (GAIN_STEPS - 1) as f64);
        for slow_above in limits.into_iter().chain([f64::INFINITY]) {
            for size_ratio in [1.0, f64::INFINITY] {
                tuples.push(Tuple { gain_intervals, slow_above, passes: 2.0, size_ratio });
            }
        }
    }
    tuples
}

/// Returns the tuples that differ from `best` in one parameter.
fn neighbours(best: Tuple, max_runs: f64) -> Vec<Tuple> {
    // Roughly half a step of the grid, whose neighbouring values of M differ by up to a factor of about 4.
    let half = 1.6;
    let mut tuples = Vec::from([
        Tuple { gain_intervals: best.gain_intervals * half, ..best },
        Tuple { gain_intervals: (best.gain_intervals / half).max(1.0), ..best },
        Tuple { passes: 1.0, ..best },
        Tuple { passes: 4.0, ..best },
        Tuple { slow_above: f64::INFINITY, ..best },
    ]);
    let ratios = SIZE_RATIOS.into_iter().filter(|size_ratio| *size_ratio != best.size_ratio);
    tuples.extend(ratios.map(|size_ratio| Tuple { size_ratio, ..best }));
    let limits = SLOW_ABOVE_SHARES.map(|share| bounded(share * max_runs, LEAST_SLOW_ABOVE, MOST_SLOW_ABOVE));
    let above = limits.iter().find(|limit| **limit > best.slow_above);
    let below = limits.iter().rev().find(|limit| **limit < best.slow_above);
    tuples.extend(above.into_iter().chain(below).map(|&slow_above| Tuple { slow_above, ..best }));
    tuples
}

/// First byte of an encoded answer.
const VERSION: u8 = 1;

impl SearchResult {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = StateWriter::new(VERSION);
        writer.tuple(&self.tuple);
        let done = f64::from(u8::from(self.done));
        let count = self.best.len() as f64;
        writer.numbers(&[self.cost, self.runs, self.incumbent, self.steps as f64, done, count]);
        for (tuple, cost) in &self.best {
            writer.tuple(tuple);
            writer.numbers(&[*cost]);
        }
        writer.done()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SearchResult, PolicyError> {
        let mut reader = StateReader::new(bytes, VERSION)?;
        let tuple = reader.tuple()?;
        let [cost, runs, incumbent, steps, done, count] = reader.numbers()?;
        let mut best = Vec::new();
        for _ in 0..(count as usize).min(TOLD) {
            let tuple = reader.tuple()?;
            let [cost] = reader.numbers()?;
            best.push((tuple, cost));
        }
        Ok(SearchResult { tuple, cost, runs, incumbent, steps: steps as u64, done: done == 1.0, best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::candidates::interval::tests::{full_scale, line};
    use crate::compaction::arce::measure::guard::RewriteBudget;
    use crate::compaction::arce::measure::model::paper;
    use crate::compaction::arce::simulate::rollout::Limits;
    use crate::schedule::PieceBytes;

    fn start(mix: (f64, f64, f64), horizon: f64) -> RolloutStart {
        let flushes: Vec<f64> = core::iter::repeat_n(2.0, 5).chain([40.0, 600.0, 4096.0]).collect();
        RolloutStart {
            model: paper::model(mix.0, mix.1, mix.2),
            scale: full_scale(),
            line: line(&flushes),
            flushed: full_scale().full,
            jobs: Vec::new(),
            limits: Limits {
                max_runs: 64.0,
                pieces: PieceBytes::of_files(64 << 20),
                interleave: true,
                short_first: true,
                even: true,
                fixed_delay: None,
            },
            budget: RewriteBudget::new(1e12, 20.0),
            horizon,
        }
    }

    pub(crate) fn run(search: &mut Search) -> SearchResult {
        loop {
            if let Some(answer) = search.step() {
                return SearchResult::decode(&answer).unwrap();
            }
        }
    }

    /// The answer is saved with c in these bounds, so other values must not be simulated.
    #[test]
    fn every_tuple_is_one_that_can_be_saved() {
        for max_runs in [8.0, 15.0, 64.0, 512.0] {
            let best = Tuple { slow_above: 2.0, ..Tuple::PRIOR };
            for tuple in grid(Tuple::PRIOR, max_runs, 500.0).into_iter().chain(neighbours(best, max_runs)) {
                let c = tuple.slow_above;
                assert!(
                    c.is_infinite() || (LEAST_SLOW_ABOVE..=MOST_SLOW_ABOVE).contains(&c),
                    "{c} of {max_runs}"
                );
            }
        }
    }

    #[test]
    fn a_search_finds_the_best_of_its_tuples_and_settles() {
        for mix in [(98.0, 1.0, 1.0), (1.0, 98.0, 1.0), (33.0, 33.0, 34.0), (1.0, 1.0, 98.0)] {
            let start = start(mix, 400.0);
            let mut search = Search::new(start.clone(), Tuple::PRIOR, 500.0, true);
            let answer = run(&mut search);
            assert!(answer.cost <= answer.incumbent && answer.cost.is_finite(), "{answer:?}");
            // Compare with every tuple simulated alone, none abandoned.
            let start = Arc::new(start);
            for tuple in &search.queue {
                let mut rollout = Rollout::new(&start, *tuple, Scratch::default());
                let Ended::At(cost) = rollout.advance(u32::MAX, f64::INFINITY) else { panic!("no end") };
                assert!(
                    cost >= answer.cost.min(answer.incumbent * HYSTERESIS) * (1.0 - 1e-9),
                    "{mix:?} {tuple:?}"
                );
            }
            // Repeated from its own answer, the search moves to better neighbours and then settles.
            let next = |answer: &SearchResult| {
                run(&mut Search::new(RolloutStart::clone(&start), answer.tuple, 500.0, true))
            };
            let answers: Vec<SearchResult> =
                core::iter::successors(Some(answer.clone()), |answer| Some(next(answer))).take(5).collect();
            assert_eq!(answers[3].tuple, answers[4].tuple, "{mix:?} does not settle");
            assert!(answers.windows(2).all(|pair| pair[1].cost <= pair[0].cost * (1.0 + 1e-9)), "{mix:?}");
            assert_eq!(run(&mut Search::new(RolloutStart::clone(&start), Tuple::PRIOR, 500.0, true)), answer);
        }
    }

    /// A difference below half a percent may come from what a rollout leaves out.
    #[test]
    fn the_incumbent_yields_to_half_a_percent() {
        let tuple = |gain_intervals| Tuple { gain_intervals, ..Tuple::PRIOR };
        let mut search = Search::new(start((20.0, 40.0, 40.0), 64.0), tuple(1.0), 100.0, true);
        assert_eq!(search.bound(), f64::INFINITY, "the incumbent is never abandoned");
        search.next = 1;
        search.ended(tuple(1.0), 1000.0, 5.0);
        search.next = 2;
        search.ended(tuple(2.0), 996.0, 6.0);
        let chosen =
            |search: &Search| (search.answer.tuple.gain_intervals, search.answer.cost, search.answer.runs);
        assert_eq!((chosen(&search), search.bound()), ((1.0, 1000.0, 5.0), 995.0));
        assert_eq!(search.answer.best[0].0.gain_intervals, 2.0, "it is told of");
        search.ended(tuple(3.0), 994.0, 7.0);
        assert_eq!((chosen(&search), search.bound()), ((3.0, 994.0, 7.0), 994.0));
        // After the first replacement any cheaper tuple is taken.
        search.ended(tuple(4.0), 993.9, 8.0);
        search.ended(tuple(5.0), 994.5, 9.0);
        assert_eq!((chosen(&search), search.answer.incumbent), ((4.0, 993.9, 8.0), 1000.0));
    }

    #[test]
    fn answers_come_back_from_their_bytes() {
        let answer = run(&mut Search::new(start((20.0, 40.0, 40.0), 64.0), Tuple::PRIOR, 100.0, true));
        let bytes = answer.encode();
        assert_eq!(SearchResult::decode(&bytes).unwrap(), answer);
        for cut in 0..bytes.len() {
            assert!(SearchResult::decode(&bytes[..cut]).is_err());
        }
    }
}
