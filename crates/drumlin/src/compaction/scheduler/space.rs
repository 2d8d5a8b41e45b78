//! Compactions that find no disk space, and compactions that free it.

use super::admission::{PlanAdmitter, SchedulerInputs, settings};
use crate::compaction::control::{Control, KeyspaceControl, Shortage};
use crate::compaction::explain;
use drumlin_policy::schedule::Scene;
use drumlin_policy::schedule::room::NO_ROOM;
use drumlin_types::KeyRange;
use drumlin_types::contract::{PieceId, RunView, TreeView};

/// Pause before a compaction that found no disk space is checked again, in microseconds.
const ROOM_RETRY: u64 = 1_000_000;
/// A full compaction to free disk space needs at least one part in this many of a keyspace's entries outside its
/// largest run. So such compactions rewrite at most ten entries for each entry written since the last one.
const LEAST_OUTSIDE: u64 = 10;

/// Entries and range tombstones outside the largest run of a keyspace. Compacting everything frees at most two entries
/// for each of these entries, itself and one that it overwrites, and the entries that the range tombstones cover.
struct Outside {
    entries: u64,
    /// Entries of all runs.
    of: u64,
    range_tombstones: u64,
}

impl Outside {
    fn of(tree: &TreeView) -> Outside {
        let runs = || tree.levels.iter().flat_map(|level| &level.runs);
        let entries = |run: &RunView| run.files.iter().map(|file| file.entries).sum::<u64>();
        let largest = runs().max_by_key(|run| entries(run)).map(|run| run.id);
        let outside = || runs().filter(|run| Some(run.id) != largest);
        Outside {
            entries: outside().map(entries).sum(),
            of: runs().map(entries).sum(),
            range_tombstones: outside().flat_map(|run| &run.files).map(|file| file.range_tombstones).sum(),
        }
    }

    fn is_worth_compacting(&self) -> bool {
        self.range_tombstones > 0 || self.entries > 0 && self.entries >= self.of / LEAST_OUTSIDE
    }
}

impl std::fmt::Display for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outside { entries, of, range_tombstones } = self;
        write!(
            f,
            "{entries} of {of} entries and {range_tombstones} range tombstones lie outside the largest run"
        )
    }
}

/// A piece of keyspace `index` that does not fit on the disk.
pub(super) struct Short {
    pub(super) index: usize,
    pub(super) id: PieceId,
    pub(super) shortage: Shortage,
}

impl Control {
    /// Handles pieces that do not fit on the disk, at most one for each keyspace. Logs the first one once, and returns
    /// the time to check again. If no compaction is writing and no file waits to be removed, unfinished work gives way
    /// to work that fits.
    pub(super) fn wait_for_room(&mut self, short: &[Short], inputs: &SchedulerInputs) -> u64 {
        let now = inputs.now;
        let Some(Short { index, id, shortage }) = short.first() else { return now };
        if self.short_piece != Some(*id) {
            self.short_piece = Some(*id);
            let what = format!("{} waits for disk space: piece {}", id.ticket, id.index);
            self.decisions.note(now, &self.keyspaces[*index].state.name(), what, shortage.to_string());
        }
        if self.keyspaces.iter().all(|keyspace| keyspace.flight.writing() == 0) {
            self.shortage = Some(*shortage);
            if !inputs.reclaims && self.give_way(short, inputs) {
                (self.shortage, self.needs_wake_up) = (None, true);
            }
        }
        now.saturating_add(ROOM_RETRY)
    }

    /// Discards held outputs that can be neither installed nor moved to the level of their inputs. If there are none,
    /// replaces a ticket that lacks disk space by a compaction that fits, or withdraws it if it was started for value
    /// files. Returns whether anything changed.
    fn give_way(&mut self, short: &[Short], inputs: &SchedulerInputs) -> bool {
        let Control { keyspaces, numbers, decisions, .. } = self;
        let mut is_changed = false;
        for keyspace in keyspaces.iter_mut() {
            let discarded = keyspace.flight.discard_held();
            explain::discarded(decisions, inputs.now, &keyspace.state.name(), &discarded);
            is_changed |= !discarded.is_empty();
        }
        // The other held outputs land (are installed in the level of their inputs) first.
        if is_changed || keyspaces.iter().any(|keyspace| keyspace.flight.holds()) {
            return is_changed;
        }
        for Short { index, id, shortage } in short {
            let keyspace = &mut keyspaces[*index];
            // The caller of a manual compaction gets the error instead.
            if keyspace.begun_manual(id.ticket).is_some() {
                continue;
            }
            // No part of a compaction for value files is urgent.
            if keyspace.collection.is_ticket(id.ticket) {
                let ended = keyspace.flight.withdraw_ready(id.ticket, NO_ROOM);
                explain::withdrawn(decisions, inputs.now, &keyspace.state.name(), &ended, NO_ROOM);
                keyspace.collection.lacks_room = true;
                keyspace.collection.forget_look();
                keyspace.due = true;
                return true;
            }
            let settings = settings(inputs, &keyspace.state);
            let tree = keyspace.installed();
            let KeyspaceControl { design, fold_costs: costs, flight, .. } = keyspace;
            let (room, now) = (shortage.left, inputs.now);
            let scene = Scene { tree: &tree, design, settings: &settings, costs: *costs, room, now };
            let Some(gave_way) = flight.give_way(&scene, *id, numbers) else { continue };
            let name = &keyspace.state.name();
            explain::withdrawn(decisions, now, name, &gave_way.ended, NO_ROOM);
            if let Some(ticket) = keyspace.flight.ticket(gave_way.ticket) {
                explain::admitted(decisions, now, name, ticket);
            }
            keyspace.due = true;
            return true;
        }
        false
    }

    /// Compacts a keyspace as a whole if the disk is full and nothing is in flight. A policy decides by the shape of
    /// its tree, which may be as designed while much of the tree is garbage. Without this compaction, none of the
    /// garbage would ever be freed.
    pub(super) fn free_full_disk(&mut self, inputs: &SchedulerInputs) {
        let Control { keyspaces, numbers, decisions, .. } = self;
        if !inputs.is_full || keyspaces.iter().any(|keyspace| !keyspace.flight.tickets.is_empty()) {
            return;
        }
        let able = keyspaces.iter_mut().filter(|keyspace| keyspace.failure_back_off_until <= inputs.now);
        let outside = able.map(|keyspace| (Outside::of(&keyspace.view()), keyspace));
        let worth = outside.filter(|(outside, _)| outside.is_worth_compacting());
        let Some((outside, keyspace)) = worth.max_by_key(|(outside, _)| outside.entries) else { return };
        let reason = format!("the disk is full, and {outside}");
        let Some(plan) = keyspace.full_plan(&KeyRange::all(), reason) else { return };
        let mut admitter = PlanAdmitter { numbers, decisions, inputs };
        if admitter.admit(keyspace, &plan, None).is_err() {
            // A damaged table is in the way. The next attempt waits as after a failure.
            keyspace.back_off_failed(inputs.now);
        }
    }
}
