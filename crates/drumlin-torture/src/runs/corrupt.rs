//! The corrupt run: a store with a damaged file answers the truth, or an error that names the file.
//!
//! A small store of every kind of file is closed cleanly, or left by a process that died right after a synced commit
//! and one more. Each case damages one of its files: a byte changed by a
//! mask, a cut, a page of zeros, two files of a kind exchanged. Then it is opened and read whole.
//!
//! A log or a manifest that is cut, or zeroed, loses the mark of what was synced along with its last records, and
//! looks like one with a torn tail: there the answer may lack them. Those cases are counted as tails.

use crate::failure::{Failure, Verdict};
use crate::ops::{Change, Item, Op, Value};
use crate::oracle::{Oracle, Promise};
use crate::parallel;
use crate::runner::{Runner, contents, open};
use crate::workload::{Taste, Workload};
use drumlin::Durability;
use drumlin_env::sync::Arc;
use drumlin_env::{Disk, FileKind, ImageMode, MemEnv, Random};
use std::path::{Path, PathBuf};

/// Bits to change.
const MASKS: [u8; 3] = [0x01, 0x80, 0xFF];
/// Cases for which one fixture serves.
const CASES: u64 = 500;

/// A sound store.
struct Fixture {
    workload: Workload,
    disk: Disk,
    files: Vec<(PathBuf, FileKind, Vec<u8>)>,
    oracle: Oracle,
    promise: Promise,
    is_closed: bool,
}

/// Damage to a file.
#[derive(Clone, Debug)]
enum Damage {
    Mask { at: u64, mask: u8 },
    Cut { len: u64 },
    ZeroPage { at: u64 },
    Exchange { with: PathBuf },
}

/// What came out of some cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    cases: u64,
    refused: u64,
    truths: u64,
    /// Ends lost together with their marks.
    tails: u64,
    /// Damage to a table that neither reading nor `verify` saw.
    unseen: u64,
}

/// What came out of all.
#[derive(Debug, Default)]
pub struct Figures {
    report: Report,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// The figure line.
    pub fn line(&self) -> String {
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        let Report { cases, refused, truths, tails, unseen } = self.report;
        let named = [Verdict::Silent, Verdict::Panic, Verdict::Misnamed];
        let other = self.failures.iter().filter(|(_, f)| !named.contains(&f.verdict)).count();
        format!(
            "corrupt: cases {cases}, refused {refused}, true {truths}, tails {tails}, unseen {unseen}, silent {}, panics {}, \
             misnamed {}, wrong {other}",
            count(Verdict::Silent),
            count(Verdict::Panic),
            count(Verdict::Misnamed),
        )
    }
}

impl Fixture {
    fn make(seed: u64) -> Result<Fixture, Failure> {
        let taste = Taste { operations: 160, unlogged: false, kills: false, swaps: false };
        let mut workload = Workload::generate("corrupt", seed, &taste);
        workload.ops.retain(|op| *op != Op::Checkpoint);
        let mem = MemEnv::new(seed);
        let mut runner = Runner::create(mem.clone(), &workload)?;
        runner.run(&workload.ops, usize::MAX)?;
        let is_closed = seed.is_multiple_of(2);
        if !is_closed {
            // The last record carries the mark of all that was synced before it.
            for durability in [Durability::Sync, Durability::Buffered] {
                let change = Change::Put("last".into(), Value { tag: seed, len: 40 });
                let items = vec![Item { keyspace: workload.keyspaces[0].name.clone(), change }];
                runner.apply(&Op::Write { items, durability })?;
            }
        }
        let (oracle, promise) = (runner.oracle.clone(), runner.promise.clone());
        let left = if is_closed {
            runner.finish()?;
            mem
        } else {
            mem.snapshot().image(ImageMode::All, seed)
        };
        let kind = |path: PathBuf| {
            let kind = left.kind_of(&path)?;
            let bytes = left.peek(&path)?;
            (kind != FileKind::Lock).then_some((path, kind, bytes))
        };
        let files = left.files().into_iter().filter_map(kind).collect();
        let mut promise = promise.lock().clone();
        if is_closed {
            promise.synced = promise.issued;
        }
        Ok(Fixture { workload, disk: left.snapshot(), files, oracle, promise, is_closed })
    }

    fn draw(&self, random: &mut Random) -> (usize, Damage) {
        let which = random.index(self.files.len());
        let (path, kind, bytes) = &self.files[which];
        // Most of a log is room for records that were never written.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        let reach = if random.chance(9, 10) { used } else { bytes.len() as u64 };
        let at = random.below(reach.max(1));
        let others: Vec<&PathBuf> =
            self.files.iter().filter(|(p, k, _)| k == kind && p != path).map(|(p, _, _)| p).collect();
        let damage = match random.below(20) {
            0 => Damage::Cut { len: at },
            1 => Damage::ZeroPage { at: at & !4095 },
            2 if !others.is_empty() => Damage::Exchange { with: others[random.index(others.len())].clone() },
            _ => Damage::Mask { at, mask: MASKS[random.index(MASKS.len())] },
        };
        (which, damage)
    }

    /// Damages the store and looks at what it answers.
    fn judge(&self, which: usize, damage: &Damage, report: &mut Report) -> Result<(), Failure> {
        let (path, kind, bytes) = &self.files[which];
        let mem = self.disk.image(ImageMode::All, self.workload.seed);
        match damage {
            Damage::Mask { at, mask } => {
                mem.patch(path, *at, &[bytes.get(*at as usize).copied().unwrap_or(0) ^ mask]);
            }
            Damage::Cut { len } => drop(mem.truncate_file(path, *len)),
            Damage::ZeroPage { at } => {
                let end = (*at as usize + 4096).min(bytes.len());
                mem.patch(path, *at, &vec![0; end.saturating_sub(*at as usize)]);
            }
            Damage::Exchange { with } => {
                mem.plant(path, *kind, &mem.peek(with).unwrap_or_default());
                mem.plant(with, *kind, bytes);
            }
        }
        report.cases += 1;
        // Without a clean close nothing vouches for the manifest's last edit.
        let is_open_end = *kind == FileKind::Manifest && !self.is_closed;
        let is_tail = is_open_end
            || matches!(kind, FileKind::Log | FileKind::Manifest)
                && matches!(damage, Damage::Cut { .. } | Damage::ZeroPage { .. });
        let blamed = |error: drumlin::Error| match is_tail && error.is_corruption() {
            // What the last records named may be missing now.
            true => Ok(()),
            false => self.blame(&error, path, damage),
        };
        let db = match open(&mem, &self.workload) {
            Ok(db) => db,
            Err(error) => {
                report.refused += 1;
                return blamed(error);
            }
        };
        match contents(&db) {
            Err(error) => {
                report.refused += 1;
                blamed(error)?;
            }
            Ok(_) if is_tail => report.tails += 1,
            Ok(found) => {
                let explained = self.oracle.find_cut(&found, &self.promise, true, db.visible_seq());
                explained.map_err(|failure| Verdict::Silent.of(failure.what))?;
                report.truths += 1;
                let verified = db.verify();
                let is_clean = verified.is_ok_and(|report| report.findings.is_empty());
                report.unseen += u64::from(is_clean && *kind == FileKind::Table);
            }
        }
        Ok(())
    }

    /// The error must be about the damaged file.
    fn blame(&self, error: &drumlin::Error, path: &Path, damage: &Damage) -> Result<(), Failure> {
        let with = match damage {
            Damage::Exchange { with } => Some(with.as_path()),
            _ => None,
        };
        if error.path().is_some_and(|named| named == path || Some(named) == with) {
            return Ok(());
        }
        Err(Verdict::Misnamed.of(error.to_string()))
    }
}

/// `cases` cases of one seed.
fn one(seed: u64, cases: u64) -> Result<Report, Failure> {
    let fixture = Fixture::make(seed)?;
    let mut random = Random::new(seed, "damage");
    let mut report = Report::default();
    for _ in 0..cases {
        let (which, damage) = fixture.draw(&mut random);
        parallel::guarded(|| fixture.judge(which, &damage, &mut report))
            .map_err(|failure| failure.within(&format!("{} {damage:?}", fixture.files[which].0.display())))?;
    }
    Ok(report)
}

/// Runs `count` cases, with seeds from `first` on.
pub fn run(first: u64, count: u64) -> Figures {
    let total = Arc::new(count);
    let results = parallel::each(count.div_ceil(CASES), move |number| {
        let cases = (*total - number * CASES).min(CASES);
        one(first.wrapping_add(number), cases)
    });
    let mut figures = Figures::default();
    for (number, result) in results {
        match result {
            Ok(report) => {
                figures.report.cases += report.cases;
                figures.report.refused += report.refused;
                figures.report.truths += report.truths;
                figures.report.tails += report.tails;
                figures.report.unseen += report.unseen;
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
