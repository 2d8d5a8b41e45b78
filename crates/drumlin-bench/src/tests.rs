//! Tests of the harness: short in-memory runs of every family, detection of wrong results, and the schema of reports.

use crate::drumlin_engine::Drumlin;
use crate::engine::{
    Counters, Demands, Direction, Durability, Engine, EngineConfig, EngineKind, Io, Result, Visit,
};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
use crate::measure::process;
use crate::measure::run::{Outcome, Run};
use crate::report::progress::Progress;
use crate::workload::{Action, After, Entries, Phase, Workload, micro, suites, ycsb};
use drumlin::env::TempDir;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

fn config() -> EngineConfig {
    EngineConfig {
        memory_bytes: 64 << 20,
        memtable_bytes: 64 << 10,
        in_memory: true,
        ..EngineConfig::default()
    }
}

/// Runs `workload` on `kind` in memory.
pub(crate) fn run(kind: &dyn EngineKind, workload: &Workload) -> Result<Outcome> {
    let progress = Progress::new(true);
    let run = Run {
        kind,
        name: kind.name().to_owned(),
        config: config(),
        workload,
        dir: PathBuf::from("/bench"),
        seed: 1,
        round: 1,
        progress: &progress,
    };
    run.run()
}

#[test]
fn every_family_runs_and_every_answer_is_right() {
    for workload in suites::smoke().expect("the suite is known") {
        let outcome = run(&Drumlin, &workload).expect("no answer is wrong");
        let warm = workload.phases.iter().filter(|phase| phase.warm).count();
        let left_out = outcome.warnings.iter().filter(|warning| warning.contains("left out")).count();
        assert!(left_out <= 2, "{:?}", outcome.warnings);
        assert!(outcome.phases.len() + left_out >= workload.phases.len() - warm, "{}", workload.name);
        for phase in &outcome.phases {
            assert!(phase.ops > 0 && phase.seconds > 0.0, "{}", phase.name);
            assert_eq!(phase.by_op.values().map(|kind| kind.ops).sum::<u64>(), phase.ops, "{}", phase.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_stream_and_another_seed_another() {
    let sizes = micro::Sizes { num: 500, ..micro::Sizes::default() };
    let names = ["fillrandom".to_owned(), "readrandom".to_owned()];
    let workload = &micro::workloads(&names, &sizes).expect("known names")[0];
    let streams = |outcome: Outcome| outcome.phases.iter().map(|p| p.stream.clone()).collect::<Vec<_>>();
    let first = streams(run(&Drumlin, workload).expect("it runs"));
    assert_eq!(first, streams(run(&Drumlin, workload).expect("it runs")));
    assert_ne!(first[0], first[1]);
}

#[test]
fn two_threads_share_the_work() {
    let sizes = ycsb::Sizes {
        records: 1001,
        ops: 999,
        value_bytes: 100,
        value_ratio: 0.5,
        threads: 2,
        distribution: ycsb::Distribution::Arce,
        update: ycsb::Update::Field,
    };
    let workload = ycsb::workload("ad", &sizes).expect("known letters");
    let outcome = run(&Drumlin, &workload).expect("no answer is wrong");
    assert_eq!(outcome.phases.iter().map(|phase| phase.ops).collect::<Vec<_>>(), [1001, 999, 999]);
    assert!(outcome.phases.iter().all(|phase| phase.threads == 2));
}

/// Drumlin, recording every open; optionally without direct I/O.
#[derive(Default)]
struct Noted {
    without_direct: bool,
    opened: Mutex<Vec<String>>,
}

impl EngineKind for Noted {
    fn name(&self) -> &'static str {
        "noted"
    }
    fn lacks(&self, config: &EngineConfig) -> Option<String> {
        (self.without_direct && config.io == Io::Direct).then(|| "no direct reads".to_owned())
    }
    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        let open = Drumlin.open(dir, config)?;
        let options = open.options();
        let in_effect = |name: &str| options.get(name).cloned().unwrap_or_default();
        let opened = format!("{} {}", in_effect("memory_budget"), in_effect("table_reads"));
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        Ok(open)
    }
}

/// Runs micro benchmarks on files. Returns the reported phases, the warnings and all opens.
fn on_files(kind: &Noted, io: Io, names: &[&str]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let dir = TempDir::new("drumlin-bench").expect("a temporary directory");
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let sizes = micro::Sizes { num: 2000, ..micro::Sizes::default() };
    let workload = &micro::workloads(&names, &sizes).expect("known names")[0];
    let progress = Progress::new(true);
    let run = Run {
        kind,
        name: "noted".to_owned(),
        config: EngineConfig { in_memory: false, io, ..config() },
        workload,
        dir: dir.path().join("store"),
        seed: 1,
        round: 1,
        progress: &progress,
    };
    let outcome = run.run().expect("no answer is wrong");
    let opened = std::mem::take(&mut *kind.opened.lock().unwrap_or_else(PoisonError::into_inner));
    let phases = outcome.phases.into_iter().map(|phase| format!("{} x{}", phase.name, phase.threads));
    (phases.collect(), outcome.warnings, opened)
}

#[test]
fn uncached_phases_open_the_loaded_store_again_and_later_ones_as_before() {
    let names = ["readuncached", "readuncached16", "multiget", "readpagecache", "readrandom"];
    let (phases, warnings, opened) = on_files(&Noted::default(), Io::Buffered, &names);
    let expected =
        ["readuncached x1", "readuncached16 x16", "multiget x1", "readpagecache x1", "readrandom x1"];
    assert_eq!(phases, expected.map(|name| format!("micro {name}")));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(opened, ["64MiB buffered", "16MiB direct", "16MiB buffered", "64MiB buffered"]);
}

#[test]
fn an_engine_without_direct_reads_is_left_out_of_what_needs_them() {
    let kind = Noted { without_direct: true, ..Noted::default() };
    let names = ["readuncached", "readpagecache", "readrandom"];
    let (phases, warnings, opened) = on_files(&kind, Io::Buffered, &names);
    assert_eq!(phases, ["micro readpagecache x1", "micro readrandom x1"]);
    assert_eq!(warnings, ["noted: readuncached left out: no direct reads"]);
    assert_eq!(opened.len(), 3);
    let (phases, warnings, opened) = on_files(&kind, Io::Direct, &names);
    assert!(phases.is_empty() && opened.is_empty());
    assert_eq!(warnings, ["noted: micro left out: no direct reads"]);
    let (.., opened) = on_files(&Noted::default(), Io::Direct, &["readrandom"]);
    assert_eq!(opened, ["64MiB direct"]);
}

/// Ways in which an engine returns wrong results.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lie {
    Nothing,
    LosesAKey,
    GivesTheOldValue,
    SwapsValues,
    SpoilsAByte,
    SkipsAnEntry,
    InventsAKey,
    TurnsARange,
    /// Panics in a lookup.
    Panics,
    /// Tells the truth, and needs a terabyte of disk space while it settles.
    Swells,
}

/// A map that returns wrong results in one way.
struct Liar(Lie);

struct LyingMap {
    lie: Lie,
    map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    is_settling: AtomicBool,
    /// Whether the counters were read while it settled.
    was_seen: AtomicBool,
}

impl LyingMap {
    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<u8>, Vec<u8>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        match self.lie {
            Lie::SwapsValues => value[0] ^= 1,
            Lie::SpoilsAByte => *value.last_mut().expect("values are not empty") ^= 1,
            _ => {}
        }
        value
    }
}

impl EngineKind for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }
    fn open(&self, _: &Path, _: &EngineConfig) -> Result<Box<dyn Engine>> {
        Ok(Box::new(LyingMap {
            lie: self.0,
            map: Mutex::default(),
            is_settling: AtomicBool::new(false),
            was_seen: AtomicBool::new(false),
        }))
    }
}

impl Engine for LyingMap {
    fn put(&self, key: &[u8], value: &[u8], _: Durability) -> Result<()> {
        let mut map = self.map();
        if self.lie == Lie::GivesTheOldValue && map.contains_key(key) {
            return Ok(());
        }
        map.insert(key.to_vec(), value.to_vec());
        Ok(())
    }
    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        entries.iter().try_for_each(|(key, value)| self.put(key, value, durability))
    }
    fn delete(&self, key: &[u8], _: Durability) -> Result<()> {
        self.map().remove(key);
        Ok(())
    }
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        assert!(self.lie != Lie::Panics, "made to panic");
        let value = self.map().get(key).cloned();
        if self.lie == Lie::LosesAKey && key.last().is_some_and(|byte| byte % 16 == 3) {
            return Ok(false);
        }
        if let Some(value) = &value {
            visit(&self.shown(value));
        }
        Ok(value.is_some() || self.lie == Lie::InventsAKey)
    }
    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let map = self.map();
        keys.iter().enumerate().for_each(|(i, key)| visit(i, map.get(*key).map(Vec::as_slice)));
        Ok(())
    }
    fn range(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: Visit<'_>,
    ) -> Result<usize> {
        let map = self.map();
        let from = from.unwrap_or_default().to_vec();
        let all = match direction {
            Direction::Back if from.is_empty() => map.range(vec![]..).rev().collect::<Vec<_>>(),
            Direction::Back => map.range(..=from).rev().collect(),
            Direction::Forward => map.range(from..).collect(),
        };
        let skipped = usize::from(self.lie == Lie::SkipsAnEntry);
        let mut all: Vec<_> = all.into_iter().skip(skipped).take(limit).collect();
        if self.lie == Lie::TurnsARange && all.len() > 2 {
            all[1..].reverse();
        }
        all.iter().for_each(|(key, value)| visit(key, &self.shown(value)));
        Ok(all.len())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        if self.lie == Lie::Swells {
            self.is_settling.store(true, SeqCst);
            let end = process::wall() + 10_000_000_000;
            while !self.was_seen.load(SeqCst) && process::wall() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.is_settling.store(false, SeqCst);
        }
        Ok(())
    }
    fn compact(&self) -> Result<()> {
        Ok(())
    }
    fn counters(&self) -> Counters {
        let is_large = self.is_settling.load(SeqCst);
        self.was_seen.fetch_or(is_large, SeqCst);
        Counters { disk_bytes: Some(if is_large { 1 << 40 } else { 1 << 10 }), ..Counters::default() }
    }
    fn options(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn small() -> Workload {
    let uniform = Target::Uniform;
    let range = |direction| Action::Range(uniform, Entries::Fixed(5), direction);
    Workload {
        name: "small".to_owned(),
        keys: KeyForm::Hashed { len: 16 },
        value_bytes: 100,
        value_ratio: 0.5,
        trace: None,
        phases: vec![
            Phase::of("fill", 500, Action::Put(Target::New)).on_empty().then(After::Idle),
            Phase::new("mixed", 4000, &[(1.0, Action::Put(uniform)), (4.0, Action::Get(uniform))]),
            Phase::of("absent", 500, Action::GetAbsent(uniform)),
            Phase::of("forward", 500, range(Direction::Forward)),
            Phase::of("back", 500, range(Direction::Back)),
            Phase::of("scan", 1, Action::Scan(Direction::Forward)),
        ],
    }
}

#[test]
fn every_lie_is_found() {
    run(&Liar(Lie::Nothing), &small()).expect("the truth passes");
    for (lie, phase, what) in [
        (Lie::LosesAKey, "mixed", "is there and was not found"),
        (Lie::GivesTheOldValue, "mixed", "the latest is"),
        (Lie::SwapsValues, "mixed", "gave the value of id"),
        (Lie::SpoilsAByte, "mixed", "wrong bytes"),
        (Lie::InventsAKey, "absent", "never written"),
        (Lie::SkipsAnEntry, "forward", "began elsewhere"),
        (Lie::TurnsARange, "forward", "out of order"),
    ] {
        let found = run(&Liar(lie), &small()).err().unwrap_or_else(|| panic!("{lie:?} was not found"));
        assert!(
            found.contains(&format!(", {phase}: wrong answer")) && found.contains(what),
            "{lie:?}: {found}"
        );
    }
}

#[test]
fn a_panic_of_a_client_ends_the_run_also_beside_a_writer() {
    let mut workload = small();
    workload.phases[1] = Phase { writer: Some(1e6), ..Phase::of("reads", 100, Action::Get(Target::Uniform)) };
    for threads in [1, 2] {
        workload.phases[1].threads = threads;
        let found = run(&Liar(Lie::Panics), &workload).err().expect("an error");
        assert!(found.contains("a thread of the benchmark panicked"), "{found}");
    }
}

#[test]
fn the_peak_of_disk_space_counts_the_settling() {
    let outcome = run(&Liar(Lie::Swells), &small()).expect("its answers are right");
    let space = &outcome.phases[0].space_amp;
    assert_eq!(space.peak, Some((1u64 << 40) as f64 / space.live_bytes_final as f64));
    assert!(space.r#final < Some(1.0), "{space:?}");
}

#[test]
fn decisions_are_dated_from_the_open() {
    let engine = Drumlin.open(Path::new("/bench"), &config()).expect("open");
    engine.put(b"key", b"value", Durability::Buffered).and_then(|()| engine.flush()).expect("a flush");
    let decisions = engine.decisions();
    // A Unix time would be over a billion seconds.
    assert!(!decisions.is_empty() && decisions.iter().all(|decision| decision.t < 1e6), "{decisions:?}");
}

#[test]
fn a_timed_phase_is_the_same_work_for_every_engine() {
    let sizes = micro::Sizes { num: 500, duration: Some(0.02), write_rate: 1e5, ..micro::Sizes::default() };
    let workload = &micro::workloads(&["readwhilewriting".to_owned()], &sizes).expect("a known name")[0];
    let timed = workload.phases.iter().find(|phase| !phase.warm).expect("a phase");
    assert_eq!((timed.seconds, timed.writer), (Some(0.02), Some(1e5)));
    let outcomes = [1, 2].map(|_| run(&Drumlin, workload).expect("no answer is wrong"));
    let [first, second] = outcomes.map(|outcome| outcome.phases.into_iter().next().expect("a report"));
    assert!(first.ops > 0 && second.ops > 0);
    assert_eq!(first.stream, second.stream, "they count as equal work, however far each got");
    for phase in [first, second] {
        assert!(phase.bytes.ingested > 0 && phase.write_amp.is_some(), "what the writer wrote counts");
    }
}

#[test]
fn skewed_reads_skip_entries_that_a_random_fill_left_out() {
    let sizes = micro::Sizes { num: 2000, theta: Some(0.9), ..micro::Sizes::default() };
    let names = ["fillrandom".to_owned(), "readrandom".to_owned()];
    let workload = &micro::workloads(&names, &sizes).expect("known names")[0];
    let outcome = run(&Drumlin, workload).expect("no answer is wrong");
    let reads = outcome.phases.iter().find(|phase| phase.name.ends_with("readrandom")).expect("a report");
    assert_eq!(reads.lookups.hits, reads.ops, "a phase of present keys looked up an absent one");
}

/// Runs micro benchmarks with the names `names` in a store of 500 entries, in memory.
fn of_micro(names: &[&str]) -> Outcome {
    let sizes = micro::Sizes { num: 500, ..micro::Sizes::default() };
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    run(&Drumlin, &micro::workloads(&names, &sizes).expect("known names")[0]).expect("no answer is wrong")
}

#[test]
fn a_phase_of_scans_makes_all_of_them() {
    let outcome = of_micro(&["readseq", "readreverse"]);
    for phase in &outcome.phases {
        // 20 scans. Each entry of a scan counts as an operation.
        assert_eq!((phase.ops, phase.latency_us.samples), (20 * 500, 20), "{}", phase.name);
        assert_eq!(phase.by_op["scan"].ops, phase.ops);
    }
    assert_eq!(outcome.phases.len(), 2);
}

#[test]
fn latencies_stand_for_all_calls() {
    let outcome = of_micro(&["fillrandom", "readrandom"]);
    let calls = outcome.phases.iter().map(|phase| (phase.latency_us.samples, phase.ops));
    assert!(calls.clone().all(|(samples, ops)| samples == ops), "{:?}", calls.collect::<Vec<_>>());
}

#[test]
fn many_more_clients_than_cores_use_no_more_than_these() {
    let mut workload = small();
    workload.phases[1].threads = 16 * crate::measure::process::cores() as u32;
    workload.phases[1].ops = 100_000;
    let outcome = run(&Liar(Lie::Nothing), &workload).expect("no answer is wrong");
    assert!(outcome.phases.iter().all(|phase| phase.usable), "{:?}", outcome.warnings);
}

#[test]
fn a_slow_rate_does_not_outlast_the_duration() {
    let mut workload = small();
    workload.phases[1].seconds = Some(0.05);
    workload.phases[1].rate = Some(40.0);
    let outcome = run(&Liar(Lie::Nothing), &workload).expect("no answer is wrong");
    // Calls are due at 0 and 25 ms. Without a check between calls, a whole chunk of 256 would run.
    assert!((1..=2).contains(&outcome.phases[1].ops), "{}", outcome.phases[1].ops);
}

#[test]
fn values_too_short_for_an_id_are_right_in_ranges_too() {
    for value_bytes in [0, 1, 4, 7, 8, 15] {
        let workload = Workload { value_bytes, ..small() };
        run(&Liar(Lie::Nothing), &workload).unwrap_or_else(|what| panic!("{value_bytes} bytes: {what}"));
    }
}

/// An engine with short keys and few clients.
struct Narrow;

impl EngineKind for Narrow {
    fn name(&self) -> &'static str {
        "narrow"
    }
    fn lacks_for(&self, demands: Demands) -> Option<String> {
        let Demands { key_bytes, threads, .. } = demands;
        (key_bytes > 16 || threads > 2).then(|| format!("{key_bytes} bytes, {threads} clients"))
    }
    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        Liar(Lie::Nothing).open(dir, config)
    }
}

#[test]
fn what_an_engine_cannot_do_is_left_out_with_the_reason() {
    let mut workload = small();
    workload.phases[1].threads = 3;
    let outcome = run(&Narrow, &workload).expect("no error");
    let names: Vec<&str> = outcome.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["small fill", "small forward", "small back", "small scan"]);
    let reasons =
        ["narrow: mixed left out: 16 bytes, 3 clients", "narrow: absent left out: 17 bytes, 1 clients"];
    assert_eq!(outcome.warnings, reasons);
    // If the load is skipped, so are the phases that read its entries.
    workload.phases[0].threads = 3;
    let outcome = run(&Narrow, &workload).expect("no error");
    assert!(outcome.phases.is_empty() && outcome.warnings.len() == workload.phases.len());
}

/// An engine whose buffered writes are less durable than required.
struct Weak;

impl EngineKind for Weak {
    fn name(&self) -> &'static str {
        "weak"
    }
    fn uncompared(&self, demands: Demands) -> Option<String> {
        (demands.writes == Some(Durability::Buffered)).then(|| "weak writes".to_owned())
    }
    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        Liar(Lie::Nothing).open(dir, config)
    }
}

#[test]
fn writes_that_do_not_compare_are_made_but_not_reported() {
    let mut workload = small();
    let writes = Phase::of("synced", 100, Action::Put(Target::Uniform));
    workload.phases.push(Phase { durability: Some(Durability::Sync), ..writes });
    let outcome = run(&Weak, &workload).expect("no error");
    let names: Vec<&str> = outcome.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["small absent", "small forward", "small back", "small scan", "small synced"]);
    assert!(outcome.phases[3].ops >= 500, "the scan reads what the load wrote");
    let reasons = ["weak: fill left out: weak writes", "weak: mixed left out: weak writes"];
    assert_eq!(outcome.warnings, reasons);
    // An unreported load needs no warning.
    workload.phases[0].warm = true;
    assert_eq!(run(&Weak, &workload).expect("no error").warnings, reasons[1..]);
}
