//! When policies are called, with which inputs, and what happens to their plans. Uses artificial policies in a stepped
//! store.

use crate::api::db::Db;
use crate::base::event::{Event, EventListener};
use crate::compaction::control::{ManualCompaction, Stage};
use drumlin_env::MemEnv;
use drumlin_env::sync::{Arc, Mutex};
use drumlin_policy::SplitMix;
use drumlin_types::contract::{
    CompactionPolicy, Decision, Outcome, Pace, PaceScope, Plan, PlanResult, PolicyInput, Take,
};
use drumlin_types::{KeyRange, TableId};

/// A policy that decides nothing and takes a millisecond for each call.
#[derive(Debug)]
struct Ponders {
    mem: MemEnv,
    slow: f64,
}

impl CompactionPolicy for Ponders {
    fn name(&self) -> String {
        "tiering:10".to_owned()
    }

    fn decide(&mut self, _: &PolicyInput<'_>) -> Decision {
        self.mem.advance(1000);
        let pace = Pace { slow: self.slow, ..Pace::free(PaceScope::All, 1000.0) };
        Decision { pace: Some(pace), ..Decision::default() }
    }
}

#[test]
fn calls_that_change_nothing_take_a_hundredth_of_a_core_unless_writers_are_slowed() {
    // Returns the number of policy calls and the seconds while the first `written` keyspaces are flushed. Writers are
    // slowed from `slow` runs on.
    let ask = |names: &[&str], written: usize, slow: f64| {
        let mem = MemEnv::new(9);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keyspaces: Vec<_> = names.iter().map(|name| db.keyspace(name).expect("a keyspace")).collect();
        for keys in &keyspaces {
            let policy = Box::new(Ponders { mem: mem.clone(), slow });
            keys.store.control.lock().keyspace(&keys.state).expect("it is there").set_policy(policy);
        }
        let (asked, began) = (db.metrics().policy_calls, mem.env().clock().monotonic_micros());
        for n in 0..60_u32 {
            for keys in &keyspaces[..written] {
                keys.put(n.to_be_bytes(), b"v").expect("put");
            }
            db.flush().expect("flush");
            mem.advance(10_000);
            // Background steps are taken around operations.
            (0..20).for_each(|_| assert!(keyspaces[0].get(n.to_be_bytes()).expect("get").is_some()));
        }
        let seconds = (mem.env().clock().monotonic_micros() - began) as f64 / 1e6;
        (db.metrics().policy_calls - asked, seconds)
    };
    let most = |seconds: f64| seconds * 10.0 + 6.0;
    let (asked, seconds) = ask(&["a"], 1, f64::INFINITY);
    assert!((seconds * 4.0..=most(seconds)).contains(&(asked as f64)), "{asked} in {seconds} s");
    let (asked, seconds) = ask(&["a", "b", "c"], 3, f64::INFINITY);
    assert!(asked as f64 <= most(seconds), "{asked} in {seconds} s, three keyspaces");
    // Keyspaces that have nothing to do use no CPU time.
    let (asked, seconds) = ask(&["a", "b", "c", "d", "e", "f", "g", "h"], 1, f64::INFINITY);
    assert!((seconds * 4.0..=most(seconds)).contains(&(asked as f64)), "{asked} in {seconds} s, seven idle");
    let (asked, seconds) = ask(&["a"], 1, 2.0);
    assert!(asked as f64 > 2.0 * most(seconds), "{asked} in {seconds} s while writers are slowed");
}

#[test]
fn while_a_compaction_by_hand_runs_other_merges_are_planned() {
    let mem = MemEnv::new(8);
    let builder = Db::builder("/s").env(mem.env()).set("compaction_slots", "2").expect("an option");
    let db = builder.open().expect("open");
    let options = [("memtable_bytes", "16KiB"), ("compaction", "tiering:2")];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    let put = |n: u32, bytes: usize| {
        keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), vec![n as u8; bytes]).expect("put");
    };
    (0..60_000).for_each(|n| put(n, 4));
    db.wait_idle().expect("idle");
    {
        let mut control = keys.store.control.lock();
        let keyspace = &mut control.keyspaces[0];
        keyspace.manual.push(ManualCompaction::new(7, KeyRange::all()));
    }
    let (mut began, mut beside) = (false, false);
    // Two of these values fill a memtable.
    for n in 0..300 {
        put(n, 12_000);
        let control = keys.store.control.lock();
        let keyspace = &control.keyspaces[0];
        let Some(Stage::Begun(ticket)) = keyspace.manual.first().map(|m| m.stage) else { continue };
        began = true;
        beside |= keyspace.flight.tickets.iter().any(|t| t.ticket > ticket);
    }
    assert!(began, "the manual compaction did not begin");
    assert!(beside, "no other compaction ran beside it");
    db.wait_idle().expect("idle");
    let ended = keys.store.control.lock().keyspaces[0].take_manual(7);
    assert!(matches!(ended, Some(Ok(()))), "{ended:?}");
}

/// The output of a manual compaction holds more than any of its inputs, so it gets none of their tags. With the tag of
/// the oldest run the schedule would go back to the eighth of 20 units.
#[test]
fn a_compaction_by_hand_of_tagged_runs_gives_an_untagged_one() {
    let mem = MemEnv::new(10);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let options = [("memtable_bytes", "64KiB"), ("compaction", "horizontal-lazy:6/3")];
    let keys = db.keyspace_with("k", &options).expect("a keyspace");
    let tags = || -> Vec<Vec<u8>> {
        let view = keys.state.view();
        view.tree.levels.iter().flat_map(|level| &level.runs).map(|run| run.tag.0.clone()).collect()
    };
    // The last unit of a run is in the bytes 27 and 28 of its tag.
    let has_run_to = |unit: u8| tags().iter().any(|tag| tag.get(27..29) == Some(&[unit, 0][..]));
    let mut dice = SplitMix::new(1);
    for _ in 0..20 {
        // A little less than a memtable, and hardly compressible.
        for n in 0..125_u32 {
            let value: Vec<u8> = (0..50).flat_map(|_| dice.next_u64().to_le_bytes()).collect();
            keys.put(n.to_be_bytes(), value).expect("put");
        }
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
    }
    assert!(has_run_to(8) && has_run_to(20), "{:?}", tags());
    keys.compact::<&[u8]>(..).expect("compact");
    assert!(tags().iter().all(|tag| tag.is_empty()), "{:?}", tags());
    db.wait_idle().expect("idle");
    assert!(!has_run_to(8), "{:?}", tags());
}

/// A policy that plans to compact a table that does not exist. Records the times of its calls and the refusals it
/// observed.
#[derive(Debug)]
struct Errs(Arc<Mutex<(Vec<u64>, Vec<String>)>>);

impl CompactionPolicy for Errs {
    fn name(&self) -> String {
        "tiering:10".to_owned()
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.0.lock().0.push(input.now);
        let take = Take { table: TableId(u64::MAX), range: KeyRange::all() };
        let plans = vec![Plan::new(vec![take], 1, "a mistake".to_owned())];
        Decision { pace: Some(Pace::free(PaceScope::All, 1000.0)), plans, ..Decision::default() }
    }

    fn observe(&mut self, outcome: &Outcome) {
        if let Outcome::Plan { result: PlanResult::Refused, why, .. } = outcome {
            self.0.lock().1.push(why.clone());
        }
    }
}

#[test]
fn an_illegal_plan_is_refused_and_counted_and_its_policy_rests_longer_each_time() {
    let mem = MemEnv::new(10);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    keys.put(b"a", b"1").expect("put");
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let told = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    keys.store.control.lock().keyspaces[0].set_policy(Box::new(Errs(told.clone())));
    // Background steps are taken around operations, at least once in 48 operations.
    for _ in 0..6000 {
        mem.advance(50_000);
        assert_eq!(keys.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    }
    let (asked, refused) = std::mem::take(&mut *told.lock());
    let gaps: Vec<u64> = asked.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
    assert!(gaps.len() >= 8, "{gaps:?}");
    for (gap, rest) in gaps.iter().zip([1, 2, 4, 8, 16, 32].into_iter().chain(std::iter::repeat(60))) {
        assert!((rest..=rest + 3).contains(gap), "{gap} s, not {rest}: {gaps:?}");
    }
    assert_eq!(refused.len(), asked.len(), "every plan must be refused: {refused:?}");
    assert!(refused.iter().all(|why| !why.is_empty()));
    assert_eq!(db.metrics().plans_refused, asked.len() as u64);
    // A new policy does not inherit the back-off.
    let before = db.metrics().policy_calls;
    keys.set_policy("tiering:4").expect("a policy");
    (0..60).for_each(|_| assert!(keys.get(b"a").expect("get").is_some()));
    assert!(db.metrics().policy_calls > before);
    let logged = db.explain().iter().filter(|d| d.what.contains("illegal: ")).count();
    assert!(logged > 0, "the decision log names the rule");
}

/// A policy whose saved state no version understands.
#[derive(Debug)]
struct Newer;

impl CompactionPolicy for Newer {
    fn name(&self) -> String {
        "arce".to_owned()
    }

    fn decide(&mut self, _: &PolicyInput<'_>) -> Decision {
        Decision::default()
    }

    fn save(&self) -> Vec<u8> {
        vec![99; 40]
    }
}

/// Records the events about ignored states.
#[derive(Default)]
struct States(Mutex<Vec<String>>);

impl EventListener for States {
    fn on_event(&self, event: &Event) {
        if let Event::StateIgnored { what } = event {
            self.0.lock().push(what.clone());
        }
    }
}

#[test]
fn a_state_of_another_version_is_told_of_and_the_policy_begins_anew() {
    let mem = MemEnv::new(11);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    keys.store.control.lock().keyspaces[0].set_policy(Box::new(Newer));
    keys.put(b"a", b"1").expect("put");
    drop((keys, db));
    for expected in [1, 0] {
        let states = Arc::new(States::default());
        let db = Db::builder("/s").env(mem.env()).listener(states.clone()).open().expect("open");
        let keys = db.keyspace("k").expect("a keyspace");
        assert_eq!(keys.policy(), "arce");
        let told = states.0.lock().clone();
        assert_eq!(told.len(), expected, "{told:?}");
        assert!(
            told.iter().all(|what| what.contains("keyspace \"k\"") && what.contains("version 99")),
            "{told:?}"
        );
        keys.put(b"b", b"2").expect("put");
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        assert_eq!(keys.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn keyspaces_whose_writers_are_nearest_to_a_stop_come_first() {
    let mem = MemEnv::new(12);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keyspaces: Vec<_> = ["a", "b", "c"].map(|name| db.keyspace(name).expect("a keyspace")).into();
    for (keys, slow) in keyspaces.iter().zip([f64::INFINITY, 2.0, 2.0]) {
        let policy = Box::new(Ponders { mem: mem.clone(), slow });
        keys.store.control.lock().keyspace(&keys.state).expect("it is there").set_policy(policy);
    }
    for (at, flushes) in [(0, 6), (1, 3), (2, 5)] {
        for n in 0..flushes {
            keyspaces[at].put([n], b"v").expect("put");
            db.flush().expect("flush");
        }
    }
    db.wait_idle().expect("idle");
    let store = &keyspaces[0].store;
    assert_eq!(
        store.control.lock().most_pressing_first(),
        [2, 1, 0],
        "c has 5 runs, b has 3, both slowed from 2 on; a has 6 and is not slowed"
    );
}

/// A policy that plans a move of each table of level 0 to level 1, and records what became of its plans.
#[cfg(feature = "experiments")]
#[derive(Debug)]
struct MovesAll(Arc<Mutex<Vec<PlanResult>>>);

#[cfg(feature = "experiments")]
impl CompactionPolicy for MovesAll {
    fn name(&self) -> String {
        "tiering:10".to_owned()
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let files = input.tree.files().filter(|(level, _, file)| *level == 0 && file.is_takeable());
        let oldest_first = files.map(|(_, _, file)| file.table).collect::<std::collections::BTreeSet<_>>();
        let one = |table| Plan::new(vec![Take { table, range: KeyRange::all() }], 1, format!("{table:?}"));
        Decision { plans: oldest_first.into_iter().map(one).collect(), ..Decision::default() }
    }

    fn observe(&mut self, outcome: &Outcome) {
        if let Outcome::Plan { result, .. } = outcome {
            self.0.lock().push(*result);
        }
    }
}

#[cfg(feature = "experiments")]
#[test]
fn a_policy_hears_of_a_plan_that_has_to_wait() {
    let mem = MemEnv::new(11);
    let builder = Db::builder("/s").env(mem.env()).set("pipeline", "split").expect("an option");
    let db = builder.open().expect("open");
    let keys = db.keyspace_with("k", &[("compaction", "tiering:10")]).expect("a keyspace");
    for n in 0..3u8 {
        for key in 0..100u8 {
            keys.put([n, key], [n]).expect("put");
        }
        db.flush().expect("flush");
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    {
        let mut control = keys.store.control.lock();
        control.keyspaces[0].set_policy(Box::new(MovesAll(told.clone())));
        control.keyspaces[0].due = true;
    }
    for _ in 0..100 {
        mem.advance(50_000);
        assert!(keys.get([0, 1]).expect("get").is_some());
    }
    let told = std::mem::take(&mut *told.lock());
    assert!(told.starts_with(&[PlanResult::Deferred]), "one of the plans is admitted first: {told:?}");
    assert!(told.contains(&PlanResult::Done), "{told:?}");
    assert!(!told.contains(&PlanResult::Refused), "{told:?}");
    assert_eq!(db.metrics().plans_refused, 0);
    let in_level_0 = keys.state.view().tree.files().filter(|(level, _, _)| *level == 0).count();
    assert_eq!(in_level_0, 0, "all are moved in the end");
}

/// Nothing else wakes the scheduler of an idle keyspace when a back-off of collections ends.
#[test]
fn the_end_of_a_back_off_of_collections_wakes_the_scheduler() {
    let mem = MemEnv::new(11);
    let db = Db::builder("/s").env(mem.env()).open().expect("open");
    let keys = db.keyspace("k").expect("a keyspace");
    let now = || mem.env().clock().monotonic_micros();
    let resumes_at = || keys.store.control.lock().keyspaces[0].collection.resumes_at();
    keys.put(b"k", b"v").expect("put");
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    keys.store.control.lock().keyspaces[0].collection.back_off(now());
    assert!(resumes_at().is_some_and(|end| end > now()), "it backs off");
    // When nothing is due, a stepped store sets its clock to the next timer.
    for _ in 0..100 {
        keys.store.background.step_any().expect("a step");
    }
    assert_eq!(resumes_at(), None);
}
