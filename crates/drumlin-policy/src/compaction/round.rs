//! The plans of one decision of a preset, one after the other.
//!
//! The first proposal that can be closed into a legal plan is taken, and the rule is asked again with the tree as if that
//! plan were admitted, until nothing is proposed or `2 * slots + 1` plans are under way: enough that a short merge near the
//! top need not wait for a long one below, and few enough that late decisions still see the tree as it is.
//!
//! Where enough is under way, one plan is made all the same for each tier that nothing takes from: else upper levels that
//! never come to rest would let tiers below them fill without bound. Levels of one run are bounded by the scheduler, which
//! folds them.

use super::in_place::{Window, in_place};
use super::preset::{Rule, Scene};
use crate::share::{folding, project};
use alloc::collections::BTreeSet;
use alloc::vec::{IntoIter, Vec};
use drumlin_types::Ticket;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{LevelDesign, LimitView, Plan, PolicyInput, TreeView};

/// Plans of one decision: the policy is asked again when they are admitted.
const PLANS_MOST: usize = 8;

/// A decision that is being made.
pub(super) struct Round<'a, R> {
    rule: &'a R,
    limits: &'a LimitView,
    seed: u64,
    /// After all plans under way and those made so far.
    tree: TreeView,
    design: Vec<LevelDesign>,
    /// Plans that were under way before.
    under_way: usize,
    /// Levels that something under way takes from.
    served: BTreeSet<u8>,
    /// What is left to be merged in place, once nothing else is proposed.
    windows: Option<IntoIter<Window>>,
    plans: Vec<Plan>,
}

impl<'a, R: Rule> Round<'a, R> {
    /// A decision of `rule`, of which `tree` is the projected one of `input`.
    pub(super) fn new(rule: &'a R, input: &PolicyInput<'a>, tree: TreeView) -> Round<'a, R> {
        let design = rule.design(&Scene { tree: &tree, limits: input.limits, seed: input.seed });
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

    /// All plans.
    pub(super) fn plans(mut self) -> Vec<Plan> {
        while self.plans.len() < PLANS_MOST
            && let Some(plan) = self.next()
        {
            self.admit(plan);
        }
        self.plans
    }

    fn scene(&self) -> Scene<'_> {
        Scene { tree: &self.tree, limits: self.limits, seed: self.seed.wrapping_add(self.plans.len() as u64) }
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

    /// `plan`, closed, if there is room for it and it is legal.
    fn passing(&self, plan: &Plan) -> Option<Plan> {
        if self.has_enough(plan) || self.is_full() && !self.serves_a_tier(plan) {
            return None;
        }
        close_plan(&self.tree, plan).ok()
    }

    /// Whether the scheduler would refuse it, since as much as it wants of that is ready.
    fn has_enough(&self, plan: &Plan) -> bool {
        self.limits.enough != 0
            && source(&self.tree, plan)
                .is_some_and(|level| plan.out > level && self.limits.enough & (1 << level) != 0)
    }

    /// Whether it goes to a tier, and takes from a level that nothing takes from.
    fn serves_a_tier(&self, plan: &Plan) -> bool {
        let design = self.design.get(usize::from(plan.out));
        let is_tier = design.is_some_and(|d| d.runs.is_finite() && d.runs > 1.0);
        let is_alone = || source(&self.tree, plan).is_some_and(|level| !self.served.contains(&level));
        is_tier && plan.priority >= 0.0 && is_alone()
    }

    fn admit(&mut self, plan: Plan) {
        self.served.extend(source(&self.tree, &plan));
        // Numbers of their own for plans that have no ticket yet. What a plan may fold is left to it until the policy is
        // asked again.
        let whole = folding(&self.tree, &plan);
        project(&mut self.tree, &whole, Ticket(u64::MAX / 2 + self.plans.len() as u64));
        self.plans.push(plan);
    }
}

/// The uppermost level that `plan` takes from.
fn source(tree: &TreeView, plan: &Plan) -> Option<u8> {
    let takes = |table| plan.take.iter().any(|take| take.table == table);
    tree.files().find(|(_, _, file)| takes(file.table)).map(|(level, _, _)| level)
}
