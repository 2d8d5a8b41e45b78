//! Event loop of a simulated load.
//!
//! After each event, all actions that are possible are taken: outputs are installed, the policy is called, its plans
//! are admitted, moves are made, and free slots get pieces. Then time advances to the next event: a job of the device
//! ends, the memtable is full, a held piece becomes late, or a second is over.

use super::device::{Class, Device};
use super::report::Report;
use super::setup::{Setup, Writer};
use super::space::merged_bytes;
use crate::world::{even_cuts, key, merged, put, take_out};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_policy::SplitMix;
use drumlin_policy::pace::{WriteRate, write_rate};
use drumlin_policy::schedule::finish::Install;
use drumlin_policy::schedule::{
    Concurrency, Flight, FoldCosts, Numbers, Piece, PieceState, RunFit, Scene, Weights, admit, choose_run,
    project,
};
use drumlin_policy::share::split;
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::legal::check;
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, FileSpan, FileView, LevelDesign, LimitView, LoadView, Outcome,
    Pace, PieceId, PlanResult, PolicyInput, RunView, TreeView, UNKNOWN_FALSE_POSITIVE_RATE,
};
use drumlin_types::{KeyRange, LEVELS, Seq, TableId};

const SECOND: u64 = 1_000_000_000;
const SAMPLE: u64 = SECOND / 10;
/// Exclusive upper bound on key numbers, and the number of keys at which depth is counted.
const KEYS: u32 = 1 << 24;
const PROBES: u32 = 32;
/// Bytes of an entry.
const ENTRY: u64 = 1024;
/// Number of events after which a load counts as stuck.
const MOST_EVENTS: u64 = 50_000_000;

/// Simulates the load of `setup` under `policy`.
pub fn load(policy: &mut dyn CompactionPolicy, setup: &Setup) -> Result<Report, String> {
    let mut world = World::new(*setup);
    world.settle(policy)?;
    for _ in 0..MOST_EVENTS {
        if world.report.ingested >= setup.total {
            world.report.nanos = world.now;
            return Ok(world.report);
        }
        world.pass(policy)?;
        world.settle(policy)?;
    }
    Err(String::from("the simulated load did not finish"))
}

struct World {
    setup: Setup,
    tree: TreeView,
    flight: Flight,
    numbers: Numbers,
    device: Device,
    /// Running pieces by their device job.
    running: BTreeMap<u64, PieceId>,
    flush: Option<u64>,
    /// Bytes in the active memtable, times the nanoseconds of a second.
    filled: u128,
    /// Whether a full memtable waits for the flush before it.
    is_full: bool,
    write_rate: u64,
    pace: Option<Pace>,
    design: Vec<LevelDesign>,
    dice: SplitMix,
    now: u64,
    seq: Seq,
    tables: u64,
    /// Whether anything happened since the last policy call, and whether a flush did.
    due: bool,
    is_urgent: bool,
    next_second: u64,
    report: Report,
    /// The tree with the plans under way, and the projected tree, cached until one of them changes.
    view: Option<Rc<TreeView>>,
    projected: Option<Rc<TreeView>>,
}

impl World {
    fn new(setup: Setup) -> World {
        let mut device = Device::new(setup.bandwidth);
        device.flush_first = setup.flush_first;
        World {
            tree: TreeView::empty(LEVELS),
            flight: Flight::default(),
            numbers: Numbers { next_run: 1, next_ticket: 1 },
            device,
            running: BTreeMap::new(),
            flush: None,
            filled: 0,
            is_full: false,
            write_rate: setup.write_rate,
            pace: None,
            design: Vec::new(),
            dice: SplitMix::new(setup.seed),
            now: 0,
            seq: 0,
            tables: 0,
            due: true,
            is_urgent: true,
            next_second: SECOND,
            report: Report::default(),
            view: None,
            projected: None,
            setup,
        }
    }

    // --- Time

    /// Advances to the next event and processes it.
    fn pass(&mut self, policy: &mut dyn CompactionPolicy) -> Result<(), String> {
        let job = self.device.next_end();
        let full = self.memtable_full();
        let late = self.scene(&self.tree, |flight, scene| flight.next_landing(scene)).map(|t| t * 1000);
        let late = late.filter(|at| *at > self.now);
        let times = [job.map(|(at, _)| at), full, late, Some(self.next_second)];
        let at = times.into_iter().flatten().min().unwrap_or(self.next_second).max(self.now);
        self.count(at);
        self.device.advance(at);
        self.now = at;
        if full.is_some_and(|full| full <= at) {
            self.seal();
        }
        if let Some((end, job)) = job.filter(|(end, _)| *end <= at) {
            debug_assert!(end <= at);
            self.device.remove(job);
            self.ended(job, policy);
        }
        if at >= self.next_second {
            self.next_second += SECOND;
            self.due = true;
            self.probe();
        }
        Ok(())
    }

    fn memtable_full(&self) -> Option<u64> {
        if self.is_full || self.write_rate == 0 {
            return None;
        }
        let whole = u128::from(self.setup.memtable) * u128::from(SECOND);
        let left = whole.saturating_sub(self.filled).div_ceil(u128::from(self.write_rate));
        Some(self.now + left as u64)
    }

    /// Adds the time up to `until` to the report.
    fn count(&mut self, until: u64) {
        let passed = until - self.now;
        let busy = self.running.len();
        if let Some(time) = self.report.busy.get_mut(busy) {
            *time += passed;
        }
        let mut levels = [0u16; LEVELS];
        for id in self.running.values() {
            let source = self.flight.piece(*id).map_or(0, |piece| usize::from(piece.source()));
            levels[source] += 1;
        }
        for (sum, count) in self.report.by_level.iter_mut().zip(levels) {
            *sum += passed * u64::from(count);
        }
        while (self.report.series.len() as u64) * SAMPLE < until {
            self.report.series.push(levels);
        }
        if !self.is_full {
            self.filled += u128::from(passed) * u128::from(self.write_rate);
        }
        if self.is_full || self.write_rate == 0 {
            self.report.stopped += passed;
        }
    }

    /// Seals the full memtable.
    fn seal(&mut self) {
        self.report.ingested += self.setup.memtable;
        self.filled = 0;
        match self.flush {
            None => self.start_flush(),
            Some(_) => self.is_full = true,
        }
    }

    fn start_flush(&mut self) {
        self.flush = Some(self.device.add(Class::Flush, self.setup.memtable, self.setup.flush_rate));
    }

    fn ended(&mut self, job: u64, policy: &mut dyn CompactionPolicy) {
        if self.flush == Some(job) {
            self.flush = None;
            self.install_flush(policy);
            if core::mem::take(&mut self.is_full) {
                self.start_flush();
            }
        } else if let Some(id) = self.running.remove(&job) {
            let now = self.now / 1000;
            self.flight.finished(id, now);
            self.report.pieces.0 += 1;
            let is_held = self.flight.piece(id).is_some_and(|piece| !self.flight.is_clear(piece));
            self.report.pieces.1 += u64::from(is_held);
        }
    }

    fn probe(&mut self) {
        let mut covered = 0u64;
        for probe in 0..PROBES {
            let key = key(KEYS / PROBES * probe + KEYS / PROBES / 2);
            let runs = self.tree.levels.iter().flat_map(|level| &level.runs);
            covered += runs.filter(|run| run.file_for(&key).is_some()).count() as u64;
        }
        self.report.depth.0 += covered * 1000 / u64::from(PROBES);
        self.report.depth.1 += 1;
    }

    // --- Decisions

    fn load(&self) -> LoadView {
        let seconds = self.now as f64 / 1e9;
        let written = if seconds > 0.0 { self.report.ingested as f64 / seconds } else { 0.0 };
        let (gets, seeks) = self.setup.reads;
        let writes = written / ENTRY as f64;
        LoadView {
            gets,
            seeks,
            writes,
            write_bytes: written,
            entry_bytes: ENTRY as f64,
            ..LoadView::default()
        }
    }

    fn cost_view(&self) -> CostView {
        CostView {
            compaction_bytes_per_s: self.setup.slot_rate as f64,
            flush_bytes_per_s: self.setup.flush_rate as f64,
            probe_ns: 530.0,
            block_ns: 10_000.0,
            cursor_ns: 3_000.0,
            ..CostView::default()
        }
    }

    fn scene<T>(&self, tree: &TreeView, run: impl FnOnce(&Flight, &Scene<'_>) -> T) -> T {
        let scene = Scene {
            tree,
            design: &self.design,
            settings: &self.setup.settings,
            costs: FoldCosts::default(),
            room: u64::MAX,
            now: self.now / 1000,
        };
        run(&self.flight, &scene)
    }

    fn scene_mut<T>(&mut self, run: impl FnOnce(&mut Flight, &Scene<'_>, &mut Numbers) -> T) -> T {
        let scene = Scene {
            tree: &self.tree,
            design: &self.design,
            settings: &self.setup.settings,
            costs: FoldCosts::measured(
                &self.load(),
                &self.load(),
                &self.cost_view(),
                UNKNOWN_FALSE_POSITIVE_RATE,
            ),
            room: u64::MAX,
            now: self.now / 1000,
        };
        run(&mut self.flight, &scene, &mut self.numbers)
    }

    fn limits(&self) -> LimitView {
        LimitView {
            memtable_bytes: self.setup.memtable,
            file_bytes: self.setup.file,
            slots: self.setup.settings.slots,
            enough: self.scene(&self.tree, |flight, scene| flight.enough(scene)),
            ..LimitView::default()
        }
    }

    /// Takes all actions that are possible now.
    fn settle(&mut self, policy: &mut dyn CompactionPolicy) -> Result<(), String> {
        loop {
            while let Some(install) =
                self.scene(&self.tree, |flight, scene| flight.next_install(scene.settings, scene.now, false))
            {
                self.install(install);
            }
            self.end_tickets(policy);
            if self.due && (self.is_urgent || !self.is_fed()) {
                (self.due, self.is_urgent) = (false, false);
                self.call_policy(policy);
            }
            match self.start() {
                Ok(piece) if piece.is_move => self.move_piece(&piece),
                Ok(piece) => self.run(&piece),
                Err(wants_plans) if wants_plans => self.due = true,
                Err(_) => break,
            }
        }
        if cfg!(test) {
            check(&self.tree)?;
            check(&self.projected())?;
        }
        self.write_rate = self.admitted();
        let runs = self.tree.levels[0].runs.len();
        self.report.most_level0 = self.report.most_level0.max(runs);
        Ok(())
    }

    fn is_fed(&mut self) -> bool {
        let view = self.view();
        self.flight.is_fed(&self.setup.settings, || Weights::of(&view, &self.design))
    }

    /// Returns the tree with the plans under way.
    fn view(&mut self) -> Rc<TreeView> {
        let make = || Rc::new(project::view(&self.tree, &self.flight));
        self.view.get_or_insert_with(make).clone()
    }

    /// Returns the tree after all plans under way.
    fn projected(&mut self) -> Rc<TreeView> {
        let view = self.view();
        self.projected.get_or_insert_with(|| Rc::new(view.projected())).clone()
    }

    /// Invalidates the cached views, because the tree or the plans under way have changed.
    fn changed(&mut self) {
        (self.view, self.projected) = (None, None);
    }

    /// Starts the next piece, if a slot is free or the piece needs none. Otherwise returns whether the policy should
    /// be called.
    fn start(&mut self) -> Result<Piece, bool> {
        if !self.flight.has_ready() {
            return Err(self.flight.rest().wants_plans);
        }
        let is_free = self.running.len() < self.setup.settings.slots as usize;
        let view = self.view();
        let start = self.scene_mut(|flight, scene, _| flight.start_in(scene, &view, !is_free));
        // A move, a fold or a divided piece changes the plans under way.
        let is_same = start.as_ref().map_or_else(|idle| idle.divided.is_empty(), |start| !start.changes_view);
        if !is_same {
            self.changed();
        }
        start.map(|start| start.piece).map_err(|idle| idle.wants_plans)
    }

    fn call_policy(&mut self, policy: &mut dyn CompactionPolicy) {
        let limits = self.limits();
        let view = self.view();
        self.design = policy.design(&self.projected(), &limits);
        let masked = (self.setup.settings.mode != Concurrency::Pipelined)
            .then(|| admit::without_pipeline(TreeView::clone(&view), &self.flight));
        let tickets = self.flight.ticket_views();
        let input = PolicyInput {
            tree: masked.as_ref().unwrap_or(&view),
            tickets: &tickets,
            load: &self.load(),
            costs: &self.cost_view(),
            limits: &limits,
            wanted: &[],
            wanted_seeks: &[],
            now: self.now / 1000,
            seed: self.dice.next_u64(),
            frozen: false,
        };
        let Decision { plans, pace, .. } = policy.decide(&input);
        self.pace = pace.or(self.pace.take());
        for plan in plans {
            let (view, projected) = (self.view(), self.projected());
            let admitted = self.scene_mut(|flight, scene, numbers| {
                flight.admit_in(scene, (&view, &projected), &plan, numbers)
            });
            match admitted {
                Ok(_) => {
                    self.report.plans.0 += 1;
                    self.due = true;
                    self.changed();
                }
                Err(refusal) => {
                    self.report.plans.1 += 1;
                    policy.observe(&refusal.outcome(&plan));
                }
            }
        }
    }

    fn end_tickets(&mut self, policy: &mut dyn CompactionPolicy) {
        for ticket in self.flight.take_finished() {
            self.due = true;
            self.changed();
            policy.observe(&Outcome::Plan {
                ticket: ticket.ticket,
                reason: ticket.plan.reason,
                result: PlanResult::Done,
                why: String::new(),
                bytes_in: ticket.bytes_in,
                bytes_out: ticket.bytes_out,
                dropped: 0,
            });
        }
    }

    /// Returns the bytes per second that may be written now.
    fn admitted(&self) -> u64 {
        let full = self.setup.write_rate;
        match (self.setup.writer, &self.pace) {
            (Writer::Linear { slow, stop }, _) => {
                let runs = self.tree.levels[0].runs.len() as u64;
                let (slow, stop) = (u64::from(slow), u64::from(stop));
                full * stop.saturating_sub(runs.max(slow)) / stop.saturating_sub(slow).max(1)
            }
            (Writer::Paced, None) => full,
            (Writer::Paced, Some(pace)) => {
                let runs = match pace.scope {
                    drumlin_types::contract::PaceScope::Level0 => self.tree.levels[0].runs.len(),
                    drumlin_types::contract::PaceScope::All => self.tree.runs(),
                };
                let speed = self.setup.slot_rate as f64 * f64::from(self.setup.settings.slots);
                match write_rate(pace, runs as f64, speed) {
                    WriteRate::Open => full,
                    WriteRate::Limited(rate) => full.min(rate as u64).max(1),
                    WriteRate::Shut => 0,
                }
            }
        }
    }

    fn run(&mut self, piece: &Piece) {
        let is_slow = self.setup.slow_one_in > 0 && self.dice.one_in(self.setup.slow_one_in as usize);
        let cap = 2 * self.setup.slot_rate / if is_slow { 20 } else { 1 };
        let read: u64 = self.parts(piece).iter().map(|file| file.bytes).sum();
        let job = self.device.add(Class::Merge, read + self.written(piece), cap);
        self.report.folded += piece.folded;
        self.running.insert(job, piece.id);
    }

    // --- Trees

    fn table(&mut self) -> TableId {
        self.tables += 1;
        TableId(self.tables)
    }

    fn install_flush(&mut self, policy: &mut dyn CompactionPolicy) {
        let bytes = self.setup.memtable;
        let entries = (bytes / ENTRY).max(1);
        let tag = policy.flush_tag(bytes, &self.tree);
        let bounds = KeyRange::new(key(0), Some(key(KEYS)));
        let table = self.table();
        let mut file = plain_file(table, bounds, self.seq + 1, self.seq + entries);
        self.seq += entries;
        (file.bytes, file.entries, file.keys) = (bytes, entries, entries);
        let id = self.numbers.run();
        self.changed();
        self.tree.levels[0].runs.push(RunView { id, tag, files: Vec::from([file]) });
        self.report.flushed += bytes;
        (self.due, self.is_urgent) = (true, true);
        policy.observe(&Outcome::Flushed { bytes, entries });
    }

    /// Returns the inputs of a piece, file by file.
    fn parts(&self, piece: &Piece) -> Vec<FileView> {
        let mut parts = Vec::new();
        for span in &piece.inputs {
            let files = self.tree.levels[usize::from(span.level)].files();
            parts.extend(
                files.filter(|f| f.table == span.table).filter_map(|f| project::part(f, &span.range)),
            );
        }
        parts
    }

    /// Returns the bytes that a piece writes.
    fn written(&self, piece: &Piece) -> u64 {
        let parts: Vec<u64> = self.parts(piece).iter().map(|f| f.bytes).collect();
        merged_bytes(&parts, self.universe(&piece.range))
    }

    /// Returns the bytes of all keys in `range`.
    fn universe(&self, range: &KeyRange) -> Option<u64> {
        let all = KeyRange::new(key(0), Some(key(KEYS)));
        let share = drumlin_policy::share::share(&all, range);
        self.setup.universe.map(|bytes| (bytes as f64 * share) as u64)
    }

    fn install(&mut self, install: Install) {
        self.changed();
        match install {
            Install::Output(id) => self.install_output(id, None),
            Install::Land(id, level) => {
                self.report.pieces.2 += 1;
                self.install_output(id, Some(level));
            }
            Install::Sink(id) => {
                if let Some(piece) = self.flight.piece(id).cloned() {
                    self.move_piece(&piece);
                }
            }
        }
        self.due = true;
    }

    /// Moves the inputs of a piece to its output level unchanged.
    fn move_piece(&mut self, piece: &Piece) {
        let files: Vec<FileView> =
            piece.inputs.iter().flat_map(|input| take_out(&mut self.tree, input)).collect();
        let bytes: u64 = files.iter().map(|f| f.bytes).sum();
        if piece.state != PieceState::Landed {
            self.report.moved += bytes;
        }
        let tables = self.add(piece, piece.out, files);
        self.flight.installed(piece.id, &tables, 0, 0);
        self.due = true;
        self.changed();
    }

    fn install_output(&mut self, id: PieceId, landing: Option<u8>) {
        let Some(piece) = self.flight.piece(id).cloned() else { return };
        let written = self.written(&piece);
        let parts: Vec<FileView> =
            piece.inputs.iter().flat_map(|input| take_out(&mut self.tree, input)).collect();
        let files = self.outputs(parts, written);
        self.report.merged += written;
        match landing {
            None => {
                let tables = self.add(&piece, piece.out, files);
                self.flight.installed(id, &tables, written, 0);
            }
            Some(level) => {
                let span = |f: &FileView| FileSpan {
                    level,
                    table: f.table,
                    range: f.bounds.clone(),
                    min_seq: f.min_seq,
                    max_seq: f.max_seq,
                };
                let spans = files.iter().map(span).collect();
                self.add(&piece, level, files);
                self.flight.landed(id, spans, written, 0);
            }
        }
    }

    /// Returns the output files, `written` bytes in total, of a compaction of `parts`.
    fn outputs(&mut self, parts: Vec<FileView>, written: u64) -> Vec<FileView> {
        let mut rest = merged(&parts, TableId(0));
        (rest.bytes, rest.entries, rest.keys) = (written, written / ENTRY, written / ENTRY);
        let range = rest.bounds.clone();
        let span =
            FileSpan { level: 0, table: rest.table, range, min_seq: rest.min_seq, max_seq: rest.max_seq };
        let count = written.div_ceil(self.setup.file.max(1)).clamp(1, 4096) as u32;
        let mut outputs: Vec<FileView> = Vec::new();
        for range in even_cuts(&[span], count) {
            let (mut rests, part) = split(&rest, &range);
            let Some(mut part) = part else { continue };
            part.table = self.table();
            outputs.push(part);
            match rests.pop() {
                Some(next) => rest = next,
                None => break,
            }
        }
        outputs
    }

    /// Adds files to `level`, in the run that the scheduler chooses.
    fn add(&mut self, piece: &Piece, level: u8, files: Vec<FileView>) -> Vec<TableId> {
        let tables = files.iter().map(|f| f.table).collect();
        let runs: Vec<RunFit> = self.tree.levels[usize::from(level)]
            .runs
            .iter()
            .map(|run| RunFit {
                run: run.id,
                max_seq: run.max_seq(),
                is_plain: run.tag.0.is_empty(),
                fits: files.iter().all(|f| run.has_gap_for(&f.bounds)),
            })
            .collect();
        let Some(ticket) = self.flight.ticket_mut(piece.id.ticket) else { return tables };
        let (run, tag) = choose_run(ticket, level, &runs, &mut self.numbers);
        for file in files {
            put(&mut self.tree, level, run, &tag, file);
        }
        tables
    }
}
