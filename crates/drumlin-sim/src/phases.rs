//! Changing operation mixes in virtual time: the cost of a policy for readers and writers.
//!
//! Costs are those of the ArceKV paper: a block read takes 12 us, a block write 15 us. A lookup reads one block, plus
//! one block in one of a hundred runs; a seek reads one block of every run. Clients run in closed loops. Compactions
//! take time in proportion to their bytes on a number of slots, and slow operations down meanwhile. Writers are
//! delayed by the policy's write rate limit. Results depend only on the setup, without clocks or randomness.
//!
//! First the store is filled in ascending key order, in zero time; then the phases follow.

use crate::foresight::{self, Due, Foreseen, Foresight};
use crate::neighbours;
use crate::space::Space;
use crate::waits::Waits;
use crate::world::{World, key};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use drumlin_policy::budget::{SearchBudget, SearchClass};
use drumlin_policy::pace::{WriteRate, write_rate};
use drumlin_policy::schedule::PieceBytes;
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, LimitView, LoadView, Outcome, Pace, PaceScope, PieceId, SearchTask,
};
use drumlin_types::{Key, KeyRange};

/// Operation mixes, in percent of seeks, writes and lookups.
const MIXES: [(char, [f64; 3]); 10] = [
    ('A', [98.0, 1.0, 1.0]),
    ('B', [1.0, 98.0, 1.0]),
    ('C', [1.0, 1.0, 98.0]),
    ('D', [49.0, 2.0, 49.0]),
    ('E', [2.0, 49.0, 49.0]),
    ('F', [49.0, 49.0, 2.0]),
    ('G', [40.0, 40.0, 20.0]),
    ('H', [40.0, 20.0, 40.0]),
    ('I', [20.0, 40.0, 40.0]),
    ('J', [100.0 / 3.0, 100.0 / 3.0, 100.0 / 3.0]),
];

/// Phase sequences of the paper, with the fraction of the setup's operations that each phase has.
pub const PLANS: [(&str, &str, f64); 3] = [("I", "ABDJCE", 1.0), ("II", "JEBFDC", 1.0), ("III", "GHI", 0.5)];

const BLOCK_READ: f64 = 12_000.0;
const BLOCK_WRITE: f64 = 15_000.0;
const BLOCK: f64 = 4096.0;
const FALSE_POSITIVES: f64 = 0.01;
const ENTRY: f64 = 1024.0;
/// Number of flushes whose bytes make a file, and a piece: 64 MiB for the 2 MiB of the paper.
const FILE_FLUSHES: u64 = 32;
/// Exclusive upper bound on key numbers.
const KEYS: u32 = 1 << 30;
/// Number of keys at which runs are counted.
const SAMPLES: u32 = 64;
/// Duration of a search step, in nanoseconds.
const SEARCH_STEP: f64 = 100e3;
/// Time between decisions when nothing else happens, in nanoseconds.
const TICK: f64 = 1e9;

/// Sizes and limits of a simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Bytes of a flush.
    pub flush_bytes: u64,
    /// Bytes in the store before the first phase.
    pub preload: u64,
    /// Operations of a whole phase.
    pub operations: f64,
    /// Number of client threads.
    pub clients: u32,
    /// Number of compaction slots.
    pub slots: u32,
    /// Fraction by which a running compaction slows operations down.
    pub interference: f64,
    /// Whether compactions are installed piece by piece, as in the engine.
    pub pieces: bool,
    /// Whether table space is counted, which visits every file after each change.
    pub audit: bool,
}

impl Default for Setup {
    /// A sixteenth of the paper's setup, with the same number of flushes in the store.
    fn default() -> Setup {
        let operations = 2_560_000.0;
        Setup {
            flush_bytes: 128 << 10,
            preload: 2_560_000 * ENTRY as u64,
            operations,
            clients: 1,
            slots: 1,
            interference: 0.1,
            pieces: true,
            audit: false,
        }
    }
}

impl Setup {
    fn file_bytes(&self) -> u64 {
        self.flush_bytes * FILE_FLUSHES
    }
}

/// Results of one phase.
#[derive(Clone, PartialEq, Debug)]
pub struct PhaseReport {
    /// Letter of the phase.
    pub name: char,
    /// Number of operations.
    pub operations: f64,
    /// Mean time of an operation in nanoseconds, as a client sees it.
    pub each: f64,
    /// Virtual time of the phase, in nanoseconds.
    pub time: f64,
    /// Bytes flushed.
    pub flushed: u64,
    /// Bytes compacted.
    pub merged: u64,
    /// Input bytes of compactions that the policy calls elective, counted at their start.
    pub elective: u64,
    /// Bytes of the tree at the end.
    pub bytes: u64,
    /// Peak disk space of tables per byte of the tree, including half-replaced tables and tables being written. It is
    /// 1 unless the setup asks for an audit.
    pub space: f64,
    /// Number of covered runs: mean over the operations, and maximum.
    pub runs: (f64, f64),
    /// Nanoseconds in which writes were stopped.
    pub stopped: f64,
    /// 99.9th percentile of the write wait, in nanoseconds.
    pub wait: f64,
    /// Prediction errors of the compactions that can be compared.
    pub foreseen: Foreseen,
    /// Cost of an operation that the policy's last search predicted, in nanoseconds, if it reported one.
    pub predicted: Option<f64>,
    /// Number of search steps.
    pub steps: u64,
}

/// One phase of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stage {
    /// Letter of the phase.
    pub name: char,
    /// Shares of seeks, writes and lookups; their sum is 1.
    pub mix: [f64; 3],
    /// Number of operations.
    pub operations: f64,
}

/// Returns the phases of `gradient`, whose write shares rise from one to nine tenths and fall again.
fn gradient(operations: f64) -> Vec<Stage> {
    let tenths = (1..=9).chain((1..=8).rev());
    let stage = |(at, tenth): (usize, u32)| {
        let (writes, name) = (f64::from(tenth) / 10.0, char::from(b'a' + at as u8));
        Stage { name, mix: [(1.0 - writes) / 2.0, writes, (1.0 - writes) / 2.0], operations }
    };
    tenths.enumerate().map(stage).collect()
}

/// Runs `policy` through the phases of `plan`, which is one letter per phase or the word `gradient`. Each phase has
/// the fraction `share` of the setup's operations.
pub fn phases(
    policy: &mut dyn CompactionPolicy,
    setup: Setup,
    plan: &str,
    share: f64,
) -> Result<Vec<PhaseReport>, String> {
    let operations = setup.operations * share;
    if plan == "gradient" {
        return stages(policy, setup, &gradient(operations / GRADIENT_PARTS));
    }
    let stage = |name| {
        let (_, mix) = MIXES.iter().find(|(n, _)| *n == name).ok_or("unknown operation mix")?;
        Ok(Stage { name, mix: mix.map(|percent| percent / 100.0), operations })
    };
    stages(policy, setup, &plan.chars().map(stage).collect::<Result<Vec<Stage>, String>>()?)
}

/// Runs `policy` through the phases of `plan`.
pub fn stages(
    policy: &mut dyn CompactionPolicy,
    setup: Setup,
    plan: &[Stage],
) -> Result<Vec<PhaseReport>, String> {
    let mut course = Course::new(setup);
    course.fill(policy)?;
    plan.iter().map(|stage| course.phase(policy, *stage)).collect()
}

/// Divisor of a phase's operations that gives the operations of one step of `gradient`.
const GRADIENT_PARTS: f64 = 81.92;

struct Course {
    setup: Setup,
    world: World,
    mix: [f64; 3],
    now: f64,
    next_tick: f64,
    until_flush: f64,
    counted: [f64; 3],
    pace: Option<Pace>,
    running: Vec<(f64, PieceId)>,
    runs: f64,
    /// Keys at which runs are counted, and a range that contains them all.
    samples: Vec<Key>,
    sampled: KeyRange,
    steps: u64,
    decisions: u64,
    search: Option<Box<dyn SearchTask>>,
    budget: SearchBudget,
    /// Whether the best result of a search that waits for time was handed to the policy.
    told: bool,
    waits: Waits,
    /// Time since when writes are stopped.
    shut: Option<f64>,
    foresight: Foresight,
    flushes: u64,
    elective: u64,
    space: Option<Space>,
}

impl Course {
    fn new(setup: Setup) -> Course {
        let limits = LimitView {
            memtable_bytes: setup.file_bytes(),
            file_bytes: setup.file_bytes(),
            slots: setup.slots,
            ..LimitView::default()
        };
        let mut world = World::new(limits);
        world.without_pipeline = true;
        world.wanted = (0..256).map(|n| key(n * (KEYS / 256) + KEYS / 512)).collect();
        Course {
            setup,
            world,
            mix: [0.0; 3],
            now: 0.0,
            next_tick: 0.0,
            until_flush: f64::INFINITY,
            counted: [0.0; 3],
            pace: None,
            running: Vec::new(),
            runs: 0.0,
            samples: (0..SAMPLES).map(|n| key(n * (KEYS / SAMPLES) + KEYS / SAMPLES / 2)).collect(),
            sampled: KeyRange::new(key(KEYS / SAMPLES / 2), Some(key(KEYS))),
            steps: 0,
            decisions: 0,
            search: None,
            budget: SearchBudget::new(0.0),
            told: false,
            waits: Waits::default(),
            shut: None,
            foresight: Foresight::default(),
            flushes: 0,
            elective: 0,
            space: setup.audit.then(Space::default),
        }
    }

    /// Fills the store in ascending key order, with compactions that take no time.
    fn fill(&mut self, policy: &mut dyn CompactionPolicy) -> Result<(), String> {
        let parts = self.setup.preload.div_ceil(self.setup.file_bytes()).max(1) as u32;
        let width = KEYS / parts;
        for part in 0..parts {
            let to = if part + 1 == parts { KEYS } else { (part + 1) * width };
            self.world.flush(policy, part * width, to);
            self.flushes += 1;
            self.world.settle(policy, 10_000)?;
        }
        self.world.limits.memtable_bytes = self.setup.flush_bytes;
        self.world.totals.merged = 0;
        self.count_runs();
        Ok(())
    }

    fn writes_per_flush(&self) -> f64 {
        self.setup.flush_bytes as f64 / ENTRY
    }

    /// Counts the covered runs: the mean number of files that cover a key, over the sample keys.
    fn count_runs(&mut self) {
        let runs = self.world.tree().levels.iter().flat_map(|level| &level.runs);
        let covering = |run: &drumlin_types::contract::RunView| match &run.files[..] {
            // Most runs are single files that cover all sample keys.
            [file] if file.bounds.covers(&self.sampled) => SAMPLES as usize,
            _ => self.samples.iter().filter(|key| run.file_for(key).is_some()).count(),
        };
        self.runs = runs.map(covering).sum::<usize>() as f64 / f64::from(SAMPLES);
    }

    /// Returns the present costs of a lookup, a seek and a write, without waiting.
    fn costs(&self) -> [f64; 3] {
        let flush_blocks = self.setup.flush_bytes as f64 / BLOCK;
        let busy = if self.running.is_empty() { 1.0 } else { 1.0 + self.setup.interference };
        [
            BLOCK_READ * (1.0 + FALSE_POSITIVES * self.runs) * busy,
            BLOCK_READ * self.runs * busy,
            flush_blocks * BLOCK_WRITE / self.writes_per_flush() * busy,
        ]
    }

    /// Returns the input bytes per nanosecond of a slot.
    fn speed(&self) -> f64 {
        BLOCK / (BLOCK_READ + BLOCK_WRITE)
    }

    /// Returns the mean cost of an operation without and with the delay of writes; `None` when writes are stopped.
    fn operation(&self) -> Option<(f64, f64)> {
        let [get, seek, write] = self.costs();
        let [seeks, writes, gets] = self.mix;
        let free = gets * get + seeks * seek + writes * write;
        let Some(pace) = &self.pace else { return Some((free, free)) };
        let fill = 1.0 - self.until_flush * writes / self.writes_per_flush();
        let tree = self.world.tree();
        let runs = match (pace.covered, pace.scope) {
            (Some(_), _) => self.runs + fill,
            (None, PaceScope::All) => tree.runs() as f64,
            (None, PaceScope::Level0) => tree.levels[0].runs.len() as f64,
        };
        match write_rate(pace, runs, self.speed() * 1e9 * f64::from(self.setup.slots)) {
            WriteRate::Open => Some((free, free)),
            WriteRate::Limited(rate) => {
                let spacing = f64::from(self.setup.clients) * writes * ENTRY / (rate / 1e9);
                Some((free, free.max(spacing)))
            }
            WriteRate::Shut => None,
        }
    }

    fn phase(
        &mut self,
        policy: &mut dyn CompactionPolicy,
        Stage { name, mix, operations }: Stage,
    ) -> Result<PhaseReport, String> {
        // The written part of the current memtable carries over.
        let written = if self.until_flush.is_finite() {
            self.writes_per_flush() - self.until_flush * self.mix[1]
        } else {
            0.0
        };
        self.mix = mix;
        self.waits = Waits::default();
        self.until_flush = (self.writes_per_flush() - written).max(1.0) / self.mix[1];
        let mut report = PhaseReport {
            name,
            operations,
            each: 0.0,
            time: 0.0,
            flushed: self.world.totals.flushed,
            merged: self.world.totals.merged,
            elective: self.elective,
            bytes: 0,
            space: 1.0,
            runs: (0.0, 0.0),
            stopped: 0.0,
            wait: 0.0,
            foreseen: Foreseen::default(),
            predicted: None,
            steps: self.steps,
        };
        let began = self.now;
        let mut left = operations;
        self.decide(policy)?;
        while left > 0.0 {
            left -= self.event(policy, left, &mut report)?;
        }
        report.each = (self.now - began) / operations * f64::from(self.setup.clients);
        report.time = self.now - began;
        report.flushed = self.world.totals.flushed - report.flushed;
        report.merged = self.world.totals.merged - report.merged;
        report.elective = self.elective - report.elective;
        report.bytes = self.world.tree().bytes();
        report.space = self.space.as_mut().map_or(1.0, Space::take_most);
        report.runs.0 /= operations;
        report.steps = self.steps - report.steps;
        report.wait = self.waits.all_but(1000.0);
        report.foreseen = self.foresight.take();
        report.predicted = foresight::predicted(&policy.explain());
        Ok(report)
    }

    /// Advances to the next event. Returns the number of operations that passed.
    fn event(
        &mut self,
        policy: &mut dyn CompactionPolicy,
        left: f64,
        report: &mut PhaseReport,
    ) -> Result<f64, String> {
        let next_end = self.running.iter().map(|(end, _)| *end).fold(f64::INFINITY, f64::min);
        let next = next_end.min(self.next_tick);
        let Some((free, each)) = self.operation() else {
            self.shut.get_or_insert(self.now);
            report.stopped += (next - self.now).max(0.0);
            self.now = next.max(self.now);
            self.arrive(policy, next_end)?;
            return Ok(0.0);
        };
        if let Some(since) = self.shut.take() {
            self.waits.add(self.now - since, f64::from(self.setup.clients));
        }
        let spacing = each / f64::from(self.setup.clients);
        let to_flush = self.until_flush.min(left);
        let timed = next - self.now <= to_flush * spacing;
        let operations = if timed { (next - self.now).max(0.0) / spacing } else { to_flush };
        self.now = if timed { next.max(self.now) } else { self.now + to_flush * spacing };
        self.until_flush -= operations;
        report.runs.0 += operations * self.runs;
        report.runs.1 = report.runs.1.max(self.runs);
        let [seeks, writes, gets] = self.mix;
        if writes > 0.0 {
            // The additional mean time of an operation is waiting time of its writes.
            self.waits.add((each - free) / writes, operations * writes);
        }
        for (count, share) in self.counted.iter_mut().zip([gets, seeks, writes]) {
            *count += operations * share;
        }
        if timed {
            self.arrive(policy, next_end)?;
        } else if self.until_flush < 1e-3 {
            self.world.flush(policy, 0, KEYS);
            self.flushes += 1;
            self.until_flush = self.writes_per_flush() / self.mix[1];
            self.decide(policy)?;
        }
        Ok(if timed { operations } else { operations.max(1e-9) })
    }

    /// Installs the pieces that end now, then calls the policy.
    fn arrive(&mut self, policy: &mut dyn CompactionPolicy, next_end: f64) -> Result<(), String> {
        if next_end <= self.now {
            let (done, running) = self.running.iter().partition(|(end, _)| *end <= self.now);
            self.running = running;
            let done: Vec<(f64, PieceId)> = done;
            for (_, id) in done {
                self.world.install(id, policy);
                if !self.world.is_under_way(id.ticket) {
                    let (flushes, operations) = (self.flushed(), self.writes_per_flush() / self.mix[1]);
                    self.foresight.ended(id.ticket.0, flushes, operations);
                }
            }
        }
        self.decide(policy)
    }

    /// Returns the flushes so far, including the written fraction of the next one.
    fn flushed(&self) -> f64 {
        let fill = 1.0 - self.until_flush * self.mix[1] / self.writes_per_flush();
        self.flushes as f64 + if fill.is_finite() { fill.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn decide(&mut self, policy: &mut dyn CompactionPolicy) -> Result<(), String> {
        self.next_tick = self.now + TICK;
        self.count_runs();
        self.tell();
        self.decisions += 1;
        let Decision { plans, withdraw, pace, search, .. } = self.world.decide(policy, self.decisions);
        self.pace = pace.or(self.pace.take());
        let again = !withdraw.is_empty() && plans.is_empty();
        for ticket in withdraw {
            let running: Vec<PieceId> = self.running.iter().map(|(_, id)| *id).collect();
            self.world.withdraw(ticket, &running, policy);
        }
        // Negative priorities propose to tidy runs that compactions left because they did not wait for each other.
        // Here they do wait, so these plans are skipped. A plan of the same decision may build on a plan that has to
        // wait, and then be illegal.
        let mut has_refused = false;
        for plan in plans.iter().filter(|plan| plan.priority >= 0.0) {
            let is_early = !plan.may_fold.is_empty() && self.world.in_flight() >= self.setup.slots as usize;
            if is_early || neighbours::is_busy(&self.world.view(), plan) {
                has_refused = true;
                continue;
            }
            let taken = |f: &drumlin_types::contract::FileView| {
                plan.take.iter().chain(&plan.may_fold).any(|take| take.table == f.table)
            };
            let bytes: u64 =
                self.world.tree().files().filter(|(_, _, f)| taken(f)).map(|(_, _, f)| f.bytes).sum();
            self.elective += if plan.reason.starts_with("elective") { bytes } else { 0 };
            let pieces = PieceBytes::of_files(self.setup.file_bytes()).count(bytes, self.setup.slots);
            let pieces = if self.setup.pieces { pieces } else { 1 };
            let alone = self.world.in_flight() == 0;
            let ticket = match self.world.admit(plan, pieces.clamp(1, 1024) as u32) {
                Ok(ticket) => ticket,
                Err(_) if has_refused => continue,
                Err(illegal) => return Err(illegal.to_string()),
            };
            let flushes = self.flushed();
            self.foresight.began(ticket.0, Due::parse(&plan.reason), flushes, alone);
        }
        self.start(policy);
        if let Some(space) = &mut self.space {
            let running = self.running.iter().map(|(_, id)| self.world.rewrites(*id)).sum();
            space.count(self.world.tree(), running);
        }
        if search.is_some() {
            (self.search, self.told) = (search, false);
        }
        if self.search(policy) || again { self.decide(policy) } else { Ok(()) }
    }

    /// Continues the search within its CPU budget. Returns whether the policy received a result.
    fn search(&mut self, policy: &mut dyn CompactionPolicy) -> bool {
        self.budget.pass(self.now);
        let Some(search) = &mut self.search else { return false };
        let kind = if search.is_urgent() { SearchClass::Urgent } else { SearchClass::Calm };
        while self.budget.affords(kind) {
            self.budget.spend(kind, false, SEARCH_STEP);
            self.steps += 1;
            if let Some(answer) = search.step() {
                self.search = None;
                policy.observe(&Outcome::SearchEnded(answer));
                return true;
            }
        }
        let best = if self.told { None } else { search.best() };
        self.told |= best.is_some();
        best.is_some_and(|best| {
            policy.observe(&Outcome::SearchEnded(best));
            true
        })
    }

    /// Starts pieces on the free slots. Trivial moves take no time.
    fn start(&mut self, policy: &mut dyn CompactionPolicy) {
        while self.running.len() < self.setup.slots as usize {
            let running = |id: PieceId| self.running.iter().any(|(_, other)| *other == id);
            let Some(id) = self.world.next_ready(running) else { return };
            match self.world.rewrites(id) {
                0 => self.world.install(id, policy),
                bytes => self.running.push((self.now + bytes as f64 / self.speed(), id)),
            }
        }
    }

    /// Updates the load and costs that the policy sees.
    fn tell(&mut self) {
        let [get, seek, write] = self.costs();
        let [seeks, writes, gets] = self.mix;
        let free = gets * get + seeks * seek + writes * write;
        let (unslowed, each) = self.operation().unwrap_or((free, free));
        let rate = f64::from(self.setup.clients) * 1e9 / each.max(1.0);
        let fill = 1.0 - self.until_flush * writes / self.writes_per_flush();
        self.world.load = LoadView {
            gets: gets * rate,
            seeks: seeks * rate,
            writes: writes * rate,
            write_bytes: writes * rate * ENTRY,
            entry_bytes: ENTRY,
            counted: self.counted.map(|count| count as u64),
            clients: f64::from(self.setup.clients),
            waited: (each - unslowed) * rate / 1e9,
            memtable_fill: fill.clamp(0.0, 1.0),
            ..LoadView::default()
        };
        self.world.costs = CostView {
            compaction_bytes_per_s: self.speed() * 1e9,
            compaction_fixed_ns: 1.0,
            // The cost of a run for lookups lies entirely in the block that one lookup in a hundred reads.
            probe_ns: 1e-3,
            block_ns: BLOCK_READ,
            cursor_ns: BLOCK_READ,
            get_ns: get,
            scan_ns: seek,
            write_ns: write,
            busy_share: if self.running.is_empty() { 0.0 } else { 1.0 },
            ..CostView::default()
        };
        self.world.now = (self.now / 1000.0) as u64 + self.decisions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_policy::by_name;

    fn small() -> Setup {
        Setup { preload: 96 << 20, operations: 40_000.0, ..Setup::default() }
    }

    fn mean(reports: &[PhaseReport]) -> f64 {
        let time: f64 = reports.iter().map(|r| r.each * r.operations).sum();
        time / reports.iter().map(|r| r.operations).sum::<f64>()
    }

    #[test]
    fn a_course_is_the_same_each_time_and_arce_is_among_the_best() {
        let run = |name: &str| phases(&mut *by_name(name).unwrap(), small(), "ABDJCE", 1.0).unwrap();
        assert_eq!(run("arce"), run("arce"));
        let arce = mean(&run("arce"));
        for name in ["1-leveling:static", "leveling:10", "tiering:10", "lazy-leveling:10", "universal"] {
            let other = mean(&run(name));
            assert!(arce < 1.1 * other, "{name} takes {other} ns per operation, arce {arce}");
        }
    }

    /// Every level is compacted in turn although flushes never stop.
    #[test]
    fn leveling_keeps_its_shape_under_writes() {
        for name in ["1-leveling:static", "leveling:4", "leveling:10"] {
            let reports = phases(&mut *by_name(name).unwrap(), small(), "BBBB", 1.0).unwrap();
            let [.., before, last] = &reports[..] else { panic!("four phases") };
            let amplification = |r: &PhaseReport| r.merged as f64 / r.flushed as f64;
            assert!(amplification(last) < 20.0, "{name}: {}", amplification(last));
            assert!(last.each < 1.5 * before.each, "{name}: {} and {} ns", before.each, last.each);
        }
    }

    #[test]
    fn reads_alone_are_merged_for_and_then_left_in_peace() {
        let mut policy = by_name("arce").unwrap();
        let reports = phases(&mut *policy, small(), "BAAAA", 1.0).unwrap();
        let last = &reports[4];
        assert!(last.runs.0 < 8.0 && reports[1].merged > 0, "{reports:?}");
        // Little is flushed and little is compacted: the tree keeps its two runs.
        assert!((last.merged as f64) < 40.0 * last.operations * 0.01 * ENTRY, "{reports:?}");
    }

    #[test]
    fn searches_keep_to_their_share_of_a_core() {
        for plan in ["ABDJCE", "JEBFDC", "gradient"] {
            let reports = phases(&mut *by_name("arce").unwrap(), small(), plan, 1.0).unwrap();
            let time: f64 = reports.iter().map(|r| r.each * r.operations).sum();
            let steps: u64 = reports.iter().map(|r| r.steps).sum();
            let searched = steps as f64 * SEARCH_STEP;
            let most = SearchBudget::SHARE * time + SearchBudget::SAVED + SEARCH_STEP;
            assert!(steps > 0 && searched <= most, "{plan}");
        }
    }

    #[test]
    fn merges_take_as_long_as_was_foreseen() {
        let reports = phases(&mut *by_name("arce").unwrap(), small(), "JJJ", 1.0).unwrap();
        let merges: u64 = reports.iter().map(|r| r.foreseen.held.merges).sum();
        assert!(merges > 20, "{reports:?}");
        assert!(reports.iter().all(|r| r.foreseen.held.most <= 3.0), "{reports:?}");
        let last = &reports[2];
        let predicted = last.predicted.unwrap();
        assert!((predicted / last.each - 1.0).abs() < 0.3, "{predicted} predicted, {last:?}");
    }

    /// When writers are slowed, the predicted flush intervals account for the write rate limit. The interference that
    /// is measured after the first phase is up to 0.37 (the true one is 0.1), so predictions are then up to a fifth too
    /// short.
    #[test]
    fn merges_beside_slowed_writers_are_foreseen() {
        let reports = phases(&mut *by_name("arce").unwrap(), small(), "BBB", 1.0).unwrap();
        for (report, mean) in reports.iter().zip([0.5, 1.0, 1.0]) {
            let held = report.foreseen.held;
            assert!(held.merges > 10 && held.mean() <= mean && held.most <= 3.0, "{report:?}");
        }
    }

    #[test]
    fn a_ramp_of_updates_is_followed() {
        let run = |name: &str| phases(&mut *by_name(name).unwrap(), small(), "gradient", 40.0).unwrap();
        let (arce, other) = (run("arce"), run("1-leveling:static"));
        assert_eq!(arce.len(), 17);
        assert!(mean(&arce) < mean(&other), "{} and {}", mean(&arce), mean(&other));
    }
}
