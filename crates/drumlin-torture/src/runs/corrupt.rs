//! The corrupt run: a store with a damaged file answers correctly, or with an error that names the file.
//!
//! A fixture is a small store with every kind of file. It was either closed cleanly, or left by a process that died
//! right after a synced commit and one more. Each case damages one of its files: it flips bits of a byte, truncates
//! the file, zeroes a page, or exchanges two files of a kind. Then it opens the store and reads all of it.
//!
//! The store must reject a truncated file by name: truncation is damage. Zeroing the end of a log or manifest removes
//! its last records together with the mark of what was synced. In a store that was closed cleanly, log and manifest
//! vouch for each other. Otherwise such damage looks like a torn end: there the answer may lack records, and the case
//! counts as a tail.

use crate::failure::{Failure, Verdict};
use crate::ops::{Change, Item, Op, Ttl, Value};
use crate::oracle::{Oracle, Promise};
use crate::parallel;
use crate::runner::{Runner, contents, open};
use crate::workload::{Taste, Workload};
use drumlin::Durability;
use drumlin_env::sync::Arc;
use drumlin_env::{Disk, FileKind, ImageMode, MemEnv, Random};
use std::path::{Path, PathBuf};

/// Bits to flip.
const MASKS: [u8; 3] = [0x01, 0x80, 0xFF];
/// Number of cases per fixture.
const CASES: u64 = 500;

/// A sound store.
pub(super) struct Fixture {
    pub(super) workload: Workload,
    pub(super) disk: Disk,
    pub(super) files: Vec<(PathBuf, FileKind, Vec<u8>)>,
    pub(super) oracle: Oracle,
    pub(super) promise: Promise,
    pub(super) is_closed: bool,
}

/// Damage to a file.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    Mask { at: u64, mask: u8 },
    Cut { len: u64 },
    ZeroPage { at: u64 },
    Exchange { with: PathBuf },
    Remove,
}

/// Results of some cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    cases: u64,
    refused: u64,
    truths: u64,
    /// Number of ends lost together with their marks.
    tails: u64,
    /// Number of damages to tables that neither reads nor `verify` detected.
    unseen: u64,
}

/// Results of all cases.
#[derive(Debug, Default)]
pub struct Figures {
    report: Report,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        let Report { cases, refused, truths, tails, unseen } = self.report;
        let named = [Verdict::Silent, Verdict::Panic, Verdict::Misnamed];
        let other = self.failures.iter().filter(|(_, f)| !named.contains(&f.verdict)).count();
        format!(
            "corrupt: cases {cases}, refused {refused}, true {truths}, tails {tails}, unseen {unseen}, silent {}, \
             panics {}, misnamed {}, wrong {other}",
            count(Verdict::Silent),
            count(Verdict::Panic),
            count(Verdict::Misnamed),
        )
    }
}

impl Fixture {
    pub(super) fn make(seed: u64) -> Result<Fixture, Failure> {
        let taste = Taste {
            operations: 160,
            unlogged: false,
            kills: false,
            swaps: false,
            lifetimes: false,
            renames: false,
        };
        let mut workload = Workload::generate("corrupt", seed, &taste);
        workload.ops.retain(|op| !matches!(op, Op::Checkpoint | Op::Repair));
        let mem = MemEnv::new(seed);
        let mut runner = Runner::create(mem.clone(), &workload)?;
        runner.run(&workload.ops, usize::MAX)?;
        let is_closed = seed.is_multiple_of(2);
        if !is_closed {
            // The last record carries the mark of all that was synced before it. Writes to a dropped keyspace are no
            // records.
            let living =
                workload.keyspaces.iter().find(|keyspace| runner.keyspaces.contains_key(&keyspace.name));
            let living = living.into_iter().map(|keyspace| &keyspace.name);
            for (keyspace, durability) in
                living.flat_map(|name| [(name, Durability::Sync), (name, Durability::Buffered)])
            {
                let keyspace = keyspace.clone();
                let change = Change::Put("last".into(), Value { tag: seed, len: 40 });
                let items = vec![Item { keyspace, change, ttl: Ttl::Keyspace }];
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

    pub(super) fn draw(&self, random: &mut Random) -> (usize, Damage) {
        let which = random.index(self.files.len());
        let (path, kind, bytes) = &self.files[which];
        // Most of a log is preallocated space without records.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        let reach = if random.chance(9, 10) { used } else { bytes.len() as u64 };
        let at = random.below(reach.max(1));
        let others: Vec<&PathBuf> =
            self.files.iter().filter(|(p, k, _)| k == kind && p != path).map(|(p, _, _)| p).collect();
        let damage = match random.below(20) {
            0 | 3 => Damage::Cut { len: at },
            1 => Damage::ZeroPage { at: at & !4095 },
            2 if !others.is_empty() => Damage::Exchange { with: others[random.index(others.len())].clone() },
            _ => Damage::Mask { at, mask: MASKS[random.index(MASKS.len())] },
        };
        (which, damage)
    }

    /// Damages the store in `mem`.
    pub(super) fn damage(&self, mem: &MemEnv, which: usize, damage: &Damage) {
        let (path, kind, bytes) = &self.files[which];
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
            Damage::Remove => drop(mem.env().fs().unlink(path, *kind)),
        }
    }

    /// Damages the store and checks its answers.
    fn judge(&self, which: usize, damage: &Damage, report: &mut Report) -> Result<(), Failure> {
        let (path, kind, _) = &self.files[which];
        let mem = self.disk.image(ImageMode::All, self.workload.seed);
        self.damage(&mem, which, damage);
        report.cases += 1;
        // Without a clean close nothing vouches for the manifest's last edit.
        let is_cut = matches!(damage, Damage::Cut { .. });
        let is_open_end = *kind == FileKind::Manifest && !self.is_closed && !is_cut;
        let is_zeroed =
            matches!(kind, FileKind::Log | FileKind::Manifest) && matches!(damage, Damage::ZeroPage { .. });
        let is_tail = !self.is_closed && (is_open_end || is_zeroed);
        let blamed = |error: drumlin::Error| match (is_open_end || is_zeroed) && error.is_corruption() {
            // Files that only the lost last records named may be missing; then the error names those.
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
                let seen = (db.visible_seq(), mem.env().clock().unix_micros());
                let explained = self.oracle.find_cut(&found, &self.promise, true, seen);
                explained.map_err(|failure| Verdict::Silent.of(failure.what))?;
                report.truths += 1;
                let verified = db.verify();
                let is_clean = verified.is_ok_and(|report| report.findings.is_empty());
                report.unseen += u64::from(is_clean && *kind == FileKind::Table);
            }
        }
        Ok(())
    }

    /// Checks that the error is about the damaged file.
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

/// Runs `cases` cases of one seed.
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
