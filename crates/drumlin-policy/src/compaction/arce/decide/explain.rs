//! Explanations for people: the reasons of plans, and the state of the policy, with the numbers behind them.
//!
//! Reasons contain no user keys.

use crate::compaction::arce::candidates::interval::Candidate;
use crate::compaction::arce::decide::returns::{self, Ended, Return, Returns};
use crate::compaction::arce::decide::search::SearchResult;
use crate::compaction::arce::decide::tickets::{ELECTIVE, MUST};
use crate::compaction::arce::measure::drift::{Drift, Trigger};
use crate::compaction::arce::measure::estimate::Estimate;
use crate::compaction::arce::measure::guard::{Offer, RewriteBudget};
use crate::compaction::arce::measure::model::CostModel;
use crate::compaction::arce::score::formula::{Choice, Score, Tuple};
use crate::compaction::arce::score::scene::ScoreScene;
use crate::compaction::reason::Size;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Write};
use drumlin_types::contract::{Pace, Pin};

/// Number of rejected candidates that a reason lists.
const RUNNERS_UP: usize = 3;

impl Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuple { gain_intervals, slow_above, passes, size_ratio } = *self;
        let rounded = crate::real::round(gain_intervals * 100.0) / 100.0;
        write!(f, "{}", Pin { gain_intervals: rounded, slow_above, passes, size_ratio })
    }
}

/// Formats nanoseconds in a readable unit.
struct ReadableTime(f64);

impl Display for ReadableTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1e6 => write!(f, "{:.2} us", ns / 1e3),
            ns if ns < 1e9 => write!(f, "{:.2} ms", ns / 1e6),
            ns => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

/// Nanoseconds of compaction time for which readers have paid, infinite if they need not pay, and what they offer.
#[derive(Clone, Copy, Debug)]
struct Paid(f64, Offer);

impl Paid {
    fn of(budget: &RewriteBudget) -> Paid {
        Paid(budget.paid(), budget.offer())
    }
}

impl fmt::Display for Paid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Paid(paid, Offer { share, price }) = *self;
        if !paid.is_finite() {
            return Ok(());
        }
        let percent = share * 100.0;
        write!(
            f,
            "; readers have paid for {} of compaction; runs beyond the first take {percent:.0} % of an operation, and \
             {price:.2} s of that pay for a second of compaction",
            ReadableTime(paid)
        )
    }
}

/// Returns the reason of a plan that should end after `intervals` flush intervals. Its first word says whether the
/// plan is a must; see `tickets`. `number` is its number in [`Returns`], if it is made for readers.
pub(crate) fn plan(
    choice: &Choice<'_>,
    scene: &ScoreScene<'_>,
    score: &Score,
    intervals: f64,
    candidates: &[Candidate],
    budget: &RewriteBudget,
    number: Option<u64>,
) -> String {
    let Candidate { from, to, bytes, removed, relief } = score.candidate;
    let kind = if choice.need.is_must() { MUST } else { ELECTIVE };
    let kind = if choice.beside.is_some() { format!("{kind}, in between") } else { kind.into() };
    let kind = match number {
        Some(number) => format!("{kind} #{number}"),
        None => kind,
    };
    let mut text = format!(
        "{kind}: compacts runs {} to {to} of {}, counted from the newest, {}; removes {removed:.2} covered runs (read \
         cost {relief:.2}), takes {:.3} flush intervals of {:.0} operations",
        from + 1,
        scene.line.links.len(),
        Size(bytes),
        score.intervals,
        scene.model.interval_ops,
    );
    let flushes = intervals * scene.model.fill;
    if flushes > 0.0 {
        // `Due::parse` in the simulator reads these numbers.
        let _ = write!(text, ", due in {flushes:.3} of {:.0} operations", scene.model.flush_ops());
    }
    let _ = write!(
        text,
        ", gain {}, cost {}, score {}; a read covers {:.2} runs, tuple {}, rewrite budget {}{}",
        ReadableTime(score.gain),
        ReadableTime(score.cost),
        Signed(score.value()),
        scene.line.runs,
        scene.tuple,
        Size(budget.left().max(0.0)),
        Paid::of(budget),
    );
    if scene.by_all_keys {
        text.push_str("; runs are counted over all keys, read or not");
    }
    if scene.disk_short {
        let [used, budget] = [scene.input.limits.disk_used, scene.input.limits.disk_budget];
        let _ = write!(text, "; disk space is short, {} of {} used", Size(used as f64), Size(budget as f64));
    }
    let mut others: Vec<Score> = candidates.iter().map(|c| choice.score(*c)).collect();
    others.retain(|other| other.candidate != score.candidate);
    others.sort_by(|a, b| b.value().total_cmp(&a.value()));
    for other in others.iter().take(RUNNERS_UP) {
        let c = other.candidate;
        let _ = write!(
            text,
            "; next best: runs {} to {}, {}, score {}",
            c.from + 1,
            c.to,
            Size(c.bytes),
            Signed(other.value())
        );
    }
    text
}

/// Formats nanoseconds with a sign.
struct Signed(f64);

impl Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0.0 { "-" } else { "" };
        write!(f, "{sign}{}", ReadableTime(self.0.abs()))
    }
}

/// Snapshot of the last decision, for explanations.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastDecision {
    seen: Option<SeenLoad>,
}

#[derive(Clone, Debug)]
struct SeenLoad {
    tuple: Tuple,
    model: CostModel,
    mix: [f64; 3],
    /// Share of the runs beyond one that lookups search in vain.
    vain: f64,
    runs: f64,
    cost: f64,
    links: usize,
    max_runs: f64,
    must: bool,
    disk_short: bool,
    bytes: f64,
    budget: f64,
    paid: Paid,
    pace: Pace,
    /// Operations of the last phases, the latest last, and of the present phase.
    phases: Vec<f64>,
    lasted: f64,
    /// Flush intervals that a search would look ahead.
    horizon: f64,
}

impl LastDecision {
    /// Takes the snapshot. `horizon` is the number of flush intervals that a search would look ahead.
    pub(crate) fn of(
        scene: &ScoreScene<'_>,
        estimate: &Estimate,
        drift: &Drift,
        horizon: f64,
        budget: &RewriteBudget,
        pace: &Pace,
    ) -> LastDecision {
        LastDecision {
            seen: Some(SeenLoad {
                vain: scene.input.load.vain(),
                tuple: scene.tuple,
                model: scene.model,
                mix: estimate.mix,
                runs: scene.line.runs,
                cost: scene.line.cost,
                links: scene.line.links.len(),
                max_runs: scene.max_runs,
                must: scene.need.is_must(),
                disk_short: scene.disk_short,
                bytes: scene.line.bytes,
                budget: budget.left(),
                paid: Paid::of(budget),
                pace: pace.clone(),
                phases: drift.phases.clone(),
                lasted: drift.lasted(estimate.operations),
                horizon,
            }),
        }
    }
}

/// Describes the state of a policy that has decided nothing since the store was opened; `None` for any other. `kept` is
/// the tuple that a search in an earlier process has found.
pub(crate) fn undecided(told: &LastDecision, kept: Option<Tuple>) -> Option<String> {
    let kept = || kept.map_or_else(String::new, |tuple| format!("tuple M/c/q/rho: {tuple}\n"));
    told.seen.is_none().then(|| kept() + "no decision yet since the store was opened")
}

/// Describes the state of the policy for people, once it has decided something.
pub(crate) fn policy(
    told: &LastDecision,
    found: Option<&(Trigger, SearchResult)>,
    searching: Option<Trigger>,
    returns: &Returns,
) -> String {
    let Some(seen) = &told.seen else { return String::new() };
    let SeenLoad { model, mix, pace, .. } = seen;
    let percent = mix.map(|share| share * 100.0);
    let slow = if pace.slow.is_finite() {
        format!("above {:.1} runs", pace.slow)
    } else {
        "near the stop only".into()
    };
    let mut text = format!(
        "tuple M/c/q/rho: {}: a gain counts for {} flush intervals; writers are slowed above {} covered runs, to leave \
         room for {} compaction passes per byte; the oldest input is at most {} times as large as the others\n\
         runs: {:.2} covered by a read, which cost as much as {:.2} uncached runs; {} in the tree, limit {}{}\n\
         load: {:.1} % lookups, {:.1} % seeks, {:.1} % writes; {:.0} operations per flush interval; {} clients\n\
         costs: lookup {} + {} per run (of the runs beyond one, {:.0} % are searched in vain), seek {} + {} per run, \
         write {}; a compaction takes {} plus 1 s per {}, \
         slows operations by {:.0} %, and costs clients {:.0} % of its time\n\
         one more run costs {} per flush interval; the tree has {}, a flush {}; a compaction writes {:.2} bytes per \
         byte that it reads\n\
         writes: slowed {slow}, stopped at {} runs; compactions remove runs as fast as {}/s of flushes add them\n\
         rewrite budget: {}{}{}",
        seen.tuple,
        crate::real::round(seen.tuple.gain_intervals * 100.0) / 100.0,
        seen.tuple.slow_above,
        seen.tuple.passes,
        seen.tuple.size_ratio,
        seen.runs,
        seen.cost,
        seen.links,
        seen.max_runs,
        if seen.must { ", compaction is a must" } else { "" },
        percent[0],
        percent[1],
        percent[2],
        model.interval_ops,
        model.clients,
        ReadableTime(model.point.base),
        ReadableTime(model.point.per_run),
        seen.vain * 100.0,
        ReadableTime(model.seek.base),
        ReadableTime(model.seek.per_run),
        ReadableTime(model.write),
        ReadableTime(model.setup),
        Size(model.speed * 1e9),
        model.chi * 100.0,
        model.taken * 100.0,
        ReadableTime(model.run_per_interval()),
        Size(seen.bytes),
        Size(model.flush_bytes),
        model.shrink,
        pace.stops_at(),
        Size(pace.drain),
        if seen.budget < 0.0 { "minus " } else { "" },
        Size(seen.budget.abs()),
        seen.paid,
    );
    let _ = write!(text, "\nphases:");
    for phase in &seen.phases {
        let _ = write!(text, " {phase:.0},");
    }
    let _ = write!(
        text,
        " {:.0} operations so far; searches look {:.0} flush intervals ahead",
        seen.lasted, seen.horizon
    );
    if seen.disk_short {
        text.push_str(
            "\nthe disk budget is nearly used up: compactions that free most go first, and writers are slowed",
        );
    }
    told_returns(returns, &mut text);
    searches(found, searching, &mut text);
    text
}

/// Adds what elective compactions saved, as a whole and the last ones singly.
fn told_returns(returns: &Returns, text: &mut String) {
    let Ended { count, paid, expected, saved } = returns.ended;
    if count > 0.0 {
        let _ = write!(
            text,
            "\nearlier elective compactions: {count:.0}, of which {paid:.0} saved readers at least what they took from \
             clients; until they were compacted further, or {} later ones had begun, they saved {} of {} expected",
            returns::MOST,
            ReadableTime(saved),
            ReadableTime(expected),
        );
    }
    for Return { number, bytes, expected, price, saved, is_done, .. } in &returns.open {
        let running = if *is_done { "" } else { ", still running" };
        let _ = write!(
            text,
            "\n  #{number}, {}: saved {} of {} expected, took {}{running}",
            Size(*bytes),
            ReadableTime(*saved),
            ReadableTime(*expected),
            ReadableTime(*price),
        );
    }
}

/// Adds the last search, with its trigger, and the one under way.
fn searches(found: Option<&(Trigger, SearchResult)>, searching: Option<Trigger>, text: &mut String) {
    if let Some((trigger, answer)) = found {
        let _ = write!(
            text,
            "\nlast search ({}): {} at {} per operation and {:.1} runs; before {}; {} steps",
            trigger.name(),
            answer.tuple,
            ReadableTime(answer.cost),
            answer.runs,
            ReadableTime(answer.incumbent),
            answer.steps,
        );
        for (tuple, cost) in &answer.best {
            let _ = write!(text, "\n  {tuple}: {}", ReadableTime(*cost));
        }
    }
    if let Some(trigger) = searching {
        let _ = write!(text, "\na search is under way: {}", trigger.name());
    }
}
