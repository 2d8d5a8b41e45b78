//! Plans of the compactions that are started for value files.

use crate::compaction::collection::Seen;
use crate::compaction::control::KeyspaceControl;
use crate::value::{chosen_files, value_file_sizes, value_space};
use crate::version::{FileMeta, Run};
use drumlin_env::sync::Arc;
use drumlin_policy::value::{CollectionStep, ValueFileSizes};
use drumlin_types::contract::{FileView, Place, Plan, Take};
use drumlin_types::{KeyRange, Seq, TableId, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one compaction may copy, and the fraction of all record bytes, as a divisor, that it may copy if that is
/// more.
const MOST_COPIED: u64 = 256 << 20;
const COPIED_SHARE: f64 = 16.0;

/// Disk space for compactions for value files.
#[derive(Clone, Copy)]
pub(super) struct CollectionRoom {
    /// Whether flushes or the log find no space.
    pub(super) is_full: bool,
    /// Bytes that compactions may write.
    pub(super) room: u64,
    /// Largest number of bytes that one compaction may copy.
    pub(super) most_copied: u64,
}

/// A compaction to start for value files.
pub(super) struct CollectionPlan {
    pub(super) plan: Plan,
    /// The value files that it collects, with their referenced bytes.
    pub(super) files: BTreeMap<ValueFileId, u64>,
    /// Largest sequence number in tables, if it merges all of them.
    pub(super) merges: Option<Seq>,
}

impl KeyspaceControl {
    /// Returns the compaction to start for value files at `now`, and notes whether the policy must wait for it.
    pub(super) fn next_collection(&mut self, now: u64, disk: CollectionRoom) -> Option<CollectionPlan> {
        if !self.due || self.collection.is_running(&self.flight) {
            return None;
        }
        let target = self.state.options.load().value_space_target;
        let view = self.state.view();
        let (is_idle, lacks_space) = (self.flight.tickets.is_empty(), disk.is_full);
        if !self.collection.look(Seen { view: view.number(), target, is_idle, lacks_space }) {
            return None;
        }
        self.collection.wait(false);
        // Copies need disk space before they free any.
        if lacks_space || self.failure_back_off_until > now {
            self.collection.forget_look();
            return None;
        }
        let mut files = value_file_sizes(&view.tree);
        self.collection.without_stuck(&mut files, |file| file.referenced);
        let space = value_space(&view.tree, &files);
        let may_merge = self.damaged.is_empty() && self.collection.may_merge(self.flushed_seq);
        let step = space.next_step(target, may_merge)?;
        if !is_idle {
            // The policy is needed where runs slow the writers.
            self.collection.wait(space.is_pressing(target) && !self.slows_writers());
            return None;
        }
        let most = MOST_COPIED.max((space.total / COPIED_SHARE) as u64).min(disk.most_copied);
        let chosen = chosen_files(&files, target, most);
        let files_text = format!("{} of {} files", chosen.len(), files.len());
        let [factor, possible] = space.factors();
        let reason = |does: &str| {
            format!(
                "value files: space factor {factor:.2}, possibly {possible:.2}, target {target}: {does} {files_text}"
            )
        };
        let (plan, bytes, merges) = match step {
            CollectionStep::Merge => {
                let does = "merges all tables to find garbage, and collects";
                let plan = self.full_plan(&KeyRange::all(), reason(does))?;
                (plan, view.tree.bytes(), Some(self.flushed_seq))
            }
            CollectionStep::Rewrite => {
                let (plan, bytes) = self.rewrite_plan(&chosen, reason("rewrites tables to collect"))?;
                (space.rewrite_pays(target, bytes as f64).then_some(plan)?, bytes, None)
            }
        };
        let copied: u64 = chosen.values().map(|file| file.referenced).sum();
        if bytes.saturating_add(copied) > disk.room {
            self.collection.forget_look();
            return None;
        }
        // A trivial move out of level 0 copies nothing.
        let is_move = plan.place == Place::NewRun && step == CollectionStep::Rewrite;
        let files = chosen.into_iter().filter(|_| !is_move).map(|(id, file)| (id, file.referenced)).collect();
        Some(CollectionPlan { plan, files, merges })
    }

    /// Returns the plan that rewrites the tables of one run that point to `files`, and their bytes. It is the run with
    /// most such tables.
    fn rewrite_plan(
        &self,
        files: &BTreeMap<ValueFileId, ValueFileSizes>,
        reason: String,
    ) -> Option<(Plan, u64)> {
        let tree = self.state.view().tree.clone();
        let points_to = |(_, _, file): &(u8, &Arc<Run>, &Arc<FileMeta>)| {
            file.values.iter().any(|used| files.contains_key(&used.file.id()))
        };
        let tables: BTreeSet<TableId> =
            tree.files().filter(points_to).map(|(_, _, file)| file.id()).collect();
        let installed = self.installed();
        let is_taken = |file: &&FileView| tables.contains(&file.table) && file.is_takeable();
        let runs = installed
            .levels
            .iter()
            .enumerate()
            .flat_map(|(level, view)| view.runs.iter().map(move |run| (level, run)));
        let (level, run) = runs.max_by_key(|(_, run)| run.files.iter().filter(is_taken).count())?;
        let taken = || run.files.iter().filter(is_taken);
        let bytes = taken().map(|file| file.bytes).sum();
        let take: Vec<Take> =
            taken().map(|file| Take { table: file.table, range: file.bounds.clone() }).collect();
        let mut plan = Plan::new(take, level.max(1) as u8, reason);
        if level > 0 {
            plan.place = Place::Run(run.id);
        }
        (!plan.take.is_empty()).then_some((plan, bytes))
    }
}
