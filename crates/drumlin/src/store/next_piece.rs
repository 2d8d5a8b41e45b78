//! Which piece (subcompaction) a compaction slot starts next, and how the tables of flushes and compactions are
//! written.

use super::Store;
use crate::background::Step;
use crate::base::event::Event;
use crate::compaction::control::{KeyspaceControl, PolicyCalls};
use crate::compaction::output::OutputSpec;
use crate::compaction::scheduler::{PieceStart, SchedulerInputs};
use crate::compaction::slots::SlotChange;
use crate::filter::{JobFilters, MergedInputs, OutputTarget};
use crate::keyspace::KeyspaceState;
use crate::options::{Adaptation, FilterMode};
use crate::table::TableOptions;
use crate::value::{Placement, ValueSpec};
use drumlin_env::sync::Arc;
use drumlin_types::contract::LimitView;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of bytes of values that one piece copies.
const MOST_COPIED: u64 = 256 << 20;
/// Bytes of input that a piece is cut to at most.
const PIECE_BYTES: u64 = 64 << 20;
/// A piece reads at most one part in `PIECE_SHARE` of `disk_budget`, and a table takes at most one part in
/// `FILE_SHARE`. `LEAST_SHARE` is the lower bound of both limits.
const PIECE_SHARE: u64 = 32;
const FILE_SHARE: u64 = 32;
const LEAST_SHARE: u64 = 64 << 10;

impl Store {
    /// Returns how a job writes tables of `keyspace` at level `out`. Tables are at least `least` bytes long before they
    /// are cut.
    pub(crate) fn output_spec(
        &self,
        keyspace: &Arc<KeyspaceState>,
        out: u8,
        bottom: bool,
        least: u64,
        inputs: MergedInputs,
    ) -> OutputSpec {
        let options = keyspace.options.load();
        let is_bottom = bottom && out > 0;
        let file_bytes = options.file_bytes.min(self.most_file_bytes()).max(least);
        let design = match options.filter_mode {
            FilterMode::Monkey => {
                self.control.lock().keyspace(keyspace).map(|entry| entry.design.clone()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let now = self.publisher.visible();
        let destination =
            OutputTarget { level: out, file_bytes, design, block_ns: self.costs.view().block_ns };
        OutputSpec {
            table: TableOptions {
                block_bytes: options.block_bytes as usize,
                compression: if is_bottom { options.bottom_compression() } else { options.compression },
                seed: self.files.filter_seed,
                created_seq: self.publisher.visible(),
                write_bytes: self.job_bytes() / 8,
            },
            file_bytes,
            filters: JobFilters::begin(&self.filters, keyspace, inputs, destination),
            owner: Some(keyspace.owner()),
            values: ValueSpec {
                threshold: Some(options.least_separated()).filter(|&least| least < u64::MAX),
                keyspace: keyspace.id,
                compression: options.compression,
                created_seq: self.publisher.visible(),
                write_bytes: self.job_bytes() / 8,
                inputs: BTreeMap::new(),
                collected: BTreeSet::new(),
                most_copied: 0,
                placement: Placement {
                    lifetimes: self.lifetimes.clone(),
                    keyspace: keyspace.id,
                    file_bytes: options.file_bytes,
                    is_flush: false,
                    policy: options.value_policy,
                    is_frozen: options.adaptation == Adaptation::Frozen,
                    now,
                    typical: self.lifetimes.typical(keyspace.id, now),
                    classes: 1,
                    value_bytes: 0,
                },
            },
        }
    }

    /// Returns the bytes of input that a piece is cut to at most. Under a disk budget, many pieces fit into the part of
    /// it that flushes leave.
    fn piece_bytes(&self) -> u64 {
        self.share_of_disk(PIECE_SHARE).min(PIECE_BYTES)
    }

    /// Returns how many bytes of values one piece may copy from value files with much garbage. No space is reserved for
    /// copies, so under a disk budget the number is small. It is a share of the space that flushes and running
    /// compactions, this piece included, leave free: several pieces may copy at the same time.
    pub(crate) fn room_for_copies(&self) -> u64 {
        self.unreserved_space().min(self.share_of_disk(FILE_SHARE)).min(MOST_COPIED)
    }

    /// Returns how many bytes of values in value files one piece may merge operands into. The results are new values,
    /// for which no space is reserved; 0 while disk space is short.
    pub(crate) fn room_for_merged_values(&self) -> u64 {
        if self.health.lacks_space() { 0 } else { self.unreserved_space() }
    }

    /// Returns the part for one slot of the space that flushes and running compactions leave free.
    fn unreserved_space(&self) -> u64 {
        let spare = self.space_for_compactions();
        let left = spare.saturating_sub(self.control.lock().reserved(spare));
        left / self.slots.count().max(1) as u64
    }

    /// Returns the largest length of a table. It is small under a disk budget, so that a compaction, which works in key
    /// order, soon frees its first tables.
    fn most_file_bytes(&self) -> u64 {
        self.share_of_disk(FILE_SHARE)
    }

    fn share_of_disk(&self, share: u64) -> u64 {
        match self.options.load().disk_budget {
            0 => u64::MAX,
            budget => (budget / share).max(LEAST_SHARE),
        }
    }

    /// Returns the bytes for the buffers of one compaction.
    fn job_bytes(&self) -> usize {
        self.sizes.jobs / self.slots.count().max(1)
    }

    /// Returns the bytes that a compaction of `runs` runs may read ahead in each of them. Together that is a quarter of
    /// its memory: while a cursor reads, the bytes of its previous read are still in use, and the output needs the
    /// other half.
    pub(crate) fn compaction_readahead(&self, runs: usize) -> usize {
        self.job_bytes() / 4 / runs.max(1)
    }

    /// Returns the piece that a compaction slot should start now, or what an idle slot should do instead.
    pub(crate) fn next_piece(&self) -> std::result::Result<PieceStart, Step> {
        self.next_piece_from(self.scheduler_inputs()).unwrap_or(Err(Step::More))
    }

    fn scheduler_inputs(&self) -> SchedulerInputs {
        // Read first, so that disk space that is freed from here on is noticed.
        let times_freed = self.health.times_freed();
        SchedulerInputs {
            now: self.files.now(),
            seed: self.files.env.random_u64("policy"),
            limits: LimitView {
                slots: self.slots.count() as u32,
                cores: self.slots.cores(),
                ..self.disk_limits()
            },
            costs: self.throttles.limited(self.costs.view(), self.slots.count()),
            piece_bytes: self.piece_bytes(),
            file_bytes: self.most_file_bytes(),
            mode: self.sizes.mode,
            room: self.space_for_compactions(),
            most_copied: self.share_of_disk(FILE_SHARE),
            // Read under the control lock.
            reclaims: false,
            is_full: self.health.lacks_space(),
            clock: self.files.env.clock().clone(),
            times_freed,
        }
    }

    /// Returns what `next_piece` returns, or `None` if disk space was freed since `inputs` were read. With such inputs,
    /// a shortage could be found although compactions now have space, and callers that wait for them would fail.
    fn next_piece_from(&self, mut inputs: SchedulerInputs) -> Option<std::result::Result<PieceStart, Step>> {
        let mut control = self.control.lock();
        if inputs.times_freed != self.health.times_freed() {
            return None;
        }
        inputs.reclaims = !self.files.obsolete.all_tried();
        if inputs.is_full {
            // A flush of last resort reserves its disk space under this lock. Otherwise memtables are counted already.
            inputs.room = inputs.room.saturating_sub(self.disk_budget.for_flush());
        }
        let piece = control.next_piece(&inputs, &|keyspace| self.sample(keyspace));
        self.disk_budget.reserve_for_compactions(control.writing());
        self.refresh_pace(&control);
        let needs_wake_up = std::mem::take(&mut control.needs_wake_up);
        let PolicyCalls { times, nanos, longest_nanos } = std::mem::take(&mut control.policy_calls);
        if times > 0 {
            self.metrics.count_policy_calls(times, nanos, longest_nanos);
        }
        let failed = |entry: &mut KeyspaceControl| {
            let policy = entry.failed_policy.take()?;
            Some(Event::PolicyFailed { keyspace: entry.state.name.to_string(), policy })
        };
        let failed: Vec<Event> = control.keyspaces.iter_mut().filter_map(failed).collect();
        // Threads that wait until nothing is left to do also wait for policy calls without a plan.
        let is_awaited = control.idle_waiters > 0 && times > 0 || std::mem::take(&mut control.manual_ended);
        drop(control);
        failed.into_iter().for_each(|event| self.tell(event));
        if is_awaited {
            self.background.progressed();
        }
        if needs_wake_up {
            // Lanes that can continue the work may be asleep.
            self.background.wake();
        }
        Some(piece.map_err(|timer| match timer {
            _ if needs_wake_up => Step::More,
            Some(when) => Step::Until(when),
            None => Step::Idle,
        }))
    }

    /// Ends the interval in which the number of compaction slots was measured, if it is over and the number is not
    /// fixed. Reports and logs a change.
    pub(crate) fn tune_slots(&self, now: u64) -> Option<SlotChange> {
        if !self.slots.is_due(now) {
            return None;
        }
        let mut control = self.control.lock();
        let is_frozen = control.keyspaces.iter().any(KeyspaceControl::is_frozen);
        let change = self.slots.interval(now, is_frozen)?;
        let SlotChange { before, slots, reason } = change.clone();
        control.decisions.note(now, "", format!("compaction slots {before} -> {slots}"), reason.clone());
        drop(control);
        self.tell(Event::SlotsChanged { before, slots, reason });
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::compaction::control::ManualCompaction;
    use drumlin_env::MemEnv;
    use drumlin_types::KeyRange;

    #[test]
    fn a_manual_compaction_with_nothing_to_do_wakes_its_caller() {
        let db = Db::builder("/s").env(MemEnv::new(1).env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = &keys.store;
        let entry = ManualCompaction::new(0, KeyRange::all());
        store.control.lock().keyspace(&keys.state).expect("it is there").manual.push(entry);
        let before = store.background.progress();
        assert!(store.next_piece().is_err(), "there is nothing to compact");
        assert!(store.background.progress() > before);
        let ended = store.control.lock().keyspace(&keys.state).expect("it is there").take_manual(0);
        ended.expect("it has ended").expect("nothing failed");
    }

    #[test]
    fn disk_space_read_before_some_was_freed_is_not_used() {
        let db = Db::builder("/s").env(MemEnv::new(2).env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let store = &keys.store;
        let (unused, used) = (store.scheduler_inputs(), store.scheduler_inputs());
        assert!(store.next_piece_from(used).is_some());
        db.set_option("disk_budget", "0").expect("an option");
        assert!(store.next_piece_from(unused).is_none(), "it does not see the new budget");
        assert!(store.next_piece_from(store.scheduler_inputs()).is_some());
    }

    #[test]
    fn policies_are_told_the_speed_that_the_background_rate_allows() {
        let builder = Db::builder("/s").env(MemEnv::new(3).env()).set("compaction_slots", "2");
        let db = builder.and_then(crate::Builder::open).expect("open");
        let store = &db.keyspace("k").expect("keyspace").store;
        let told = |rate: &str| {
            db.set_option("background_rate", rate).expect("an option");
            store.scheduler_inputs().costs.compaction_bytes_per_s
        };
        let share = f64::from(4 << 20);
        assert_eq!(["0", "8MiB", "1GiB"].map(told), [0.0, share, 0.0], "nothing is measured");
        store.costs.merged(8 << 20, 80 << 20, 0);
        let measured = store.costs.view().compaction_bytes_per_s;
        assert!((measured / 1e8 - 1.0).abs() < 0.01, "{measured}");
        assert_eq!(["0", "8MiB", "1GiB"].map(told), [measured, share, measured]);
    }
}
