//! Plans of the compactions that are started for value files.

use crate::compaction::collection::Seen;
use crate::compaction::control::KeyspaceControl;
use crate::value::{chosen_files, value_file_sizes, value_space};
use crate::version::{FileMeta, Tree};
use drumlin_env::sync::Arc;
use drumlin_policy::value::{CollectionStep, ValueFileSizes, ValueSpace};
use drumlin_types::contract::{FileView, Place, Plan, Take};
use drumlin_types::{KeyRange, Seq, TableId, Ticket, ValueFileId};
use std::collections::{BTreeMap, BTreeSet};

/// Lower bound on the limit of the bytes that one compaction copies. Scarce disk space may lower the limit below it.
const MOST_COPIED: u64 = 256 << 20;

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
    /// Notes that a piece of `ticket` copies no values because disk space is short.
    pub(crate) fn collection_lacks_space(&mut self, ticket: Ticket) {
        self.collection.lacks_space(ticket);
    }

    /// Makes a call due when a back-off of collections has ended: nothing else may happen in the keyspace.
    pub(super) fn resume_collection(&mut self, now: u64) {
        self.due |= self.collection.has_resumed(now);
    }

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
        if lacks_space || self.collection.is_backing_off(now) {
            self.collection.forget_look();
            return None;
        }
        let mut files = value_file_sizes(&view.tree);
        if files.is_empty() {
            return None;
        }
        self.collection.without_stuck(&mut files, |file| file.referenced);
        let held = self.held_by_damaged_tables(&view.tree);
        files.retain(|(id, _)| !held.contains(id));
        let space = value_space(&view.tree, &files);
        let may_merge = self.damaged.is_empty() && self.collection.may_merge(self.flushed_seq);
        let step = space.next_step(target, may_merge)?;
        if !is_idle {
            // The policy is needed where runs slow the writers, and where disk space is short.
            let may_wait = !self.slows_writers() && view.tree.bytes() <= disk.room;
            let has_prospects = self.collection.has_prospects(self.flushed_seq);
            self.collection.wait(may_wait && has_prospects && space.is_pressing(target));
            return None;
        }
        let plan = self.collection_plan(step, &view.tree, &files, &space, disk);
        if plan.is_none() {
            self.collection.was_futile(self.flushed_seq);
        }
        plan
    }

    /// Returns the value files that damaged tables point to. They cannot be collected.
    fn held_by_damaged_tables(&self, tree: &Tree) -> BTreeSet<ValueFileId> {
        let damaged = tree.files().filter(|(_, _, file)| self.damaged.contains_key(&file.id()));
        damaged.flat_map(|(_, _, file)| file.values.iter()).map(|used| used.file.id()).collect()
    }

    /// Returns the compaction for `step`, if it pays and there is room for it.
    fn collection_plan(
        &mut self,
        step: CollectionStep,
        tree: &Tree,
        files: &[(ValueFileId, ValueFileSizes)],
        space: &ValueSpace,
        disk: CollectionRoom,
    ) -> Option<CollectionPlan> {
        let options = self.state.options.load();
        let target = options.value_space_target;
        let most = space.copy_limit(target).max(MOST_COPIED).min(disk.most_copied);
        let mut chosen = chosen_files(files, &options, most);
        let [factor, possible] = space.factors();
        let reason = |does: &str, chosen: usize| {
            format!(
                "value files: space factor {factor:.2}, possibly {possible:.2}, target {target}: {does} {chosen} of {} \
                 files",
                files.len()
            )
        };
        let (plan, bytes, merges) = match step {
            CollectionStep::Merge => {
                let does = "merges all tables to find garbage, and collects";
                let plan = self.full_plan(&KeyRange::all(), reason(does, chosen.len()))?;
                (plan, tree.bytes(), Some(self.flushed_seq))
            }
            CollectionStep::Rewrite => {
                let (mut plan, bytes) = self.rewrite_plan(tree, &mut chosen)?;
                plan.reason = reason("rewrites tables to collect", chosen.len());
                let garbage = chosen.values().map(|file| file.garbage()).sum::<u64>();
                (space.rewrite_pays(target, garbage as f64, bytes as f64).then_some(plan)?, bytes, None)
            }
        };
        let copied: u64 = chosen.values().map(|file| file.referenced).sum();
        self.collection.lacks_room = bytes.saturating_add(copied) > disk.room;
        if self.collection.lacks_room {
            self.collection.forget_look();
            return None;
        }
        let files = chosen.into_iter().map(|(id, file)| (id, file.referenced)).collect();
        Some(CollectionPlan { plan, files, merges })
    }

    /// Returns the plan that rewrites the tables of one run that point to `files`, and their bytes. It is the run with
    /// most such tables. Only the files that these tables point to remain in `files`.
    fn rewrite_plan(
        &self,
        tree: &Tree,
        files: &mut BTreeMap<ValueFileId, ValueFileSizes>,
    ) -> Option<(Plan, u64)> {
        let points_to =
            |file: &Arc<FileMeta>| file.values.iter().any(|used| files.contains_key(&used.file.id()));
        let tables: BTreeSet<TableId> =
            tree.files().filter(|(_, _, file)| points_to(file)).map(|(_, _, file)| file.id()).collect();
        let installed = self.installed();
        let is_taken = |file: &&FileView| tables.contains(&file.table) && file.is_takeable();
        let levels = installed.levels.iter().enumerate();
        let runs = levels.flat_map(|(level, view)| view.runs.iter().map(move |run| (level, run)));
        let (level, run) = runs.max_by_key(|(_, run)| run.files.iter().filter(is_taken).count())?;
        let taken: Vec<&FileView> = run.files.iter().filter(is_taken).collect();
        let bytes = taken.iter().map(|file| file.bytes).sum();
        let take: Vec<Take> =
            taken.iter().map(|file| Take { table: file.table, range: file.bounds.clone() }).collect();
        let taken: BTreeSet<TableId> = take.iter().map(|take| take.table).collect();
        let of_tables = tree.files().filter(|(_, _, file)| taken.contains(&file.id()));
        let reached: BTreeSet<ValueFileId> =
            of_tables.flat_map(|(_, _, file)| file.values.iter()).map(|used| used.file.id()).collect();
        files.retain(|id, _| reached.contains(id));
        let is_whole = take.len() == run.files.len();
        let mut plan = Plan::new(take, level.max(1) as u8, String::new());
        if level > 0 {
            plan.place = Place::Run(run.id);
        } else if is_whole {
            // The rewritten run keeps its tag, since the policy's notes about the run still apply.
            plan.tag = run.tag.clone();
        }
        (!plan.take.is_empty()).then_some((plan, bytes))
    }
}
