//! Concurrency models: small programs whose threads a model checker (shuttle) schedules at every lock and atomic.
//!
//! They are built with `--cfg shuttle --cfg sim`, which replaces the locks and atomics of [`drumlin_env::sync`] by
//! those of shuttle. Schedules are drawn from a seed, and a failed schedule is printed with the command that replays
//! it. [`Schedules`] says how many run: all schedules of a model, or a fixed number. Half of a fixed number are drawn
//! uniformly and half with few context switches (PCT).
//!
//! A model names the seeded bugs that it must find. Each bug is switched on in turn, and the model must fail.
//!
//! The models leave out memory orders weaker than sequential consistency. Operations of `arc_swap`, of epochs, of the
//! statistics and of the internal state of `drumlin-env` are single steps. Timeouts never expire, so a thread that
//! sleeps and is never woken is reported as a deadlock.

mod memtable;
mod store;
mod write;

use drumlin_types::bug;
use shuttle::FailurePersistence;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Choice of the schedules of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schedules {
    /// Every possible schedule.
    All,
    /// Percentage of the number of schedules that the run asks for.
    Share(usize),
}

/// Model and its search.
struct Model {
    name: &'static str,
    run: fn(),
    search: Schedules,
    /// Names of the seeded bugs that the model must find.
    bugs: &'static [&'static str],
}

const fn model(name: &'static str, run: fn(), search: Schedules, bugs: &'static [&'static str]) -> Model {
    Model { name, run, search, bugs }
}

const MODELS: &[Model] = &[
    model(
        "a commit is always seen",
        memtable::a_commit_is_always_seen,
        Schedules::All,
        &["entries-before-writers"],
    ),
    model("the list", memtable::entries_stay_in_order, Schedules::Share(100), &["link-without-exchange"]),
    model(
        "publishing",
        write::commits_are_published_in_order,
        Schedules::Share(100),
        &["publish-out-of-order", "ring-overrun"],
    ),
    model("the commit lock", store::commits_serve_each_other, Schedules::Share(50), &[]),
    model("the log floor", store::the_log_floor_spares_every_commit, Schedules::Share(100), &[]),
    model(
        "the log floor and a new manifest",
        store::the_log_floor_never_goes_back,
        Schedules::Share(20),
        &["log-floor-goes-back"],
    ),
    model("a drop", store::a_drop_outlasts_every_write, Schedules::Share(20), &["drop-ignores-writers"]),
    model(
        "a drop and a scan",
        store::a_scan_sees_all_or_hears_of_the_drop,
        Schedules::Share(20),
        &["scan-checks-early"],
    ),
    model(
        "a flush and a checkpoint",
        store::a_flush_keeps_to_the_ceiling,
        Schedules::Share(50),
        &["flush-above-ceiling"],
    ),
    model("a whole checkpoint", store::a_checkpoint_is_one_moment, Schedules::Share(20), &[]),
    model(
        "a checkpoint and a drop",
        store::a_checkpoint_holds_a_keyspace_or_what_followed_its_drop,
        Schedules::Share(20),
        &["drop-during-checkpoint"],
    ),
    model(
        "a failed sync",
        store::a_failed_sync_is_told_to_all,
        Schedules::Share(20),
        &["failed-sync-told-once"],
    ),
];

/// Number of context switches in a PCT schedule.
const SWITCHES: usize = 3;
/// Most schedules that search for a seeded bug. The search ends with the first failure. The rarest bug takes 600
/// schedules on average, so its search gives up with probability e^-33.
const HUNT: usize = 20_000;

/// Runs the schedules of `scheduler`. Returns their number, or an error when one failed.
fn check(scheduler: impl Scheduler + 'static, run: fn(), is_hunt: bool) -> Result<usize, ()> {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    if is_hunt {
        config.failure_persistence = FailurePersistence::None;
    }
    let runner = shuttle::Runner::new(scheduler, config);
    let counted = move || {
        RUNS.fetch_add(1, Ordering::Relaxed);
        run();
    };
    catch_unwind(AssertUnwindSafe(|| runner.run(counted))).map_err(|_| ())
}

/// Draws schedules of `model` from `seed`, as many as its share of `schedules`. Without that number, it searches for a
/// seeded bug.
fn search(model: &Model, schedules: Option<usize>, seed: u64) -> Result<usize, ()> {
    let is_hunt = schedules.is_none();
    let Schedules::Share(share) = model.search else {
        return check(DfsScheduler::new(None, true), model.run, is_hunt);
    };
    let half = schedules.map_or(HUNT / 2, |schedules| (schedules * share / 200).max(1));
    // The schedulers alternate in short parts, so that a bug that only one of them finds shows up early.
    let (mut left, mut seed, mut total) = (half, seed, 0);
    while left > 0 {
        let count = left.min(PART);
        total += check(RandomScheduler::new_from_seed(seed, count), model.run, is_hunt)?;
        total += check(PctScheduler::new_from_seed(seed, SWITCHES, count), model.run, is_hunt)?;
        (left, seed) = (left - count, seed.wrapping_add(1));
    }
    Ok(total)
}

/// Schedules that ran so far.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Schedules that one scheduler draws before the other has its turn.
const PART: usize = 50;

/// Reads a number from an environment variable.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Searches for the seeded bugs of `model` and returns those that were not found.
fn hunt(model: &Model, seed: u64) -> Vec<String> {
    let is_missed = |name: &&&str| {
        bug::activate(name);
        let before = RUNS.load(Ordering::Relaxed);
        let is_missed = search(model, None, seed).is_ok();
        let verdict = if is_missed { "not found" } else { "found" };
        println!("{}: {name} {verdict}, {} schedules", model.name, RUNS.load(Ordering::Relaxed) - before);
        is_missed
    };
    // Panics are expected here, so they print nothing.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed = model.bugs.iter().filter(is_missed).map(|name| format!("{}: {name} not found", model.name));
    let missed = missed.collect();
    bug::activate("");
    std::panic::set_hook(hook);
    missed
}

/// Runs all models and searches for all seeded bugs. `MODEL=name` selects the models whose names contain `name`.
/// `SCHEDULES` is the number of schedules per model, and `SEED` is the first seed.
#[test]
fn every_schedule_holds_and_every_bug_is_found() {
    let (schedules, seed) = (setting("SCHEDULES", 100) as usize, setting("SEED", 1));
    let only = std::env::var("MODEL").unwrap_or_default();
    let (mut total, mut failed, mut bugs, mut missed) = (0, Vec::new(), 0, Vec::new());
    for model in MODELS.iter().filter(|model| model.name.contains(&only)) {
        match search(model, Some(schedules), seed) {
            Ok(count) => {
                println!("{}: {count} schedules", model.name);
                total += count;
            }
            Err(()) => {
                println!("repro: MODEL='{}' SCHEDULES={schedules} SEED={seed} bash ci/models.sh", model.name);
                failed.push(model.name);
            }
        }
        bugs += model.bugs.len();
        missed.extend(hunt(model, seed));
    }
    println!(
        "shuttle: schedules {total}, failures {}, bugs {bugs}, found {}",
        failed.len(),
        bugs - missed.len()
    );
    assert!(failed.is_empty() && missed.is_empty(), "{failed:?} {missed:?}");
}
