//! The state behind the control lock: everything that changes versions, keyspace by keyspace, and what
//! happens to it when pieces fail and tickets end.

use super::claims::Flight;
use super::explain;
use super::seat::Seat;
use super::view::installed;
use crate::decisions::DecisionLog;
use crate::error::{Error, Result};
use crate::keyspace::KeyspaceState;
use crate::options::Adaptation;
use crate::version::ManifestWriter;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::Change;
use drumlin_policy::schedule::{FoldCosts, Numbers, project};
use drumlin_types::contract::{
    CompactionPolicy, FileState, LevelDesign, Outcome, Pace, PaceScope, PieceId, Place, Plan, PlanResult,
    Take, Think, TreeView,
};
use drumlin_types::{KeyRange, RunId, Seq, TableId, Ticket};
use std::collections::BTreeMap;

/// First pause after a failed piece, doubling to the last one; microseconds.
const RETRY_FIRST: u64 = 1_000_000;
const RETRY_LAST: u64 = 60_000_000;
/// A question that changed nothing is followed by this many times the CPU that it took without one, for each keyspace:
/// so these take a hundredth of a core.
const SPACING: u64 = 100;
/// Longest such pause, microseconds.
const SPACED_MOST: u64 = 1_000_000;
/// The share of the most runs from which on no question waits.
const NEAR_STOP: f64 = 0.75;

/// The state behind the control lock: everything that changes versions.
pub(crate) struct Control {
    pub(crate) manifest: ManifestWriter,
    pub(crate) keyspaces: Vec<KeyspaceControl>,
    /// Numbers of runs and tickets.
    pub(crate) numbers: Numbers,
    pub(crate) decisions: DecisionLog,
    /// Memtables that hold anything newer wait with their flush, for a checkpoint.
    pub(crate) flush_ceiling: Seq,
    /// Manifest changes that this version only keeps.
    pub(crate) carried: Vec<Change>,
    /// Number of the next compaction asked for by hand.
    pub(crate) next_manual: u64,
    /// Set while merges wait for room on the disk, and none runs that could make it.
    pub(crate) shortage: Option<Shortage>,
    /// The piece whose wait for room was logged last.
    pub(crate) short_piece: Option<PieceId>,
    /// A policy that was asked left work for others than its plans: a search, or held output that now has its way free.
    pub(crate) stirred: bool,
    /// What asking took since it was last counted.
    pub(crate) asked: Asked,
    /// Callers that wait until nothing is to be done: no question is put off for them.
    pub(crate) idle_waiters: usize,
    /// The store is closed: nothing more is made durable.
    pub(crate) closed: bool,
}

/// What asking policies took, their plans' admission included.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) times: u64,
    pub(crate) nanos: u64,
    pub(crate) longest_nanos: u64,
}

impl Asked {
    /// A question took `cpu` of its thread, and `elapsed` by the clock, nanoseconds both.
    pub(crate) fn note(&mut self, cpu: u64, elapsed: u64) {
        self.times += 1;
        self.nanos += cpu;
        self.longest_nanos = self.longest_nanos.max(elapsed);
    }
}

/// A merge that does not fit on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// Bytes that it may write.
    pub(crate) wanted: u64,
    /// Bytes that it might.
    pub(crate) left: u64,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a merge that may write {} bytes waits: {} are left for merges", self.wanted, self.left)
    }
}

/// A compaction asked for by hand. It is planned when nothing else is under way.
#[derive(Debug)]
pub(crate) struct ManualCompaction {
    pub(crate) id: u64,
    pub(crate) range: KeyRange,
    pub(crate) stage: Stage,
    /// Why not all of it was merged.
    pub(crate) error: Option<Error>,
}

/// How far a compaction asked for by hand is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Asked,
    Begun(Ticket),
    /// It is over, and who asked for it has not looked yet.
    Ended,
}

impl ManualCompaction {
    pub(crate) fn new(id: u64, range: KeyRange) -> ManualCompaction {
        ManualCompaction { id, range, stage: Stage::Asked, error: None }
    }
}

/// One keyspace behind the control lock.
pub(crate) struct KeyspaceControl {
    pub(crate) state: Arc<KeyspaceState>,
    pub(crate) policy: Seat,
    pub(crate) flight: Flight,
    /// Something happened since the policy was asked last.
    pub(crate) due: bool,
    /// That was a flush.
    pub(crate) flushed: bool,
    /// What the policy means each level to hold, and what folding costs, as it was when it was asked.
    pub(crate) design: Vec<LevelDesign>,
    pub(crate) fold_costs: FoldCosts,
    /// No plan before this monotonic time, after refusals and failures.
    pub(crate) rest_until: u64,
    /// No question before this monotonic time, unless it is pressing.
    spaced_until: u64,
    pub(crate) failures: u32,
    /// Compactions asked for by hand; they go first.
    pub(crate) manual: Vec<ManualCompaction>,
    /// Tables that cannot be read or merged, and why; no plan may take them.
    pub(crate) damaged: BTreeMap<TableId, Error>,
    pub(crate) pace: Option<Pace>,
    /// Runs of the tree when the pace was set.
    pub(crate) runs_then: usize,
    /// A search that the policy asked for, until a lane takes it.
    pub(crate) think: Option<Box<dyn Think>>,
    /// A search was asked for, and its last answer is not there yet.
    pub(crate) searching: bool,
    /// Counts the policies that this keyspace had, and the searches given up, so that no answer reaches the wrong one.
    pub(crate) policies: u64,
    /// The policy that panicked, until the listener has heard of it.
    pub(crate) fallen: Option<String>,
    /// The policy that panicked, while another decides in its place.
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
            policy: Seat::new(policy),
            flight: Flight::default(),
            due: true,
            flushed: true,
            design: Vec::new(),
            fold_costs: FoldCosts::default(),
            rest_until: 0,
            spaced_until: 0,
            failures: 0,
            manual: Vec::new(),
            damaged: BTreeMap::new(),
            pace: None,
            runs_then: 0,
            think: None,
            searching: false,
            policies: 0,
            fallen: None,
            stands_in_for: None,
            flushed_seq,
        };
        control.policy.freeze(control.is_frozen());
        control
    }

    /// The tree as the policy sees it.
    pub(crate) fn view(&self) -> TreeView {
        project::view(&self.installed(), &self.flight)
    }

    /// The tree as it is installed. Damaged tables show as coming, so that nobody takes them and legality still counts
    /// them.
    pub(crate) fn installed(&self) -> TreeView {
        let mut view = installed(&self.state.peek().tree);
        if !self.damaged.is_empty() {
            for file in view.levels.iter_mut().flat_map(|l| &mut l.runs).flat_map(|r| &mut r.files) {
                if self.damaged.contains_key(&file.table) {
                    file.state = FileState::Coming(Ticket(0));
                }
            }
        }
        view
    }

    /// Whether nothing is under way and nothing was asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_asked = self.manual.iter().any(|manual| manual.stage != Stage::Ended);
        self.flight.tickets.is_empty() && !is_asked && !self.due && !self.searching
    }

    /// Whether the policy is to keep what it has found.
    pub(crate) fn is_frozen(&self) -> bool {
        self.state.options.load().adaptation == Adaptation::Frozen
    }

    /// The policy asks for a search, in place of the one that it may have asked for before.
    pub(crate) fn begin_search(&mut self, think: Box<dyn Think>) {
        (self.think, self.searching) = (Some(think), true);
        self.state.search_changed.store(true, atomic::Ordering::Release);
    }

    /// Gives up the search of the policy: what it would find is not to be taken.
    pub(crate) fn end_search(&mut self) {
        self.forget_search();
        self.policy.observe(&Outcome::Thought(Vec::new()));
    }

    /// No answer to what was asked before is taken any more.
    fn forget_search(&mut self) {
        self.policies += 1;
        (self.think, self.searching) = (None, false);
        self.state.search_changed.store(true, atomic::Ordering::Release);
    }

    /// The runs that `pace` counts now. Where the policy counts itself, what came and went since is added,
    /// and memtables count as the runs that they will be: so the count has no steps.
    pub(crate) fn paced_runs(&self, pace: &Pace) -> f64 {
        let view = self.state.peek();
        let runs = match pace.scope {
            PaceScope::Level0 => view.tree.levels[0].runs.len(),
            PaceScope::All => view.tree.runs(),
        };
        let Some(covered) = pace.covered else { return runs as f64 };
        let since = runs as f64 - self.runs_then as f64;
        (covered + since).max(0.0) + self.state.runs_to_come(&view)
    }

    /// Name and state of the policy that the next open is to have.
    pub(crate) fn durable_policy(&self) -> (String, Vec<u8>) {
        match &self.stands_in_for {
            Some(name) => (name.clone(), Vec::new()),
            None => (self.policy.name(), self.policy.save()),
        }
    }

    /// Takes another policy.
    pub(crate) fn set_policy(&mut self, policy: Box<dyn CompactionPolicy>) {
        self.stands_in_for = None;
        self.policy = Seat::new(policy);
        self.policy.freeze(self.is_frozen());
        self.forget_search();
        // What the policy before had coming is not this one's.
        (self.pace, self.rest_until, self.failures) = (None, 0, 0);
        self.ask_soon();
    }

    /// The policy is to be asked, without a pause after a question that came to nothing.
    pub(crate) fn ask_soon(&mut self) {
        (self.due, self.spaced_until) = (true, 0);
    }

    /// How the compaction asked for as `id` ended, once it has. It is forgotten then.
    pub(crate) fn take_manual(&mut self, id: u64) -> Option<Result<()>> {
        let at = self.manual.iter().position(|manual| manual.id == id && manual.stage == Stage::Ended)?;
        Some(self.manual.remove(at).error.map_or(Ok(()), Err))
    }

    /// Nobody waits for the compaction `id` any more. What has begun goes on.
    pub(crate) fn forget_manual(&mut self, id: u64) {
        self.manual.retain(|manual| manual.id != id);
    }

    /// The compaction by hand that is to be planned next.
    pub(super) fn asked_manual(&mut self) -> Option<&mut ManualCompaction> {
        self.manual.iter_mut().find(|manual| manual.stage == Stage::Asked)
    }

    /// The compaction by hand that `ticket` is.
    pub(super) fn begun_manual(&mut self, ticket: Ticket) -> Option<&mut ManualCompaction> {
        self.manual.iter_mut().find(|manual| manual.stage == Stage::Begun(ticket))
    }

    /// Why a table that holds keys of `range` cannot be merged, if one cannot.
    pub(super) fn damage_in(&self, range: &KeyRange) -> Option<Error> {
        let view = self.state.peek();
        let mut files = view.tree.files().filter(|(_, _, file)| file.bounds.overlaps(range));
        files.find_map(|(_, _, file)| self.damaged.get(&file.id()).cloned())
    }

    /// The plan that merges everything of `range` into one run of the deepest level in use.
    pub(super) fn manual_plan(&self, range: &KeyRange) -> Option<Plan> {
        let view = self.view();
        let overlapping = || view.files().filter(|(_, _, f)| f.bounds.overlaps(range) && f.is_takeable());
        let out = view.deepest()?.max(1);
        let take: Vec<Take> =
            overlapping().map(|(_, _, f)| Take { table: f.table, range: f.bounds.clone() }).collect();
        // Reasons are shown and logged: no user bytes in them.
        let mut plan = Plan::new(take, out, "a compaction asked for by hand".to_owned());
        if let Some(run) = view.levels[out as usize].runs.first() {
            plan.place = Place::Run(run.id);
        }
        (!plan.take.is_empty()).then_some(plan)
    }

    /// The monotonic time before which the policy is not to be asked, with so many slots.
    pub(super) fn asked_from(&self, slots: usize) -> u64 {
        let is_spaced = self.spaced_until > self.rest_until && !self.is_pressed(slots);
        if is_spaced { self.spaced_until } else { self.rest_until }
    }

    /// Whether a question is put off at `now`, for no other reason than what questions take.
    pub(super) fn is_spaced(&self, now: u64) -> bool {
        self.spaced_until > now
    }

    /// How near writers are to a stop: the share of the most runs that there are; 0 where nobody is slowed and many more
    /// may come.
    pub(super) fn pressure(&self) -> f64 {
        let Some(pace) = &self.pace else { return 0.0 };
        let runs = self.paced_runs(pace);
        if runs >= pace.slow.min(NEAR_STOP * pace.stop) { runs / pace.stop.max(1.0) } else { 0.0 }
    }

    /// Whether writers are slowed while a slot may be idle, or soon will be whatever the slots do.
    fn is_pressed(&self, slots: usize) -> bool {
        let Some(pace) = &self.pace else { return true };
        let limit = if self.flight.tickets.len() < slots { pace.slow } else { f64::INFINITY };
        self.paced_runs(pace) >= limit.min(NEAR_STOP * pace.stop)
    }

    /// The policy was asked for `cpu` nanoseconds and changed nothing; so do those of so many keyspaces.
    pub(super) fn space(&mut self, cpu: u64, keyspaces: usize, now: u64) {
        let pause = (cpu / 1000).saturating_mul(SPACING).saturating_mul(keyspaces as u64);
        self.spaced_until = now + pause.min(SPACED_MOST);
    }

    pub(super) fn rest(&mut self, now: u64) {
        let pause = (RETRY_FIRST << self.failures.min(6)).min(RETRY_LAST);
        self.failures += 1;
        self.rest_until = now + pause;
    }
}

impl Control {
    pub(crate) fn keyspace(&mut self, state: &Arc<KeyspaceState>) -> Option<&mut KeyspaceControl> {
        self.keyspaces.iter_mut().find(|k| Arc::ptr_eq(&k.state, state))
    }

    pub(crate) fn fresh_run(&mut self) -> RunId {
        self.numbers.run()
    }

    /// A piece failed. `retry` when it may succeed later; otherwise it is withdrawn, with what depends on it, and
    /// `damaged` tables are left alone from now on.
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
        explain::withdrawn(decisions, now, &state.name, &ended, why);
        for gone in ended.gone.iter().chain(&ended.staying) {
            if let Some(manual) = keyspace.begun_manual(gone.ticket) {
                manual.error.get_or_insert_with(|| error.clone());
            }
        }
        // What fails together, as all pieces that meet one damaged file, is one incident.
        if !ended.gone.is_empty() && keyspace.rest_until <= now {
            keyspace.rest(now);
        }
        keyspace.due = true;
        self.end_tickets(state, now);
    }

    /// Tells the policy of finished tickets and forgets them.
    pub(crate) fn end_tickets(&mut self, state: &Arc<KeyspaceState>, now: u64) {
        let Some(index) = self.keyspaces.iter().position(|k| Arc::ptr_eq(&k.state, state)) else { return };
        for ticket in self.keyspaces[index].flight.take_finished() {
            let result = if ticket.cut_short.is_some() { PlanResult::Cut } else { PlanResult::Done };
            let outcome = Outcome::Plan {
                ticket: ticket.ticket,
                reason: ticket.plan.reason.clone(),
                result,
                why: ticket.cut_short.clone().unwrap_or_default(),
                bytes_in: ticket.bytes_in,
                bytes_out: ticket.bytes_out,
                dropped: ticket.dropped,
            };
            explain::ended(&mut self.decisions, now, &state.name, &ticket, result);
            self.keyspaces[index].policy.observe(&outcome);
            self.keyspaces[index].ask_soon();
            if let Some(manual) = self.keyspaces[index].begun_manual(ticket.ticket) {
                manual.stage = Stage::Ended;
            }
        }
    }
}
