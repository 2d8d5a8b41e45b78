//! Chooses which compactions to start and which to withdraw.
//!
//! Each plan is checked against the tree as it will be after the running compactions and the plans decided just
//! before. A plan that is illegal or was refused backs off for a while; its oldest run then counts as busy for this
//! decision.

use crate::compaction::arce::candidates::interval::Candidate;
use crate::compaction::arce::candidates::link::Link;
use crate::compaction::arce::candidates::values;
use crate::compaction::arce::decide::explain;
use crate::compaction::arce::decide::policy::{Arce, BegunPlan};
use crate::compaction::arce::decide::tickets::{first_due, may_withdraw, removed_by};
use crate::compaction::arce::measure::guard::RewriteBudget;
use crate::compaction::arce::score::formula::{Choice, RunningCompaction, Score};
use crate::compaction::arce::score::scene::ScoreScene;
use crate::real;
use crate::share::project;
use alloc::vec::Vec;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{Plan, TicketView, TreeView};
use drumlin_types::{Seq, Ticket};

/// Number of candidates that may fail in one decision.
const MOST_FAILURES: usize = 8;
/// Share of its bytes that a compaction must free to start for disk space alone.
const LEAST_FREED: f64 = 0.01;
/// Share of the disk budget below which compactions for disk space may be withdrawn; they start at
/// [`DISK_SHORT`](super::policy::DISK_SHORT).
const DISK_RELIEVED: f64 = 0.85;
/// Share of tombstones from which a run is worth purging.
const PURGE_SHARE: f64 = 0.25;

impl Arce {
    /// Returns the running compactions to withdraw, because their rest costs at least four times what it gains.
    pub(crate) fn withdraw(&mut self, scene: &ScoreScene<'_>) -> Vec<Ticket> {
        // A compaction that frees disk space gains readers nothing, but is needed. It goes on until more disk space is
        // free than started it, or it would start again soon.
        if !self.switches.withdraw || scene.disk_share() >= DISK_RELIEVED {
            return Vec::new();
        }
        let pays = |ticket: &TicketView| {
            let Some(removed) = removed_by(ticket).filter(|_| may_withdraw(ticket)) else { return true };
            let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
            let bytes = ticket.bytes as f64 * left;
            let removed = removed * left;
            let relief = scene.relief_of(ticket.ticket, removed);
            let rest = Candidate { from: 0, to: 0, bytes, removed, relief };
            scene.choice(0.0).score(rest).is_worth_ending()
        };
        let tickets = || scene.input.tickets.iter();
        let is_withdrawn = |t: &TicketView| self.withdrawn.iter().any(|(ticket, _)| *ticket == t.ticket);
        let lost: Vec<&TicketView> = tickets().filter(|t| !is_withdrawn(t) && !pays(t)).collect();
        self.withdrawn.retain(|(withdrawn, _)| tickets().any(|ticket| ticket.ticket == *withdrawn));
        self.withdrawn.extend(lost.iter().map(|ticket| (ticket.ticket, ticket.bytes)));
        lost.into_iter().map(|ticket| ticket.ticket).collect()
    }

    /// Returns the running compaction with most time left, and how fast it removes runs or read cost.
    fn longest(&self, scene: &ScoreScene<'_>) -> Option<RunningCompaction> {
        let under_way = |ticket: &TicketView| {
            let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
            let time = scene.model.compaction_ns(ticket.bytes as f64);
            let removed = removed_by(ticket).unwrap_or(1.0);
            let done = if scene.need.is_must() || left <= 0.0 {
                removed
            } else {
                scene.relief_of(ticket.ticket, removed * left) / left
            };
            RunningCompaction { left: time * left, rate: done / time.max(1.0) }
        };
        scene.input.tickets.iter().map(under_way).reduce(|a, b| if b.left > a.left { b } else { a })
    }

    /// Returns the compactions to start, best first.
    pub(crate) fn plans(&mut self, scene: &mut ScoreScene<'_>, budget: &mut RewriteBudget) -> Vec<Plan> {
        let slots = scene.model.slots as usize;
        let mut under_way = scene.input.tickets.len();
        let mut plans: Vec<Plan> = Vec::new();
        // The tree after the first `applied` plans; built when another plan must be checked against it.
        let (mut projected, mut applied): (Option<TreeView>, usize) = (None, 0);
        let mut failures = 0;
        while under_way <= slots && failures < MOST_FAILURES {
            let idle = slots - under_way;
            let beside = if idle == 0 && self.switches.between { self.longest(scene) } else { None };
            if idle == 0 && beside.is_none() {
                break;
            }
            let affordable = budget.affordable(&scene.model);
            let choice = Choice { last_slot: slots > 1 && idle == 1, beside, ..scene.choice(affordable) };
            let Some(score) = self.choose(scene, &choice, budget.left()) else { break };
            let candidate = score.candidate;
            let links = &scene.line.links[candidate.from..candidate.to];
            let ends = (links[0].id(), links[links.len() - 1].id());
            if plans.len() > applied {
                let tree = projected.get_or_insert_with(|| scene.input.tree.projected());
                for (number, plan) in plans.iter().enumerate().skip(applied) {
                    project(tree, plan, Ticket(u64::MAX / 2 + number as u64));
                }
                applied = plans.len();
            }
            // The legality check ignores files that are leaving, so the first plan needs no copy of the tree.
            let tree = projected.as_ref().unwrap_or(scene.input.tree);
            let intervals = scene.foreseen(&candidate);
            let plan = if self.back_offs.holds(ends, self.now) {
                None
            } else {
                let number = is_for_readers(&choice, &score).then(|| self.returns.next());
                let reason =
                    explain::plan(&choice, scene, &score, intervals, &self.candidates, budget, number);
                let last = (tree.levels.len() as u8).saturating_sub(1);
                let plan = scene.line.plan(&candidate, scene.model.flush_bytes, last, reason);
                close_plan(tree, &plan).ok().filter(|plan| !plan.take.is_empty())
            };
            let Some(mut plan) = plan else {
                if !self.back_offs.holds(ends, self.now) {
                    self.back_offs.failed(ends, self.now);
                }
                scene.line.parts[candidate.to - 1].idle = false;
                failures += 1;
                continue;
            };
            plan.piece_priority = values::of(&scene.line, &candidate, &scene.samples, &scene.scale);
            // The ticket carries the plan, so later decisions read the removed runs from it.
            plan.priority = candidate.removed;
            // A flush interval holds only a part of a flush if writes are few.
            let due = self.flushes + real::ceil((intervals * scene.model.fill).min(1e9)) as u64;
            plan.deadline = Some(match choice.beside {
                // Earlier than the long compaction's deadline, even if that has passed.
                Some(_) => due.min(first_due(scene.input.tickets).saturating_sub(1)),
                None => due,
            });
            let charged = budget.merged(candidate.bytes, scene.line.bytes);
            let paid = budget.spend(candidate.bytes, &scene.model);
            if is_for_readers(&choice, &score) {
                let seqs = seqs_of(&scene.line.links[candidate.from..candidate.to]);
                self.returns.begin(&score, &scene.model, seqs);
            }
            scene.line.parts[candidate.from..candidate.to].iter_mut().for_each(|part| part.idle = false);
            self.begun.push(BegunPlan { ends, reason: plan.reason.clone(), bytes: charged, paid });
            plans.push(plan);
            under_way += 1;
        }
        if plans.is_empty() && scene.input.tickets.is_empty() {
            plans.extend(self.join(scene));
        }
        plans
    }

    /// Returns the best compaction. Where runs cover only some keys, bytes are counted exactly. What removes tombstones
    /// may use the whole rewrite budget, `left`, and what frees disk space may overdraw it. Readers need not have paid
    /// for either.
    fn choose(&mut self, scene: &ScoreScene<'_>, choice: &Choice<'_>, left: f64) -> Option<Score> {
        let (line, candidates) = (&scene.line, &mut self.candidates);
        let exact = |candidate: &mut Candidate| {
            let parts = &line.parts[candidate.from..candidate.to];
            if parts.iter().any(|part| part.cover != scene.scale.full) {
                candidate.bytes = line.rewritten(candidate);
            }
        };
        let best = choice.choose(&line.parts, &scene.scale, &mut self.intervals, candidates, exact);
        let freeing = if scene.disk_short { self.freeing(scene, choice, left) } else { None };
        freeing.or(best).or_else(|| self.purge(scene, choice, left))
    }

    /// With disk space short: returns the compaction that frees most per byte, if any frees enough.
    fn freeing(&self, scene: &ScoreScene<'_>, choice: &Choice<'_>, left: f64) -> Option<Score> {
        // Before any compaction has been measured, assume that half of the newer inputs is freed; the first one
        // measures it.
        let shrink = scene.shrink.unwrap_or(0.5);
        let freed = |c: &Candidate| {
            let newer: f64 = scene.line.parts[c.from..c.to - 1].iter().map(|part| part.bytes).sum();
            ((1.0 - shrink) * newer + scene.line.tombstone_share(c) * c.bytes) / c.bytes.max(1.0)
        };
        // Like a must, it may overdraw the rewrite budget by the size of the tree, because a full disk stops flushes.
        let most = left + scene.line.bytes;
        let affordable = self.candidates.iter().filter(|c| scene.need.is_must() || c.bytes <= most);
        let freeing = affordable.filter(|c| freed(c) >= LEAST_FREED && choice.beside.is_none()).copied();
        let best = freeing.reduce(|a, b| if freed(&b) > freed(&a) { b } else { a })?;
        Some(choice.score(best))
    }

    /// Returns a compaction that removes tombstones from scans: from a run with many tombstones down to the oldest
    /// run that shares keys with it. Per seek, skipping the tombstones costs about their share of placing a cursor.
    fn purge(&self, scene: &ScoreScene<'_>, choice: &Choice<'_>, left: f64) -> Option<Score> {
        let line = &scene.line;
        let candidates = (0..line.links.len()).filter_map(|from| {
            let share = line.tombstone_share(&Candidate {
                from,
                to: from + 1,
                bytes: 0.0,
                removed: 0.0,
                relief: 0.0,
            });
            if share < PURGE_SHARE {
                return None;
            }
            let to = line.oldest_below(from)? + 1;
            if to < from + 2 || !line.parts[from..to].iter().all(|part| part.idle) {
                return None;
            }
            let removed = line.removed(from..to, &scene.scale);
            let relief = line.relief(from..to, removed, &scene.scale);
            let mut candidate = Candidate { from, to, bytes: 0.0, removed, relief };
            candidate.bytes = line.rewritten(&candidate);
            let mut score = choice.score(candidate);
            let skipped = scene.model.seek.per_run * share * line.parts[from].weight;
            score.gain +=
                choice.tuple.gain_intervals * scene.model.interval_ops * scene.model.shares[1] * skipped;
            Some(score)
        });
        let affordable = candidates.filter(|s| s.value() > 0.0 && s.candidate.bytes <= left);
        let affordable = affordable.filter(|_| choice.beside.is_none());
        affordable.reduce(|a, b| if b.value() > a.value() { b } else { a })
    }

    /// Returns a trivial move of a run.
    fn join(&mut self, scene: &ScoreScene<'_>) -> Option<Plan> {
        let last = (scene.input.tree.levels.len() as u8).saturating_sub(1);
        let plan = scene.line.join(&scene.scale, scene.model.flush_bytes, last)?;
        let closed = close_plan(&scene.input.tree.projected(), &plan).ok()?;
        // Further inputs would have to be rewritten; then it is not a trivial move.
        (closed.take == plan.take).then_some(closed)
    }
}

/// Returns whether a compaction is made for what it saves readers, not for disk space or because there are many runs.
fn is_for_readers(choice: &Choice<'_>, score: &Score) -> bool {
    !choice.need.is_must() && score.value() > 0.0
}

/// Returns the smallest and the largest sequence number of `links`.
fn seqs_of(links: &[Link<'_>]) -> (Seq, Seq) {
    let files = || links.iter().flat_map(Link::files);
    let (min, max) = (files().map(|file| file.min_seq).min(), files().map(|file| file.max_seq).max());
    (min.unwrap_or(0), max.unwrap_or(Seq::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::decide::switches::Switches;
    use crate::compaction::arce::decide::switches::tests::{input, world};
    use crate::compaction::arce::decide::tickets::ELECTIVE;
    use drumlin_sim::world::key;
    use drumlin_types::contract::draw::plain_file;
    use drumlin_types::contract::legal::legal;
    use drumlin_types::contract::{CompactionPolicy, FileState, Pin, RunTag, RunView};
    use drumlin_types::{KeyRange, LEVELS, RunId, TableId};

    /// A run of this many MiB over the keys `from..to`.
    struct Drawn(u64, u32, u32);

    /// Builds runs, newest first, of a thousand entries each; the first one has this number of tombstones.
    fn tree(runs: &[Drawn], tombstones: u64) -> TreeView {
        let mut tree = TreeView::empty(LEVELS);
        for (at, &Drawn(mib, from, to)) in runs.iter().enumerate() {
            let (number, seq) = (at as u64 + 1, 1000 - 10 * at as u64);
            let bounds = KeyRange::new(key(from), Some(key(to)));
            let mut file = plain_file(TableId(number), bounds, seq - 9, seq);
            (file.bytes, file.entries, file.keys) = (mib << 20, 1000, 1000);
            file.tombstones = if at == 0 { tombstones } else { 0 };
            let files = Vec::from([file]);
            tree.levels[at].runs.push(RunView { id: RunId(number), tag: RunTag::default(), files });
        }
        tree
    }

    /// Returns the tables of each compaction that starts; all must be legal. The size ratio excludes all but
    /// purges.
    fn begun(tree: &TreeView, gain_intervals: f64) -> Vec<Vec<u64>> {
        let pin = Pin { gain_intervals, slow_above: f64::INFINITY, passes: 2.0, size_ratio: 1.0 };
        let world = world(&[]);
        let mut policy = Arce::new(Some(pin), Switches::ALL);
        let plans = policy.decide(&input(&world, tree, &[])).plans;
        assert_eq!(policy.back_offs.numbers().count(), 0, "what is not legal was not thought of");
        let mut all = Vec::new();
        for plan in plans {
            legal(tree, &plan).unwrap_or_else(|e| panic!("{e}: {}", plan.reason));
            assert!(plan.reason.starts_with(ELECTIVE), "{}", plan.reason);
            all.push(plan.take.iter().map(|take| take.table.0).collect());
        }
        all
    }

    const NONE: &[&[u64]] = &[];

    #[test]
    fn a_run_full_of_tombstones_is_purged_from_a_quarter_on() {
        let runs = [Drawn(2, 0, 1000), Drawn(100, 0, 1000)];
        assert_eq!(begun(&tree(&runs, 249), 50.0), NONE);
        assert_eq!(begun(&tree(&runs, 250), 50.0), [[1, 2]]);
        assert_eq!(begun(&tree(&runs, 1000), 50.0), [[1, 2]]);
        assert_eq!(begun(&tree(&runs, 1000), 1e-3), NONE, "not for any price");
    }

    /// Down to the oldest run that shares keys with it: still older runs hold nothing that the tombstones hide, and
    /// every run in between must take part.
    #[test]
    fn a_purge_goes_as_deep_as_its_keys_do() {
        let deep = [Drawn(2, 0, 500), Drawn(40, 300, 1000), Drawn(100, 400, 1000), Drawn(400, 500, 1000)];
        assert_eq!(begun(&tree(&deep, 500), 50.0), [[1, 2, 3]]);
        let beside = [Drawn(2, 0, 500), Drawn(100, 500, 1000)];
        assert_eq!(begun(&tree(&beside, 500), 50.0), NONE, "there is nothing to purge");
    }

    /// Deadlines count flushes, and a flush interval holds only a part of one if writes are few.
    #[test]
    fn deadlines_count_flushes() {
        let deadline = |counted: [u64; 3]| {
            let mut world = world(&[2, 2, 2, 2, 400]);
            world.limits.memtable_bytes = 64 << 20;
            let [gets, seeks, writes] = counted.map(|count| count as f64);
            world.load.counted = counted;
            (world.load.gets, world.load.seeks, world.load.writes) = (gets, seeks, writes);
            let tree = world.view();
            let input = input(&world, &tree, &[]);
            let mut arce = Arce::new(None, Switches::ALL);
            arce.estimate.flush_bytes = 64e6;
            let (mut scene, _) = arce.look(&input);
            let mut budget = RewriteBudget::new(1e12, 20.0);
            let plan = arce.plans(&mut scene, &mut budget).pop().expect("a compaction");
            let candidate = Candidate { from: 0, to: 4, bytes: (8 << 20) as f64, removed: 3.0, relief: 3.0 };
            (plan.deadline.expect("a deadline"), scene.foreseen(&candidate), scene.model.fill)
        };
        let (due, intervals, fill) = deadline([10_000, 10_000, 200]);
        assert!(fill < 0.2 && fill > 0.0, "{fill}");
        assert!((due as f64) < intervals.max(1.0) + 1.0, "{due} flushes, {intervals} intervals");
        assert_eq!(deadline([10_000, 10_000, 0]).0, 0, "no flush is expected");
    }

    #[test]
    fn what_a_compaction_that_ends_early_has_not_read_is_credited() {
        use drumlin_types::contract::{Outcome, PlanResult};
        let world = world(&[2, 2, 2, 2, 20, 400]);
        let tree = world.view();
        let ended = |result, ticket, reason: &str, bytes_in| Outcome::Plan {
            ticket: Ticket(ticket),
            reason: reason.into(),
            result,
            why: "for this test".into(),
            bytes_in,
            bytes_out: 0,
            dropped: 0,
        };
        let mut arce = Arce::new(None, Switches::ALL);
        let plan = arce.decide(&input(&world, &tree, &[])).plans.pop().expect("a compaction");
        let (charged, left) = (arce.begun[0].bytes, arce.budget.expect("a budget"));
        assert!(charged > 0.0);
        let ends = arce.begun[0].ends;
        arce.observe(&ended(PlanResult::Deferred, 0, &plan.reason, 0));
        assert_eq!(arce.budget, Some(left + charged));
        assert!(!arce.back_offs.holds(ends, arce.now), "it may be proposed again at once");
        arce.observe(&ended(PlanResult::Deferred, 0, &plan.reason, 0));
        assert_eq!(arce.budget, Some(left + charged), "credited once");
        let plan = arce.decide(&input(&world, &tree, &[])).plans.pop().expect("the same compaction");
        arce.observe(&ended(PlanResult::Refused, 0, &plan.reason, 0));
        assert_eq!(arce.budget, Some(left + charged));
        assert!(arce.back_offs.holds(ends, arce.now), "it is not proposed again at once");
        arce.withdrawn.push((Ticket(7), 1000));
        arce.observe(&ended(PlanResult::Withdrawn, 8, "another", 10));
        assert_eq!(arce.budget, Some(left + charged), "not withdrawn by the policy");
        arce.observe(&ended(PlanResult::Withdrawn, 7, &plan.reason, 10));
        assert_eq!(arce.budget, Some(left + charged + 990.0));
    }

    /// A compaction that began for disk space is withdrawn only once more of it is free than when it began.
    #[test]
    fn compactions_for_disk_space_go_on_until_there_is_enough() {
        let withdrawn = |used: u64| {
            let mut world = world(&[2, 2, 20, 400]);
            let mut policy = Arce::new(None, Switches::ALL);
            let plan = world.decide(&mut policy, 0).plans.pop().expect("a compaction");
            let ticket = world.admit(&plan, 8).unwrap();
            let plan = Plan { priority: 1e-9, ..plan };
            let ticket =
                TicketView { ticket, plan, pieces: 8, pieces_done: 0, bytes: 4 << 30, bytes_done: 0 };
            (world.limits.disk_used, world.limits.disk_budget) = (used, 1000);
            let (tree, tickets) = (world.view(), [ticket]);
            let input = input(&world, &tree, &tickets);
            let (scene, _) = policy.look(&input);
            policy.withdraw(&scene).len()
        };
        assert_eq!([0, 849, 850, 899, 1000].map(withdrawn), [1, 1, 0, 0, 0]);
    }

    #[test]
    fn a_purge_takes_nothing_that_is_busy() {
        let mut tree = tree(&[Drawn(2, 0, 1000), Drawn(100, 0, 1000)], 500);
        tree.levels[1].runs[0].files[0].state = FileState::Coming(Ticket(7));
        assert_eq!(begun(&tree, 50.0), NONE);
    }
}
