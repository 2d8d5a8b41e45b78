//! Which files of the output level a starting piece folds, and which run takes its output.
//!
//! To *fold* is to include the free files in the output's range of the output level as inputs. The decision is made
//! at the last moment. If a piece folds none, its output becomes an extra run there. Both are always legal, because
//! the output level imposes no condition, so the choice is only a matter of cost. An extra run costs every read that
//! reaches the level; a fold rewrites the level's bytes.
//!
//! ```text
//! depth has reached its cap             fold all free files; if too few are free, wait (except the oldest ticket)
//! same, over its size, plan not begun   start after all others, and only when nothing drains the level (`start`)
//! the piece waits for an earlier one    fold nothing, so that it can land
//! the level is over its size            fold nothing: it moves down soon, and would be rewritten twice
//! depth >= k*                           fold all free files
//! else                                  fold nothing
//! ```

use super::limits::{Concurrency, Settings};
use super::numbers::Numbers;
use super::project::{counts, part};
use super::tickets::{Flight, Piece, TicketState};
use super::weights::{LevelWeight, Weights, depth};
use crate::real;
use crate::share::share;
use alloc::vec::Vec;
use drumlin_types::contract::{CostView, FileSpan, FileView, LevelDesign, LoadView, RunTag, TreeView};
use drumlin_types::{KeyRange, RunId, Seq};

/// Long-term write rate in bytes per second below which a keyspace counts as idle.
const IDLE: f64 = 1024.0;
/// Price of a slot second in seconds of reads. A slot runs beside the reads and costs them only device time.
const SLOT: f64 = 0.1;

/// Measured costs that decide between folding and an extra run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FoldCosts {
    /// Bytes per second that enter a level. This is the recent write rate, since every byte passes every level once.
    pub inflow: f64,
    /// Whether nothing has been written for a long time.
    pub rests: bool,
    /// Slot seconds per rewritten byte.
    pub rewrite: f64,
    /// Fixed slot seconds per piece.
    pub fixed: f64,
    /// Seconds per second that reads spend on one more run: lookups times their probe and
    /// the share of runs that they search in vain, plus seeks times their cursor.
    pub extra_run: f64,
}

impl FoldCosts {
    /// Derives the costs from measurements: the long-term `load`, the recent load `lately`, and the mean
    /// false-positive rate of the tree's filters.
    pub fn measured(load: &LoadView, lately: &LoadView, costs: &CostView, false_positives: f64) -> FoldCosts {
        let rewrite =
            if costs.compaction_bytes_per_s > 0.0 { 1.0 / costs.compaction_bytes_per_s } else { 0.0 };
        let probe = costs.probe_ns + costs.block_ns * false_positives;
        // The mean cursor is in a small run that is entirely cached. A run that is worth compacting is as large as
        // those that lookups read, so a seek costs at least a block read.
        let cursor = costs.cursor_ns.max(costs.block_ns);
        let extra_run = (lately.gets * lately.vain() * probe + lately.seeks * cursor) / 1e9;
        // No rate is known in the first second; the bytes written so far count as that second's rate.
        let counted = load.counted[2] as f64 * load.entry_bytes;
        let is_known = load.write_bytes > 0.0;
        let (inflow, long) =
            if is_known { (lately.write_bytes, load.write_bytes) } else { (counted, counted) };
        let (rewrite, fixed) = (SLOT * rewrite, SLOT * costs.compaction_fixed_ns / 1e9);
        FoldCosts { inflow, rests: long < IDLE, rewrite, fixed, extra_run }
    }
}

/// Returns k*, the number of batches after which folding a level of `bytes` costs least, when batches of `batch`
/// bytes enter it. With L for the bytes of the level, b for those of a batch, w for the inflow, c for the price of a
/// rewritten byte and e for that of an extra run, folding every k-th batch costs
///
/// ```text
/// w c L / (k b) + e (k - 1) / 2          so k* = sqrt(2 w c L / (b e))
/// ```
///
/// per second. For instance a level of 1280 MB, batches of 64 MB, 20 MB/s written, slots of 200 MB/s, 100,000 lookups a
/// second at 0.63 us and 2000 seeks a second at 3 us give k* = 7.6.
pub fn fold_period(costs: &FoldCosts, bytes: f64, batch: f64) -> f64 {
    let read = batch.max(1.0) * costs.extra_run;
    if read <= 0.0 {
        return f64::INFINITY;
    }
    real::square_root((2.0 * costs.inflow * bytes * costs.rewrite / read).max(0.0))
}

/// Returns the target number of runs over a key of a level: one if the target shape gives only bytes, infinite if it
/// gives neither.
pub fn design_runs(design: &LevelDesign) -> f64 {
    if design.runs.is_finite() || design.bytes.is_infinite() { design.runs } else { 1.0 }
}

/// Returns the depth at which a level takes no more without folding. The oldest ticket into it folds too, but never
/// waits.
pub fn depth_cap(design: &LevelDesign, settings: &Settings) -> f64 {
    design_runs(design) + f64::from(settings.cap()) - 1.0
}

/// Inputs of the fold decision for a piece.
pub struct FoldInputs<'a> {
    /// Tree with its plans under way.
    pub view: &'a TreeView,
    /// Weights of that tree.
    pub weights: &'a Weights,
    /// Tickets under way.
    pub flight: &'a Flight,
    /// Scheduler limits.
    pub settings: &'a Settings,
    /// Measured costs.
    pub costs: &'a FoldCosts,
}

/// Fold decision.
#[derive(Clone, PartialEq, Debug)]
pub enum Fold {
    /// The piece must not start yet.
    Wait,
    /// The piece starts and folds these files, of that many bytes in total.
    Take(Vec<FileSpan>, u64),
}

fn is_over(level: &LevelWeight) -> bool {
    level.design.bytes.is_finite() && level.bytes > level.design.bytes
}

const NOTHING: Fold = Fold::Take(Vec::new(), 0);

impl FoldInputs<'_> {
    /// Returns the fold decision for a piece of `ticket` at this time.
    pub fn choose(&self, ticket: &TicketState, piece: &Piece, has_waits: bool) -> Fold {
        let Some(range) = piece.hull() else { return NOTHING };
        let may_fold = !ticket.plan.may_fold.is_empty() && piece.out == ticket.plan.out;
        if self.settings.mode != Concurrency::Pipelined {
            return NOTHING;
        }
        let is_oldest = self.flight.oldest_into(piece.out).is_none_or(|oldest| oldest == ticket.ticket);
        let is_intra = piece.source() == piece.out;
        let moving = (piece.bytes, may_fold && !is_intra, has_waits, is_oldest || is_intra);
        self.decide(piece.out, &range, moving)
    }

    /// Returns whether `piece` of a plan that has not begun goes to a level over its size whose depth has reached the
    /// cap. Such a piece starts only as the oldest one, and only when the level cannot be drained first.
    pub fn is_last_resort(&self, ticket: &TicketState, piece: &Piece) -> bool {
        let Some(range) = piece.hull() else { return false };
        if self.settings.mode != Concurrency::Pipelined || ticket.has_begun() || piece.source() == piece.out {
            return false;
        }
        let Some(weight) = self.weights.levels.get(usize::from(piece.out)) else { return false };
        let deep = depth(self.there(piece.out, &range), &range);
        is_over(weight) && deep as f64 >= self.cap(&weight.design)
    }

    /// Returns the files of a level in `range` as they will be when all started pieces are done.
    fn there<'b>(&'b self, level: u8, range: &'b KeyRange) -> impl Iterator<Item = &'b FileView> {
        let runs = self.view.levels[usize::from(level)].runs.iter();
        runs.flat_map(move |run| run.meeting(range)).filter(move |f| counts(f, level, self.flight))
    }

    /// Returns whether the pieces of a plan that is not yet admitted are expected to fold.
    pub fn expects(&self, out: u8, range: &KeyRange, bytes: u64) -> bool {
        self.settings.mode == Concurrency::Pipelined
            && matches!(self.decide(out, range, (bytes, true, false, false)), Fold::Take(files, _) if !files.is_empty())
    }

    fn decide(&self, out: u8, range: &KeyRange, piece: (u64, bool, bool, bool)) -> Fold {
        let (batch, may_fold, has_waits, is_exempt) = piece;
        let Some(weight) = self.weights.levels.get(usize::from(out)) else { return NOTHING };
        let is_over = is_over(weight);
        if is_over && !is_exempt && self.weights.extra > self.settings.most_extra(self.weights) {
            return Fold::Wait;
        }
        let files: Vec<&FileView> = self.there(out, range).collect();
        let deep = depth(files.iter().copied(), range);
        let all = || self.free(out, range);
        if !is_exempt && deep as f64 >= self.cap(&weight.design) {
            if !may_fold {
                return Fold::Wait;
            }
            let busy = files.iter().copied().filter(|f| !f.is_takeable());
            let is_enough = (depth(busy, range) as f64) < self.cap(&weight.design);
            return if is_enough { all() } else { Fold::Wait };
        }
        // The oldest ticket is only exempt from waiting. It must still fold, or tickets that follow each other would
        // each be the oldest, and nothing would bound the depth.
        if may_fold && !has_waits && deep as f64 >= self.cap(&weight.design) {
            return all();
        }
        if !may_fold || has_waits || is_over || deep == 0 {
            return NOTHING;
        }
        let most = f64::from(self.settings.cap());
        let period = match self.settings.fold_every {
            Some(every) => f64::from(every),
            // Inflow and reads are assumed to be spread as the level's data is, so a part of it is judged by its own
            // bytes.
            None => {
                let there: f64 = files.iter().map(|f| f.bytes as f64 * share(&f.bounds, range)).sum();
                fold_period(self.costs, there + batch as f64, batch as f64)
            }
        };
        let period = period.clamp(1.0, most);
        if deep as f64 + 0.5 >= period { all() } else { NOTHING }
    }

    fn cap(&self, design: &LevelDesign) -> f64 {
        depth_cap(design, self.settings)
    }

    fn free(&self, out: u8, range: &KeyRange) -> Fold {
        let mut bytes = 0;
        let mut spans = Vec::new();
        let runs = self.view.levels[usize::from(out)].runs.iter();
        for file in runs.flat_map(|run| run.meeting(range)).filter(|f| f.is_takeable()) {
            let Some(part) = part(file, range) else { continue };
            bytes += part.bytes;
            let FileView { table, bounds, min_seq, max_seq, .. } = part;
            spans.push(FileSpan { level: out, table, range: bounds, min_seq, max_seq });
        }
        Fold::Take(spans, bytes)
    }
}

/// Run of the output level as a possible destination.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunFit {
    /// Id of the run.
    pub run: RunId,
    /// Largest sequence number of the run.
    pub max_seq: Seq,
    /// Whether the run carries no policy's tag.
    pub is_plain: bool,
    /// Whether the outputs fit between the files that stay in the run.
    pub fits: bool,
}

/// Returns the run of level `level` that takes the outputs of a piece of `ticket`, and its tag. In the output level
/// this is the wanted run if they fit there. An untagged plan whose wanted run does not fit takes the newest untagged
/// run where they fit; otherwise the ticket's own run is used. Above the output level, where pieces land or are
/// redirected, all pieces of a ticket share one run. If the outputs fit none of these, a new run from `numbers` is
/// used.
pub fn choose_run(
    ticket: &mut TicketState,
    level: u8,
    runs: &[RunFit],
    numbers: &mut Numbers,
) -> (RunId, RunTag) {
    let fits = |run: &RunId| runs.iter().find(|other| other.run == *run).is_none_or(|other| other.fits);
    if level == ticket.plan.out {
        let run = at_output(ticket, runs).unwrap_or_else(|| numbers.run());
        return (run, ticket.tag.clone());
    }
    let shared = *ticket.above.entry(level).or_insert_with(|| numbers.run());
    (Some(shared).filter(fits).unwrap_or_else(|| numbers.run()), RunTag::default())
}

fn at_output(ticket: &TicketState, runs: &[RunFit]) -> Option<RunId> {
    let found = |run: RunId| runs.iter().find(|other| other.run == run);
    let fits = |run: &RunId| found(*run).is_none_or(|other| other.fits);
    if let Some(wanted) = ticket.wanted {
        // A run that no longer exists may be created again under its number.
        if fits(&wanted) && (found(wanted).is_some() || ticket.tag.0.is_empty()) {
            return Some(wanted);
        }
        let plain = runs.iter().filter(|run| run.fits && run.is_plain && ticket.tag.0.is_empty());
        if let Some(newest) = plain.max_by_key(|run| (run.max_seq, run.run)) {
            return Some(newest.run);
        }
    }
    Some(ticket.own).filter(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fold_periods_are_those_of_the_closed_form() {
        let period = |written: f64, gets: f64, seeks: f64| {
            let costs = FoldCosts {
                inflow: written * 1e6,
                rewrite: 1.0 / 200e6,
                extra_run: gets * 630e-9 + seeks * 3e-6,
                ..FoldCosts::default()
            };
            fold_period(&costs, 1280e6, 64e6)
        };
        for (given, expected, best) in [
            ((100.0, 50e3, 1e3), 24.08, 24.0),
            ((20.0, 100e3, 2e3), 7.61, 8.0),
            ((5.0, 400e3, 5e3), 1.935, 2.0),
        ] {
            let k = period(given.0, given.1, given.2);
            assert!((k - expected).abs() < 0.005, "{k} {expected}");
            // The best whole number, found by evaluating the cost directly.
            let read = given.1 * 630e-9 + given.2 * 3e-6;
            let cost = |k: f64| given.0 / 200.0 * 1280.0 / (k * 64.0) + read * (k - 1.0) / 2.0;
            let found = (1..=40).map(f64::from).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
            assert_eq!(found, Some(best));
        }
        assert_eq!(fold_period(&FoldCosts::default(), 1e9, 1e6), f64::INFINITY);
    }
}
