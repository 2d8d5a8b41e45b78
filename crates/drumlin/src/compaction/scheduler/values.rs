//! Plans of the compactions that are started for value files.

use crate::compaction::collection::Collection;
use crate::compaction::control::KeyspaceControl;
use crate::value::{chosen_files, value_file_sizes, value_space};
use crate::version::{FileMeta, Run};
use drumlin_env::sync::Arc;
use drumlin_policy::value::{AboveTarget, CollectionStep, ValueSpace};
use drumlin_types::contract::{Place, Plan, Take};
use drumlin_types::{KeyRange, TableId, ValueFileId};
use std::collections::BTreeSet;

/// A compaction to start for value files.
pub(super) struct CollectionPlan {
    pub(super) plan: Plan,
    /// Bytes above the space target before it.
    pub(super) above: AboveTarget,
    /// The value files that it collects.
    pub(super) files: BTreeSet<ValueFileId>,
}

impl KeyspaceControl {
    /// Returns the compaction to start for value files at `now`. `is_full` says whether disk space lacks.
    pub(super) fn collection_plan(&mut self, now: u64, is_full: bool) -> Option<CollectionPlan> {
        // Copies need disk space before they free any.
        if !self.due || is_full || self.failure_back_off_until > now {
            return None;
        }
        if self.collection.is_running(&self.flight) {
            return None;
        }
        self.collection.wait(false);
        let (tree, target) = (self.state.view().tree.clone(), self.state.options.load().value_space_target);
        let files = value_file_sizes(&tree);
        if files.is_empty() {
            self.collection = Collection::default();
            return None;
        }
        let space = value_space(&tree, &files);
        let above = space.above(target);
        let left = self.collection.left(above, space.grain());
        let step = space.next_step(target, left)?;
        if !self.flight.tickets.is_empty() {
            self.collection.wait(space.is_pressing(target));
            return None;
        }
        let chosen = chosen_files(&files, target);
        let collects = format!("collects {} of {} value files", chosen.len(), files.len());
        let plan = match step {
            CollectionStep::Merge => self.manual_plan(&KeyRange::all()),
            CollectionStep::Rewrite => self
                .rewrite_plan(&chosen)
                .filter(|(_, bytes)| space.rewrite_pays(target, left, *bytes))
                .map(|(plan, _)| plan),
        };
        let does = match step {
            CollectionStep::Merge => "merges all tables to find garbage",
            CollectionStep::Rewrite => "rewrites the tables that point to them",
        };
        let plan = plan
            .map(|plan| Plan { reason: format!("{}: {does}, {collects}", found(&space, target)), ..plan })?;
        Some(CollectionPlan { plan, above, files: chosen })
    }

    /// Returns the plan that rewrites the tables that point to `files`, and their bytes. There is one run.
    fn rewrite_plan(&self, files: &BTreeSet<ValueFileId>) -> Option<(Plan, f64)> {
        let tree = self.state.view().tree.clone();
        let points_to = |(_, _, file): &(u8, &Arc<Run>, &Arc<FileMeta>)| {
            file.values.iter().any(|used| files.contains(&used.file.id()))
        };
        let tables: BTreeSet<TableId> =
            tree.files().filter(points_to).map(|(_, _, file)| file.id()).collect();
        let view = self.installed();
        let taken = || view.files().filter(|(_, _, file)| tables.contains(&file.table) && file.is_takeable());
        let (level, run, _) = taken().next()?;
        let bytes: u64 = taken().map(|(_, _, file)| file.bytes).sum();
        let take = taken().map(|(_, _, file)| Take { table: file.table, range: file.bounds.clone() });
        let mut plan = Plan::new(take.collect(), level.max(1), String::new());
        if level > 0 {
            plan.place = Place::Run(run.id);
        }
        Some((plan, bytes as f64))
    }
}

/// Returns what was found, for the reason of a plan.
fn found(space: &ValueSpace, target: f64) -> String {
    format!(
        "value files take {:.2} times the bytes that tables point to, and may take {:.2} times, target {target}",
        space.total / space.referenced.max(1.0),
        space.total / space.largest_run.min(space.referenced).max(1.0),
    )
}
