//! The admin run: administration under threads, on a simulated disk with real threads.
//!
//! Two to eight threads make and drop keyspaces, set options and policies, write, read, flush, compact, take snapshots
//! and make checkpoints, all on one store. They also make calls that must be refused. Now and then all threads meet
//! and make the same call at once. After each round the store is closed, or the process dies, or the power fails; in
//! some rounds a thread closes it while the others work. The store then opens, and every acknowledged change is in
//! force. Power also fails at some I/O calls in the middle of a round.
//!
//! The calls follow from the seed, but their interleaving does not.

mod store;
mod thread;

use crate::complaints::Complaints;
use crate::failure::{Failure, Verdict};
use crate::ledger::{self, LASTING, Ledger, OPTIONS, Picture, STORE, STORE_OPTIONS};
use crate::parallel::{self, guarded};
use drumlin::{Append, Builder, Db, ErrorKind};
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_env::{Env, ImageMode, MemEnv, Random};
use store::{STORE_PATH, builder, failed, sound};
use thread::{Counts, Shared, Thread};

/// Maximum number of I/O calls between two power losses in the middle of a round.
const CUT_STEP: u64 = 3000;
/// Time between two advances of the simulated clock.
const TICK_MICROS: u64 = 200;

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    cases: u64,
    counts: Counts,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let counts: String = self.counts.0.iter().map(|(what, count)| format!(", {what} {count}")).collect();
        format!("admin: cases {}{counts}, violations {}", self.cases, self.failures.len())
    }
}

/// Runs `count` cases from seed `first` on, with `operations` calls of each thread in each round.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let mut figures = Figures::default();
    let job = move |number| one(first.wrapping_add(number), operations);
    for (number, result) in parallel::each(count, job) {
        match result {
            Ok(counts) => {
                figures.cases += 1;
                figures.counts.add(counts);
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}

/// Number of calls of each thread in each round.
pub const OPERATIONS: usize = 60;

/// Runs one case.
pub fn one(seed: u64, operations: usize) -> Result<Counts, Failure> {
    let mut random = Random::new(seed, "admin");
    let threads = 2 + random.index(7);
    let rounds = 2 + random.below(3);
    let mut case = Case {
        seed,
        operations,
        random,
        mem: MemEnv::threaded(seed),
        ledgers: (0..threads).map(|thread| Ledger { thread, ..Ledger::default() }).collect(),
        lives: Arc::new(atomic::AtomicU64::new(ledger::FIRST_LIFE)),
        complaints: Arc::new(Complaints::that_may_leave_open()),
        counts: Counts::default(),
        lost_writes: false,
        was_closed: false,
    };
    case.create()?;
    for round in 0..rounds {
        case.round(round).map_err(|failure| failure.within(&format!("round {round}")))?;
    }
    let db = case.open()?;
    case.check(&db)?;
    db.close().map_err(failed("close"))?;
    Ok(case.counts)
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// A thread closes the store while the others work.
    ClosedAtWork,
    Close,
    /// The process dies.
    Death,
    /// The power fails after a sync.
    PowerLoss,
    /// The power fails and takes writes that were not synced.
    SuddenPowerLoss,
}

struct Case {
    seed: u64,
    operations: usize,
    random: Random,
    mem: MemEnv,
    ledgers: Vec<Ledger>,
    lives: Arc<atomic::AtomicU64>,
    complaints: Arc<Complaints>,
    counts: Counts,
    /// Whether the last round ended in a loss of writes.
    lost_writes: bool,
    /// Whether a thread closed the store in the last round.
    was_closed: bool,
}

impl Case {
    fn builder(&self) -> Builder {
        builder(self.mem.env(), STORE_PATH).listener(self.complaints.clone())
    }

    /// Creates the store with the keyspaces that stay.
    fn create(&mut self) -> Result<(), Failure> {
        let db = self.builder().open().map_err(failed("creating the store"))?;
        for (name, first) in STORE_OPTIONS {
            db.set_option(name, &first.to_string()).map_err(failed("an option of the store"))?;
        }
        for (name, life) in LASTING {
            thread::create(&db, name, life).map_err(failed("creating a keyspace"))?;
        }
        let set = (0..STORE_OPTIONS.len()).map(|number| (STORE, number, STORE_OPTIONS[number].1));
        let kept = LASTING.iter().flat_map(|(_, life)| {
            OPTIONS.iter().enumerate().map(|(number, (_, first))| (*life, number, *first))
        });
        for (life, number, first) in set.chain(kept) {
            let owner = number % self.ledgers.len();
            self.ledgers[owner].options.insert((life, number), vec![(first, 0)]);
        }
        db.close().map_err(failed("close"))
    }

    /// Opens the store, after some openings that must be refused or that change nothing.
    fn open(&mut self) -> Result<Db, Failure> {
        let unopenable = |error: drumlin::Error| Verdict::Unopenable.of(error.to_string());
        for _ in 0..self.random.below(3) {
            match self.random.below(4) {
                0 => {
                    let other = self.builder().merge_operator("sum", Arc::new(Append::new(",")));
                    match other.open() {
                        Err(error) if error.kind() == ErrorKind::InvalidOption => {}
                        Err(error) => return Err(failed("another merge operator")(error)),
                        Ok(_) => return Err(Verdict::Wrong.of("another merge operator is accepted")),
                    }
                    self.counts.count("refused");
                }
                1 => {
                    // Without operators the store opens, but does not merge.
                    let db = Db::builder(STORE_PATH).env(self.mem.env()).open().map_err(unopenable)?;
                    let sum = db.open_keyspace("sum").map_err(failed("keyspace"))?;
                    match sum.merge("m", "1") {
                        Err(error) if error.kind() == ErrorKind::MergeOperatorMissing => {}
                        other => return Err(Verdict::Wrong.of(format!("no operator merges: {other:?}"))),
                    }
                    db.close().map_err(failed("close"))?;
                    self.counts.count("reopened");
                }
                _ => {
                    self.builder().open().map_err(unopenable)?.close().map_err(failed("close"))?;
                    self.counts.count("reopened");
                }
            }
        }
        self.counts.count("reopened");
        self.builder().open().map_err(unopenable)
    }

    /// Checks the store, which has just been opened.
    fn check(&mut self, db: &Db) -> Result<(), Failure> {
        sound(db)?;
        let picture = Picture::of(db)?;
        ledger::check_all(&self.ledgers, &picture, self.lost_writes, self.was_closed)?;
        self.ledgers.iter_mut().for_each(|ledger| ledger.settle(&picture));
        Ok(())
    }

    fn round(&mut self, round: u64) -> Result<(), Failure> {
        let db = self.open()?;
        self.check(&db)?;
        let end =
            [End::ClosedAtWork, End::Close, End::Close, End::Death, End::PowerLoss, End::SuddenPowerLoss]
                [self.random.index(6)];
        let mut cut = self.mem.io_index();
        for _ in 0..3 {
            cut += self.random.below(CUT_STEP);
            self.mem.take_snapshot_at(cut);
        }
        self.work(&db, round, end)?;
        self.was_closed = end == End::ClosedAtWork;
        self.lost_writes = end == End::SuddenPowerLoss;
        if end != End::ClosedAtWork {
            ledger::check_all(&self.ledgers, &Picture::of(&db)?, false, false)
                .map_err(|failure| failure.within("before the end"))?;
        }
        let seed = self.seed ^ round;
        self.check_cuts(seed)?;
        match end {
            End::ClosedAtWork => drop(db),
            End::Close => db.close().map_err(failed("close"))?,
            End::Death => self.mem = self.mem.snapshot().image(ImageMode::All, seed),
            End::PowerLoss => {
                db.sync().map_err(failed("sync"))?;
                self.mem = self.mem.snapshot().image(ImageMode::None, seed);
            }
            End::SuddenPowerLoss => self.mem = self.mem.snapshot().image(ImageMode::None, seed),
        }
        self.check_quiet()
    }

    /// Lets the threads work on `db`.
    fn work(&mut self, db: &Db, round: u64, end: End) -> Result<(), Failure> {
        let ledgers = std::mem::take(&mut self.ledgers);
        let (count, operations) = (ledgers.len(), self.operations);
        let closes = end == End::ClosedAtWork;
        let shared = Arc::new(Shared::new(db.clone(), self.mem.clone(), self.lives.clone(), round, count));
        let results = Arc::new(Mutex::new(Vec::new()));
        let env = Env::os();
        let mut handles = Vec::new();
        for ledger in ledgers {
            let (shared, results, seed) = (shared.clone(), results.clone(), self.seed);
            let work = move || {
                let mut thread = Thread::new(&shared, seed, ledger);
                let result = guarded(|| thread.work(operations, closes));
                let (number, done) = (thread.ledger.thread, thread.done());
                shared.meeting.leave();
                results.lock().push((number, done, result));
            };
            handles.push(env.spawn("administrator", work).map_err(|e| Verdict::Failed.of(e.to_string()))?);
        }
        // The simulated clock stands still by itself, and compactions with a rate limit wait for it.
        while handles.iter().any(|handle| !handle.is_finished()) {
            self.mem.advance(TICK_MICROS);
            env.clock().sleep_micros(TICK_MICROS);
        }
        handles.into_iter().for_each(|handle| handle.join().expect("threads catch their panics"));
        let mut results = std::mem::take(&mut *results.lock());
        results.sort_by_key(|(number, ..)| *number);
        for (number, (ledger, counts), result) in results {
            result.map_err(|failure| failure.within(&format!("thread {number}")))?;
            self.ledgers.push(ledger);
            self.counts.add(counts);
        }
        Ok(())
    }

    /// Checks the stores that power losses during the round would have left.
    fn check_cuts(&mut self, seed: u64) -> Result<(), Failure> {
        for (index, disk) in self.mem.taken() {
            let mode = ImageMode::ALL[self.random.index(ImageMode::ALL.len())];
            let at = |failure: Failure| failure.within(&format!("cut at {index}, {mode:?}"));
            let image = disk.image(mode, seed ^ index);
            let opened = builder(image.env(), STORE_PATH).open();
            let db = opened.map_err(|error| at(Verdict::Unopenable.of(error.to_string())))?;
            let checked = sound(&db)
                .and_then(|()| Picture::of(&db))
                .and_then(|picture| ledger::check_cut(&self.ledgers, &picture, index));
            checked.map_err(at)?;
            db.close().map_err(failed("close"))?;
            self.counts.count("cuts");
        }
        Ok(())
    }

    /// Checks that no background work failed and that no rule of durability was broken.
    fn check_quiet(&self) -> Result<(), Failure> {
        if let Some(complaint) = self.complaints.lock().first() {
            return Err(Verdict::Failed.of(complaint));
        }
        self.mem.order_violations().first().map_or(Ok(()), |what| Err(Verdict::Order.of(what)))
    }
}
