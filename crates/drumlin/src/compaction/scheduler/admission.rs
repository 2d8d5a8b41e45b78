//! How decisions of a policy and manual compactions become tickets.

use super::values::{CollectionPlan, CollectionRoom};
use crate::base::decisions::DecisionLog;
use crate::base::error::{Error, ErrorKind};
use crate::compaction::control::{KeyspaceControl, Stage};
use crate::compaction::explain;
use crate::keyspace::KeyspaceState;
use drumlin_env::Clock;
use drumlin_policy::schedule::{Concurrency, Numbers, Refusal, Scene, Settings};
use drumlin_types::Ticket;
use drumlin_types::contract::legal::Illegal;
use drumlin_types::contract::{CostView, Decision, LimitView, Plan, TreeView};

/// Smallest input of a piece in bytes. It grows until installing takes at most 1/`SYNC_SHARE` of a piece's time.
const LEAST_PIECE: u64 = 8 << 20;
const SYNC_SHARE: f64 = 20.0;

/// Inputs of the scheduler at one moment.
pub(crate) struct SchedulerInputs {
    pub(crate) now: u64,
    pub(crate) seed: u64,
    pub(crate) limits: LimitView,
    pub(crate) costs: CostView,
    pub(crate) piece_bytes: u64,
    /// Largest length of a table.
    pub(crate) file_bytes: u64,
    pub(crate) mode: Concurrency,
    /// Disk space in bytes that compactions may write, including running ones.
    pub(crate) room: u64,
    /// Largest number of bytes of values that one compaction may copy.
    pub(crate) most_copied: u64,
    /// Whether files wait to be removed, so that there will be more room.
    pub(crate) reclaims: bool,
    /// Whether flushes or the log find no disk space.
    pub(crate) is_full: bool,
    /// Clock to measure how long policy calls take. No decision depends on it.
    pub(crate) clock: Clock,
    /// How often disk space had been freed when these inputs were read.
    pub(crate) times_freed: u64,
}

/// Returns the scheduler's settings for a keyspace.
pub(super) fn settings(inputs: &SchedulerInputs, keyspace: &KeyspaceState) -> Settings {
    // Small files get small pieces, so that one piece holds back only a few of them.
    let most = inputs.piece_bytes.min(keyspace.options.load().file_bytes.saturating_mul(4));
    // Installing and syncing may take a twentieth of a piece's time.
    let fixed = inputs.costs.compaction_fixed_ns / 1e9 * inputs.costs.compaction_bytes_per_s;
    let least = ((fixed * SYNC_SHARE) as u64).max(LEAST_PIECE).min(most);
    Settings { slots: inputs.limits.slots, mode: inputs.mode, piece: (least, most), ..Settings::default() }
}

/// Three views of one tree: as installed, with the compactions in flight, and after them.
pub(super) struct SeenTree {
    pub(super) tree: TreeView,
    pub(super) view: TreeView,
    pub(super) projected: TreeView,
}

/// Turns plans into tickets.
pub(super) struct PlanAdmitter<'a> {
    pub(super) numbers: &'a mut Numbers,
    pub(super) decisions: &'a mut DecisionLog,
    pub(super) inputs: &'a SchedulerInputs,
}

impl PlanAdmitter<'_> {
    /// Carries a decision out: pace, search, withdrawn tickets, new plans. Returns whether nothing changed but the
    /// pace.
    pub(super) fn apply(
        &mut self,
        keyspace: &mut KeyspaceControl,
        decision: Decision,
        mut seen: Option<SeenTree>,
        needs_wake_up: &mut bool,
    ) -> bool {
        let now = self.inputs.now;
        let mut is_idle = decision.withdraw.is_empty() && decision.search.is_none();
        if let Some(pace) = decision.pace {
            keyspace.pace = Some(pace);
            keyspace.runs_then = keyspace.state.view().tree.runs();
        }
        if let Some(search) = decision.search {
            keyspace.begin_search(search);
            *needs_wake_up = true;
        }
        for ticket in decision.withdraw {
            // A policy may withdraw its own compactions only.
            if keyspace.begun_manual(ticket).is_some() || keyspace.collection.is_ticket(ticket) {
                continue;
            }
            // Withdraws the pieces that have not started. Pieces that wait for them are redirected or withdrawn too,
            // even if their output is held.
            const WITHDRAWN: &str = "withdrawn by the policy";
            let ended = keyspace.flight.withdraw_ready(ticket, WITHDRAWN);
            explain::withdrawn(self.decisions, now, &keyspace.state.name(), &ended, WITHDRAWN);
            // The freed inputs may be compacted in another way.
            keyspace.due = true;
            *needs_wake_up = true;
        }
        let (mut admitted, mut wrong) = (0, 0);
        for plan in &decision.plans {
            match self.admit(keyspace, plan, seen.as_ref()) {
                Ok(_) => {
                    admitted += 1;
                    (seen, is_idle) = (None, false);
                }
                Err(Refusal::Illegal(_)) => wrong += 1,
                Err(Refusal::Enough | Refusal::Busy) => {}
            }
        }
        if admitted > 0 {
            // With these plans in flight the policy may find more work.
            keyspace.due = true;
            keyspace.failures = 0;
        } else if wrong > 0 && keyspace.flight.tickets.is_empty() {
            keyspace.back_off_failed(now);
            keyspace.due = true;
        }
        is_idle
    }

    /// Plans the next manual compaction if nothing is in flight. Returns whether it has ended already.
    pub(super) fn begin_manual(&mut self, keyspace: &mut KeyspaceControl) -> bool {
        if !keyspace.flight.tickets.is_empty() {
            return false;
        }
        let Some(range) = keyspace.waiting_manual().map(|manual| manual.range.clone()) else { return false };
        let plan = keyspace.full_plan(&range, "manual compaction".to_owned());
        let admitted = plan.map(|plan| self.admit(keyspace, &plan, None));
        let left_out = keyspace.damage_in(&range);
        let Some(manual) = keyspace.waiting_manual() else { return false };
        manual.error = left_out;
        manual.stage = match admitted {
            Some(Ok(ticket)) => Stage::Begun(ticket),
            None | Some(Err(Refusal::Illegal(Illegal::Empty))) => Stage::Ended,
            // With nothing in flight, only a damaged table can make the plan illegal.
            Some(Err(refusal)) => {
                let what = format!("a manual compaction was refused: {}", refusal.rule());
                manual.error.get_or_insert_with(|| Error::new(ErrorKind::Bug, what));
                Stage::Ended
            }
        };
        manual.stage == Stage::Ended
    }

    /// Starts a compaction for value files if one is due and nothing is in flight.
    pub(super) fn begin_collection(&mut self, keyspace: &mut KeyspaceControl) {
        if keyspace.waiting_manual().is_some() {
            return;
        }
        let SchedulerInputs { now, is_full, room, most_copied, .. } = *self.inputs;
        let disk = CollectionRoom { is_full, room, most_copied };
        let Some(CollectionPlan { plan, files, merges }) = keyspace.next_collection(now, disk) else {
            return;
        };
        match self.admit(keyspace, &plan, None) {
            Ok(ticket) => keyspace.collection.started(ticket, files, merges),
            // With nothing in flight, only a damaged table can make the plan illegal.
            Err(_) => keyspace.collection.back_off(now),
        }
    }

    /// Turns `plan` into a ticket, or returns why it was refused.
    pub(super) fn admit(
        &mut self,
        keyspace: &mut KeyspaceControl,
        plan: &Plan,
        seen: Option<&SeenTree>,
    ) -> Result<Ticket, Refusal> {
        let settings = settings(self.inputs, &keyspace.state);
        let installed = if seen.is_none() { keyspace.installed() } else { TreeView::default() };
        let tree = seen.map_or(&installed, |seen| &seen.tree);
        let (room, now) = (self.inputs.room, self.inputs.now);
        let KeyspaceControl { design, fold_costs: costs, flight, .. } = keyspace;
        let scene = Scene { tree, design, settings: &settings, costs: *costs, room, now };
        let admitted = match seen {
            Some(SeenTree { view, projected, .. }) => {
                flight.admit_in(&scene, (view, projected), plan, self.numbers)
            }
            None => flight.admit(&scene, plan, self.numbers),
        };
        match &admitted {
            Ok(ticket) => {
                if let Some(state) = keyspace.flight.ticket(*ticket) {
                    explain::admitted(self.decisions, self.inputs.now, &keyspace.state.name(), state);
                }
            }
            Err(refusal) => self.refuse(keyspace, plan, refusal),
        }
        admitted
    }

    /// Notifies the policy that `plan` was not admitted. Logs illegal plans only, since deferring a plan is normal.
    fn refuse(&mut self, keyspace: &mut KeyspaceControl, plan: &Plan, refusal: &Refusal) {
        if let Refusal::Illegal(illegal) = refusal {
            // Only the rule is logged: the full text would show user keys.
            let why = format!("illegal: {}", illegal.rule());
            explain::refused(self.decisions, self.inputs.now, &keyspace.state.name(), plan, &why);
        }
        keyspace.policy.observe(&refusal.outcome(plan));
    }
}
