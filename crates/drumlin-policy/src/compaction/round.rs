//! One decision of a preset, made plan by plan.
//!
//! The first proposal that can be closed into a legal plan is taken. Then the rule is called again on the tree as if
//! that plan were admitted. This repeats until nothing is proposed or `2 * slots + 1` plans are under way. That is
//! enough for a short compaction near the top not to wait for a long one below. It is few enough for late decisions
//! to still see the actual tree.
//!
//! At that limit, one more plan is still made for each tier (a level designed for several runs) when nothing is under
//! way from the source level. Otherwise upper levels that never come to rest would let the tiers below them fill
//! without bound. Levels of one run need no such exception, because the scheduler bounds them by folding.

use super::in_place::{Window, in_place};
use super::rule::{Rule, RuleScene};
use crate::share::{folding, project};
use alloc::collections::BTreeSet;
use alloc::vec::{IntoIter, Vec};
use drumlin_types::Ticket;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{LevelDesign, LimitView, Plan, PolicyInput, TreeView};

/// Upper bound on plans of one decision. The policy is called again when they are admitted.
const PLANS_MOST: usize = 8;

/// Decision under construction.
pub(super) struct Round<'a, R> {
    rule: &'a R,
    limits: &'a LimitView,
    seed: u64,
    /// Tree after all plans under way and those made so far.
    tree: TreeView,
    design: Vec<LevelDesign>,
    /// Number of plans that were under way before.
    under_way: usize,
    /// Levels that a plan under way takes files from.
    served: BTreeSet<u8>,
    /// Remaining windows for intra-level compaction, once the rule proposes nothing more.
    windows: Option<IntoIter<Window>>,
    plans: Vec<Plan>,
}

impl<'a, R: Rule> Round<'a, R> {
    /// Starts a decision of `rule`. `tree` is the projected tree of `input`.
    pub(super) fn new(rule: &'a R, input: &PolicyInput<'a>, tree: TreeView) -> Round<'a, R> {
        let design = rule.design(&RuleScene { tree: &tree, limits: input.limits, seed: input.seed });
        Round {
            rule,
            limits: input.limits,
            seed: input.seed,
            tree,
            design,
            under_way: input.tickets.len(),
            served: input.tickets.iter().filter_map(|ticket| source(input.tree, &ticket.plan)).collect(),
            windows: None,
            plans: Vec::new(),
        }
    }

    /// Returns all plans of the decision.
    pub(super) fn plans(mut self) -> Vec<Plan> {
        while self.plans.len() < PLANS_MOST
            && let Some(plan) = self.next()
        {
            self.admit(plan);
        }
        self.plans
    }

    fn scene(&self) -> RuleScene<'_> {
        RuleScene {
            tree: &self.tree,
            limits: self.limits,
            seed: self.seed.wrapping_add(self.plans.len() as u64),
        }
    }

    fn is_full(&self) -> bool {
        self.under_way + self.plans.len() >= self.rule.most(self.limits.slots.max(1) as usize)
    }

    fn next(&mut self) -> Option<Plan> {
        if self.windows.is_none() {
            let scene = self.scene();
            let mut proposals = self.rule.proposals(&scene).peekable();
            if proposals.peek().is_some() || self.is_full() {
                return proposals.find_map(|plan| self.passing(&plan));
            }
            let found = self.rule.tidied(&scene).map(|levels| in_place(&scene, levels, PLANS_MOST));
            drop(proposals);
            self.windows = Some(found.unwrap_or_default().into_iter());
        }
        let window = self.windows.as_mut().and_then(Iterator::next).filter(|_| !self.is_full())?;
        self.passing(&window.plan(&self.scene()))
    }

    /// Returns `plan` closed, if the limit allows it and it is legal.
    fn passing(&self, plan: &Plan) -> Option<Plan> {
        if self.has_enough(plan) || self.is_full() && !self.serves_a_tier(plan) {
            return None;
        }
        close_plan(&self.tree, plan).ok()
    }

    /// Returns whether the scheduler would refuse the plan because enough pieces from its source level are ready.
    fn has_enough(&self, plan: &Plan) -> bool {
        self.limits.enough != 0
            && source(&self.tree, plan)
                .is_some_and(|level| plan.out > level && self.limits.enough & (1 << level) != 0)
    }

    /// Returns whether the plan goes to a tier and takes files from a level that no other plan takes from.
    fn serves_a_tier(&self, plan: &Plan) -> bool {
        let design = self.design.get(usize::from(plan.out));
        let is_tier = design.is_some_and(|d| d.runs.is_finite() && d.runs > 1.0);
        let is_alone = || source(&self.tree, plan).is_some_and(|level| !self.served.contains(&level));
        is_tier && plan.priority >= 0.0 && is_alone()
    }

    fn admit(&mut self, plan: Plan) {
        self.served.extend(source(&self.tree, &plan));
        // Plans without a ticket get placeholder ticket numbers. Files that a plan may fold are left to it until the
        // policy is called again.
        let whole = folding(&self.tree, &plan);
        project(&mut self.tree, &whole, Ticket(u64::MAX / 2 + self.plans.len() as u64));
        self.plans.push(plan);
    }
}

/// Returns the uppermost level that `plan` takes files from.
fn source(tree: &TreeView, plan: &Plan) -> Option<u8> {
    let takes = |table| plan.take.iter().any(|take| take.table == table);
    tree.files().find(|(_, _, file)| takes(file.table)).map(|(level, _, _)| level)
}
