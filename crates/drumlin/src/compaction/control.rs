//! The state behind the control lock: everything that changes versions, keyspace by keyspace, and how it changes when a
//! piece (subcompaction) fails or a ticket (scheduled compaction) ends.

use super::collection::Collection;
use super::explain;
use super::policy_guard::PolicyGuard;
use super::view::installed;
use crate::base::decisions::DecisionLog;
use crate::base::error::{Error, Result};
use crate::keyspace::KeyspaceState;
use crate::options::Adaptation;
use crate::version::ManifestFile;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::Change;
use drumlin_policy::pace::{WriteRate, write_rate};
use drumlin_policy::schedule::Flight;
use drumlin_policy::schedule::{FoldCosts, Numbers, project};
use drumlin_types::contract::{
    CompactionPolicy, FileState, FileView, LevelDesign, Outcome, Pace, PaceScope, PieceId, Place, Plan,
    PlanResult, RunView, SearchTask, Take, TreeView,
};
use drumlin_types::{KeyRange, RunId, Seq, TableId, Ticket};
use std::collections::BTreeMap;

/// Initial retry back-off after a failed piece, in microseconds. It doubles up to `RETRY_LAST`.
const RETRY_FIRST: u64 = 1_000_000;
const RETRY_LAST: u64 = 60_000_000;
/// Pause after a policy call that changed nothing, as a multiple of the call's CPU time and of the number of paused
/// keyspaces. So all such calls together use a hundredth of a core.
const IDLE_BACK_OFF: u64 = 100;
/// Longest such pause, in microseconds.
const IDLE_BACK_OFF_MOST: u64 = 1_000_000;
/// Fraction of the run count at which writers stop. From this fraction on, no policy call is paused for its CPU time.
const NEAR_STOP: f64 = 0.75;

/// The state behind the control lock: everything that changes versions.
pub(crate) struct Control {
    pub(crate) manifest: ManifestFile,
    pub(crate) keyspaces: Vec<KeyspaceControl>,
    /// Next numbers of runs and tickets.
    pub(crate) numbers: Numbers,
    pub(crate) decisions: DecisionLog,
    /// Largest sequence number that a flush may write. A checkpoint lowers it, and memtables with newer entries wait.
    pub(crate) flush_ceiling: Seq,
    /// Manifest changes that this release does not use but keeps.
    pub(crate) carried: Vec<Change>,
    /// Number of the next manual compaction.
    pub(crate) next_manual: u64,
    /// Set while compactions wait for disk space and no running one can free any.
    pub(crate) shortage: Option<Shortage>,
    /// Piece whose wait for disk space was logged last.
    pub(crate) short_piece: Option<PieceId>,
    /// Whether a policy call created work for other lanes: a search, or a held output that may now be installed. These
    /// lanes then need a wake-up.
    pub(crate) needs_wake_up: bool,
    /// Whether a manual compaction has ended since the last look: its caller must be woken.
    pub(crate) manual_ended: bool,
    /// Cost of the policy calls since it was last counted.
    pub(crate) policy_calls: PolicyCalls,
    /// Number of callers that wait until nothing is left to do. Policy calls are not paused for them.
    pub(crate) idle_waiters: usize,
    /// Whether the store is closed. Nothing more is made durable.
    pub(crate) closed: bool,
}

/// Cost of policy calls, including the admission of their plans.
#[derive(Clone, Copy, Default)]
pub(crate) struct PolicyCalls {
    pub(crate) times: u64,
    pub(crate) nanos: u64,
    pub(crate) longest_nanos: u64,
}

impl PolicyCalls {
    /// Counts a call that used `cpu` nanoseconds of its thread and took `elapsed` nanoseconds of wall-clock time.
    pub(crate) fn note(&mut self, cpu: u64, elapsed: u64) {
        self.times += 1;
        self.nanos += cpu;
        self.longest_nanos = self.longest_nanos.max(elapsed);
    }
}

/// A compaction that does not fit on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// Largest number of bytes that it writes.
    pub(crate) wanted: u64,
    /// Bytes that compactions may write now.
    pub(crate) left: u64,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a compaction needs up to {} bytes of disk space and {} are available; delete ranges or raise disk_budget",
            self.wanted, self.left
        )
    }
}

/// A manual compaction. It is planned when nothing else is in flight.
#[derive(Debug)]
pub(crate) struct ManualCompaction {
    pub(crate) id: u64,
    pub(crate) range: KeyRange,
    pub(crate) stage: Stage,
    /// Why part of the range was not compacted.
    pub(crate) error: Option<Error>,
}

/// Progress of a manual compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Waiting,
    Begun(Ticket),
    /// It is over, and its caller has not taken the result yet.
    Ended,
}

impl ManualCompaction {
    pub(crate) fn new(id: u64, range: KeyRange) -> ManualCompaction {
        ManualCompaction { id, range, stage: Stage::Waiting, error: None }
    }
}

/// Control state of one keyspace.
pub(crate) struct KeyspaceControl {
    pub(crate) state: Arc<KeyspaceState>,
    pub(crate) policy: PolicyGuard,
    pub(crate) flight: Flight,
    /// Whether something happened since the last policy call.
    pub(crate) due: bool,
    /// Whether a flush was part of that.
    pub(crate) flushed_since_call: bool,
    /// Target shape of each level and the cost of folding (rewriting files of the output level), as of the last policy
    /// call.
    pub(crate) design: Vec<LevelDesign>,
    pub(crate) fold_costs: FoldCosts,
    /// Monotonic time before which no plan is made, after refusals and failures.
    pub(crate) failure_back_off_until: u64,
    /// Monotonic time before which no policy call is made, unless writers are slowed.
    idle_back_off_until: u64,
    pub(crate) failures: u32,
    /// Manual compactions. They go first.
    pub(crate) manual: Vec<ManualCompaction>,
    pub(super) collection: Collection,
    /// Tables that cannot be read or compacted, with the error. No plan may take them.
    pub(crate) damaged: BTreeMap<TableId, Error>,
    pub(crate) pace: Option<Pace>,
    /// Number of runs in the tree when the write rate limit was set.
    pub(crate) runs_then: usize,
    /// A search that the policy asked for, until a lane takes it.
    pub(crate) requested_search: Option<Box<dyn SearchTask>>,
    /// Whether a search was asked for and its last answer has not arrived.
    pub(crate) searching: bool,
    /// Number of policies that this keyspace has had and of searches that were cancelled. It identifies the policy that
    /// an answer is for.
    pub(crate) search_epoch: u64,
    /// Name of a policy that panicked, until the listener is notified.
    pub(crate) failed_policy: Option<String>,
    /// Name of a policy that panicked, while another decides in its place.
    pub(crate) stands_in_for: Option<String>,
    /// Largest sequence number that is in tables.
    pub(crate) flushed_seq: Seq,
}

impl KeyspaceControl {
    pub(crate) fn new(
        state: Arc<KeyspaceState>,
        policy: Box<dyn CompactionPolicy>,
        flushed_seq: Seq,
    ) -> KeyspaceControl {
        let mut control = KeyspaceControl {
            state,
            policy: PolicyGuard::new(policy),
            flight: Flight::default(),
            due: true,
            flushed_since_call: true,
            design: Vec::new(),
            fold_costs: FoldCosts::default(),
            failure_back_off_until: 0,
            idle_back_off_until: 0,
            failures: 0,
            manual: Vec::new(),
            collection: Collection::default(),
            damaged: BTreeMap::new(),
            pace: None,
            runs_then: 0,
            requested_search: None,
            searching: false,
            search_epoch: 0,
            failed_policy: None,
            stands_in_for: None,
            flushed_seq,
        };
        control.policy.freeze(control.is_frozen());
        control
    }

    /// Returns the tree as the policy sees it.
    pub(crate) fn view(&self) -> TreeView {
        project::view(&self.installed(), &self.flight)
    }

    /// Returns the installed tree. Damaged tables are marked as unavailable, so that no plan takes them while legality
    /// still accounts for them.
    pub(crate) fn installed(&self) -> TreeView {
        let mut view = installed(&self.state.view().tree);
        if !self.damaged.is_empty() {
            for file in view.levels.iter_mut().flat_map(|l| &mut l.runs).flat_map(|r| &mut r.files) {
                if self.damaged.contains_key(&file.table) {
                    file.state = FileState::Unavailable;
                }
            }
        }
        view
    }

    /// Returns the disk space in bytes that compactions under way may still take, if they may exceed `spare` bytes.
    pub(super) fn reserved(&self, spare: u64) -> u64 {
        if self.flight.tickets.is_empty() {
            return self.flight.writing();
        }
        self.flight.reserved(spare, || self.installed())
    }

    /// Returns whether no compaction or search is in flight or requested.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_wanted = self.manual.iter().any(|manual| manual.stage != Stage::Ended);
        self.flight.tickets.is_empty() && !is_wanted && !self.due && !self.searching
    }

    /// Returns whether the policy must keep its parameters.
    pub(crate) fn is_frozen(&self) -> bool {
        self.state.options.load().adaptation == Adaptation::Frozen
    }

    /// Starts a search for the policy. It replaces an earlier one.
    pub(crate) fn begin_search(&mut self, search: Box<dyn SearchTask>) {
        (self.requested_search, self.searching) = (Some(search), true);
        self.state.search_changed.store(true, atomic::Ordering::Release);
    }

    /// Cancels the policy's search and notifies the policy with an empty answer.
    pub(crate) fn end_search(&mut self) {
        self.forget_search();
        self.policy.observe(&Outcome::SearchEnded(Vec::new()));
    }

    /// Makes sure that no answer to an earlier search is accepted.
    fn forget_search(&mut self) {
        self.search_epoch += 1;
        (self.requested_search, self.searching) = (None, false);
        self.state.search_changed.store(true, atomic::Ordering::Release);
    }

    /// Returns the number of runs that `pace` counts. If the policy gives its own count, runs added and removed since
    /// then are added, and memtables count as the runs that they will become. So the count changes without jumps.
    pub(crate) fn paced_runs(&self, pace: &Pace) -> f64 {
        let view = self.state.view();
        let runs = match pace.scope {
            PaceScope::Level0 => view.tree.levels[0].runs.len(),
            PaceScope::All => view.tree.runs(),
        };
        let Some(covered) = pace.covered else { return runs as f64 };
        let since = runs as f64 - self.runs_then as f64;
        (covered + since).max(0.0) + self.state.runs_to_come(&view)
    }

    /// Returns the name and the state of the policy that the next open creates.
    pub(crate) fn durable_policy(&self) -> (String, Vec<u8>) {
        match &self.stands_in_for {
            Some(name) => (name.clone(), Vec::new()),
            None => (self.policy.name(), self.policy.save()),
        }
    }

    /// Replaces the policy.
    pub(crate) fn set_policy(&mut self, policy: Box<dyn CompactionPolicy>) {
        self.stands_in_for = None;
        self.policy = PolicyGuard::new(policy);
        self.policy.freeze(self.is_frozen());
        self.forget_search();
        // Limits, pauses and failures of the old policy do not apply to the new one.
        (self.pace, self.failure_back_off_until, self.failures) = (None, 0, 0);
        self.call_policy_soon();
    }

    /// Schedules another look at value files if a compaction for them lacked disk space. Returns whether it did.
    pub(crate) fn look_for_room(&mut self) -> bool {
        let lacked_room = std::mem::take(&mut self.collection.lacks_room);
        self.due |= lacked_room;
        lacked_room
    }

    /// Schedules a policy call, without a pause after a call that changed nothing.
    pub(crate) fn call_policy_soon(&mut self) {
        (self.due, self.idle_back_off_until) = (true, 0);
    }

    /// Ends all back-offs after failures, for a caller that waits for compactions: what failed may succeed now.
    pub(crate) fn retry_now(&mut self) {
        self.failure_back_off_until = 0;
        self.flight.retry_now();
    }

    /// Returns the result of manual compaction `id` once it has ended, and forgets it.
    pub(crate) fn take_manual(&mut self, id: u64) -> Option<Result<()>> {
        let at = self.manual.iter().position(|manual| manual.id == id && manual.stage == Stage::Ended)?;
        Some(self.manual.remove(at).error.map_or(Ok(()), Err))
    }

    /// Forgets manual compaction `id`, since nobody waits for it. If it has begun, it goes on.
    pub(crate) fn forget_manual(&mut self, id: u64) {
        self.manual.retain(|manual| manual.id != id);
    }

    /// Returns the manual compaction to plan next.
    pub(super) fn waiting_manual(&mut self) -> Option<&mut ManualCompaction> {
        self.manual.iter_mut().find(|manual| manual.stage == Stage::Waiting)
    }

    /// Returns the manual compaction that `ticket` carries out.
    pub(super) fn begun_manual(&mut self, ticket: Ticket) -> Option<&mut ManualCompaction> {
        self.manual.iter_mut().find(|manual| manual.stage == Stage::Begun(ticket))
    }

    /// Returns the error of a damaged table that holds keys of `range`, if there is one.
    pub(super) fn damage_in(&self, range: &KeyRange) -> Option<Error> {
        let view = self.state.view();
        let mut files = view.tree.files().filter(|(_, _, file)| file.bounds.overlaps(range));
        files.find_map(|(_, _, file)| self.damaged.get(&file.id()).cloned())
    }

    /// Returns the plan that compacts everything in `range` into one run of the deepest level in use. The `reason` is
    /// shown and logged, so it must not contain user keys.
    pub(super) fn full_plan(&self, range: &KeyRange, reason: String) -> Option<Plan> {
        let view = self.view();
        let overlapping = || view.files().filter(|(_, _, f)| f.bounds.overlaps(range) && f.is_takeable());
        let out = view.deepest()?.max(1);
        let take: Vec<Take> =
            overlapping().map(|(_, _, f)| Take { table: f.table, range: f.bounds.clone() }).collect();
        let mut plan = Plan::new(take, out, reason);
        // Outputs that join a run inherit its tag. If the whole run is compacted, its tag does not describe them.
        let stays = |f: &FileView| !(f.bounds.overlaps(range) && f.is_takeable());
        let joins = |run: &&RunView| run.tag.0.is_empty() || run.files.iter().any(stays);
        if let Some(run) = view.levels[out as usize].runs.first().filter(joins) {
            plan.place = Place::Run(run.id);
        }
        (!plan.take.is_empty()).then_some(plan)
    }

    /// Returns the monotonic time before which the policy is not called, given `slots` compaction slots.
    pub(super) fn next_policy_call(&self, slots: usize) -> u64 {
        let idle_pause_applies =
            self.idle_back_off_until > self.failure_back_off_until && !self.is_pressed(slots);
        if idle_pause_applies { self.idle_back_off_until } else { self.failure_back_off_until }
    }

    /// Returns whether policy calls are paused at `now` only because of the CPU time that they use.
    pub(super) fn is_backing_off(&self, now: u64) -> bool {
        self.idle_back_off_until > now
    }

    /// Returns how close writers are to a stop: the current number of runs as a fraction of the number at which they
    /// stop. Returns 0 below both the slowdown threshold and `NEAR_STOP`.
    pub(super) fn pressure(&self) -> f64 {
        let Some(pace) = &self.pace else { return 0.0 };
        let runs = self.paced_runs(pace);
        if runs >= pace.slow.min(NEAR_STOP * pace.stop) { runs / pace.stop.max(1.0) } else { 0.0 }
    }

    /// Returns whether the runs of the keyspace slow the writers.
    pub(crate) fn slows_writers(&self) -> bool {
        // The number of runs alone decides this, so any speed will do: it only determines how much writers are slowed.
        let admits = |pace: &Pace| write_rate(pace, self.paced_runs(pace), 1.0);
        self.pace.as_ref().is_some_and(|pace| !matches!(admits(pace), WriteRate::Open))
    }

    /// Returns whether a policy call is too urgent to pause: writers are slowed while a slot may be idle, writers are
    /// close to a stop, or no pace is set yet.
    fn is_pressed(&self, slots: usize) -> bool {
        let Some(pace) = &self.pace else { return true };
        let limit = if self.flight.tickets.len() < slots { pace.slow } else { f64::INFINITY };
        self.paced_runs(pace) >= limit.min(NEAR_STOP * pace.stop)
    }

    /// Pauses policy calls after one that used `cpu` nanoseconds and changed nothing. The pause grows with `keyspaces`,
    /// the number of keyspaces whose calls are paused.
    pub(super) fn back_off_idle(&mut self, cpu: u64, keyspaces: usize, now: u64) {
        let pause = (cpu / 1000).saturating_mul(IDLE_BACK_OFF).saturating_mul(keyspaces as u64);
        self.idle_back_off_until = now + pause.min(IDLE_BACK_OFF_MOST);
    }

    pub(super) fn back_off_failed(&mut self, now: u64) {
        let pause = (RETRY_FIRST << self.failures.min(6)).min(RETRY_LAST);
        self.failures += 1;
        self.failure_back_off_until = now + pause;
    }
}

impl Control {
    pub(crate) fn keyspace(&mut self, state: &Arc<KeyspaceState>) -> Option<&mut KeyspaceControl> {
        self.keyspaces.iter_mut().find(|k| Arc::ptr_eq(&k.state, state))
    }

    pub(crate) fn fresh_run(&mut self) -> RunId {
        self.numbers.run()
    }

    /// Schedules policy calls for the keyspaces that slow writers.
    pub(crate) fn recall_slowing(&mut self) {
        let slowing = self.keyspaces.iter_mut().filter(|keyspace| keyspace.slows_writers());
        slowing.for_each(KeyspaceControl::call_policy_soon);
    }

    /// Handles a failed piece. With `retry` it may succeed later. Otherwise it is withdrawn with everything that
    /// depends on it, and no plan takes the `damaged` tables any more.
    pub(crate) fn failed(
        &mut self,
        state: &Arc<KeyspaceState>,
        id: PieceId,
        retry: bool,
        damaged: &[TableId],
        error: &Error,
        now: u64,
    ) {
        let why = &error.to_string();
        let Control { keyspaces, decisions, .. } = self;
        let keyspace = keyspaces.iter_mut().find(|k| Arc::ptr_eq(&k.state, state));
        let Some(keyspace) = keyspace else { return };
        keyspace.damaged.extend(damaged.iter().map(|table| (*table, error.clone())));
        let ended = keyspace.flight.failed(id, retry, why, now);
        explain::withdrawn(decisions, now, &state.name(), &ended, why);
        for gone in ended.gone.iter().chain(&ended.staying) {
            if let Some(manual) = keyspace.begun_manual(gone.ticket) {
                manual.error.get_or_insert_with(|| error.clone());
            }
        }
        // Failures that follow one another at once, such as those of all pieces that read one damaged file, count as
        // one.
        if !ended.gone.is_empty() && keyspace.failure_back_off_until <= now {
            keyspace.back_off_failed(now);
        }
        keyspace.due = true;
        self.end_tickets(state, now);
    }

    /// Reports finished tickets to the policy and forgets them.
    pub(crate) fn end_tickets(&mut self, state: &Arc<KeyspaceState>, now: u64) {
        let Some(index) = self.keyspaces.iter().position(|k| Arc::ptr_eq(&k.state, state)) else { return };
        for ticket in self.keyspaces[index].flight.take_finished() {
            let result = if ticket.withdrawn.is_some() { PlanResult::Withdrawn } else { PlanResult::Done };
            let outcome = Outcome::Plan {
                ticket: ticket.ticket,
                reason: ticket.plan.reason.clone(),
                result,
                why: ticket.withdrawn.clone().unwrap_or_default(),
                bytes_in: ticket.bytes_in,
                bytes_out: ticket.bytes_out,
                dropped: ticket.dropped,
            };
            explain::ended(&mut self.decisions, now, &state.name(), &ticket, result);
            self.keyspaces[index].policy.observe(&outcome);
            self.keyspaces[index].call_policy_soon();
            self.keyspaces[index].collection.ended(ticket.ticket, result == PlanResult::Done, now);
            if let Some(manual) = self.keyspaces[index].begun_manual(ticket.ticket) {
                manual.stage = Stage::Ended;
                self.manual_ended = true;
            }
        }
    }
}
