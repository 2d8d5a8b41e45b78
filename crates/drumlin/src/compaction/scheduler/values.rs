//! Plans of the compactions that are started for value files.

use crate::compaction::collection::Collection;
use crate::compaction::control::KeyspaceControl;
use crate::value::{chosen_files, value_file_sizes, value_space};
use crate::version::{FileMeta, Run};
use drumlin_env::sync::Arc;
use drumlin_policy::value::{CollectionStep, SpaceExcess};
use drumlin_types::contract::{Place, Plan, Take};
use drumlin_types::{KeyRange, TableId, ValueFileId};
use std::collections::BTreeSet;

/// A compaction to start for value files.
pub(super) struct CollectionPlan {
    pub(super) plan: Plan,
    /// Excess before it.
    pub(super) excess: SpaceExcess,
    /// The value files that it collects.
    pub(super) files: BTreeSet<ValueFileId>,
}

impl KeyspaceControl {
    /// Returns the compaction to start for value files at `now`, and notes whether the policy must wait for it. Without
    /// disk space none starts: copies need it before they free any.
    pub(super) fn next_collection(&mut self, now: u64, lacks_space: bool) -> Option<CollectionPlan> {
        if !self.due || self.collection.is_running(&self.flight) {
            return None;
        }
        self.collection.wait(false);
        if lacks_space || self.failure_back_off_until > now {
            return None;
        }
        let (tree, target) = (self.state.view().tree.clone(), self.state.options.load().value_space_target);
        let files = value_file_sizes(&tree);
        if files.is_empty() {
            self.collection = Collection::default();
            return None;
        }
        let space = value_space(&tree, &files);
        let excess = space.excess(target);
        let stuck = self.collection.note_end(excess, space.least_excess());
        let step = space.next_step(target, stuck)?;
        if !self.flight.tickets.is_empty() {
            self.collection.wait(space.is_pressing(target, stuck));
            return None;
        }
        let chosen = chosen_files(&files, target);
        let [factor, possible] = space.factors();
        let reason = |does: &str| {
            let files = format!("{} of {} files", chosen.len(), files.len());
            format!(
                "value files: space factor {factor:.2}, possibly {possible:.2}, target {target}: {does} {files}"
            )
        };
        let plan = match step {
            CollectionStep::Merge => {
                self.full_plan(&KeyRange::all(), reason("merges all tables to find garbage, and collects"))?
            }
            CollectionStep::Rewrite => {
                let (plan, bytes) = self.rewrite_plan(&chosen, reason("rewrites tables to collect"))?;
                space.rewrite_pays(target, stuck, bytes).then_some(plan)?
            }
        };
        Some(CollectionPlan { plan, excess, files: chosen })
    }

    /// Returns the plan that rewrites the tables that point to `files`, and their bytes. There is one run.
    fn rewrite_plan(&self, files: &BTreeSet<ValueFileId>, reason: String) -> Option<(Plan, f64)> {
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
        let mut plan = Plan::new(take.collect(), level.max(1), reason);
        if level > 0 {
            plan.place = Place::Run(run.id);
        }
        Some((plan, bytes as f64))
    }
}
