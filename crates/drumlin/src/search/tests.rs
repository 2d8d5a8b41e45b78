//! Whose search goes on, and when: searches made up for it, which take simulated time, in a store whose own lanes stand
//! still meanwhile; at the end one of the adaptive policy beside one that never ends.

use super::*;
use crate::db::Db;
use crate::keyspace::Keyspace;
use drumlin_env::MemEnv;
use drumlin_env::sync::Mutex;
use drumlin_types::contract::{CompactionPolicy, Decision, PolicyInput};
use std::path::Path;

/// A policy that decides nothing and keeps the answers that it gets.
#[derive(Debug)]
struct Listens(Arc<Mutex<Vec<String>>>);

impl CompactionPolicy for Listens {
    fn name(&self) -> String {
        "tiering:10".to_owned()
    }

    fn decide(&mut self, _: &PolicyInput<'_>) -> Decision {
        Decision::default()
    }

    fn observe(&mut self, outcome: &Outcome) {
        if let Outcome::Thought(answer) = outcome {
            self.0.lock().push(String::from_utf8_lossy(answer).into_owned());
        }
    }
}

/// A search of `left` steps more, each of which takes a millisecond.
struct Timed {
    mem: MemEnv,
    name: &'static str,
    urgent: bool,
    left: u32,
    /// The names of all searches that went on, in order.
    steps: Arc<Mutex<Vec<&'static str>>>,
}

impl Think for Timed {
    fn step(&mut self) -> Option<Vec<u8>> {
        self.steps.lock().push(self.name);
        self.mem.advance(1000);
        self.left -= 1;
        (self.left == 0).then(|| self.name.as_bytes().to_vec())
    }

    fn is_urgent(&self) -> bool {
        self.urgent
    }

    fn best(&self) -> Option<Vec<u8>> {
        Some(format!("{} so far", self.name).into_bytes())
    }
}

struct World {
    mem: MemEnv,
    db: Db,
    keyspaces: Vec<Keyspace>,
    /// What the policies heard, and the steps of all searches.
    heard: Vec<Arc<Mutex<Vec<String>>>>,
    steps: Arc<Mutex<Vec<&'static str>>>,
    job: SearchJob,
}

impl World {
    fn new(keyspaces: usize) -> World {
        let mem = MemEnv::new(7);
        let db = Db::builder(Path::new("/store")).env(mem.env()).open().unwrap();
        let names = ["a", "b", "c"];
        let keyspaces: Vec<Keyspace> =
            names[..keyspaces].iter().map(|name| db.keyspace(name).unwrap()).collect();
        let heard: Vec<_> = keyspaces.iter().map(|_| Arc::default()).collect();
        let store = &keyspaces[0].store;
        for (keys, heard) in keyspaces.iter().zip(&heard) {
            let policy = Box::new(Listens(Arc::clone(heard)));
            store.control.lock().keyspace(&keys.state).unwrap().set_policy(policy);
        }
        let job = SearchJob::new(store.now());
        World { mem, db, heard, steps: Arc::default(), job, keyspaces }
    }

    /// The policy of keyspace `at` asks for a search.
    fn ask(&self, at: usize, name: &'static str, urgent: bool, left: u32) {
        let think = Timed { mem: self.mem.clone(), name, urgent, left, steps: self.steps.clone() };
        let mut control = self.keyspaces[at].store.control.lock();
        control.keyspace(&self.keyspaces[at].state).unwrap().begin_search(Box::new(think));
    }

    /// Up to `most` steps, as long as there is more to do at once; the searches that went on.
    fn run(&mut self, most: usize) -> Vec<&'static str> {
        for _ in 0..most {
            if self.job.step(&self.keyspaces[0].store).unwrap() != Step::More {
                break;
            }
        }
        std::mem::take(&mut *self.steps.lock())
    }

    fn heard(&self, at: usize) -> Vec<String> {
        std::mem::take(&mut *self.heard[at].lock())
    }

    fn is_searching(&self, at: usize) -> bool {
        let mut control = self.keyspaces[at].store.control.lock();
        control.keyspace(&self.keyspaces[at].state).unwrap().searching
    }
}

fn count(steps: &[&str], name: &str) -> usize {
    steps.iter().filter(|step| **step == name).count()
}

#[test]
fn a_newer_search_takes_the_place_of_the_one_under_way() {
    let mut world = World::new(1);
    world.ask(0, "tree", false, 100);
    assert_eq!(world.run(3), ["tree"; 3]);
    world.ask(0, "mix", true, 2);
    assert_eq!(world.run(1), ["mix"], "at the very next step");
    world.ask(0, "next mix", true, 2);
    assert_eq!(world.run(100), ["next mix"; 2]);
    assert_eq!((world.heard(0), world.is_searching(0)), (vec!["next mix".to_owned()], false));
    assert_eq!(world.job.step(&world.keyspaces[0].store).unwrap(), Step::Idle);
    // So does one that has no time left.
    world.ask(0, "tree", false, 1000);
    world.run(1000);
    assert_eq!((world.heard(0), world.is_searching(0)), (vec!["tree so far".to_owned()], false));
    world.ask(0, "mix", true, 2);
    assert_eq!(world.run(100), ["mix"; 2]);
    assert_eq!(world.heard(0), ["mix"]);
    // Nothing is left of those that were replaced, nor of those of a policy that is gone or of a keyspace that was dropped.
    world.mem.advance(60_000_000);
    assert_eq!(world.run(100), [""; 0]);
    world.ask(0, "tree", false, 1000);
    assert_eq!(world.run(1), ["tree"]);
    world.keyspaces[0].store.control.lock().keyspaces.iter_mut().for_each(|entry| entry.end_search());
    assert_eq!(world.run(100), [""; 0]);
    world.ask(0, "tree", false, 1000);
    assert_eq!(world.run(1), ["tree"]);
    world.db.drop_keyspace("a").unwrap();
    assert_eq!((world.run(100), world.heard(0)), (vec![], vec![String::new()]));
}

#[test]
fn half_of_the_time_saved_is_kept_for_urgent_searches() {
    let mut world = World::new(1);
    // 400 ms are saved. A step takes a millisecond and gains a fiftieth of it.
    world.ask(0, "tree", false, 1000);
    assert_eq!(world.run(1000).len(), 205, "half, and what was gained meanwhile");
    assert_eq!(world.heard(0), ["tree so far"], "once");
    let Step::Until(when) = world.job.step(&world.keyspaces[0].store).unwrap() else { panic!("it waits") };
    world.mem.advance(when - world.keyspaces[0].store.now());
    assert!((1..=2).contains(&world.run(1000).len()), "as soon as it said");
    assert_eq!(world.heard(0), [""; 0]);
    world.ask(0, "mix", true, 1000);
    assert_eq!(world.run(1000).len(), 204, "the other half");
    assert_eq!(world.heard(0), ["mix so far"]);
    // Ten seconds gain 200 ms: those are kept again.
    world.ask(0, "tree", false, 1000);
    world.mem.advance(10_000_000);
    assert!(world.run(1000).len() <= 1);
    world.mem.advance(1_000_000);
    assert!((20..=22).contains(&world.run(1000).len()));
}

#[test]
fn urgent_searches_go_before_those_of_other_keyspaces_that_wait_for_time() {
    let mut world = World::new(3);
    world.ask(0, "tree", false, 1000);
    world.ask(1, "tree too", false, 100);
    let first = world.run(10_000);
    assert!(first.len() > 200 && count(&first, "tree") == first.len(), "the oldest goes first: {first:?}");
    assert_eq!(
        [0, 1].map(|at| (world.heard(at), world.is_searching(at))),
        [(vec!["tree so far".to_owned()], false), (vec!["tree too so far".to_owned()], false),]
    );
    world.ask(2, "mix", true, 40);
    let steps = world.run(50);
    let of_mix = (steps[0], count(&steps, "mix"), count(&steps, "tree"));
    assert_eq!(of_mix, ("mix", 40, 10), "a fifth of the steps are of the others: {steps:?}");
    assert_eq!(world.heard(2), ["mix"]);
    assert_eq!(world.run(1000), [""; 0], "the others wait again");
    // Two keyspaces whose mixes change all the time, and want all the time that there is.
    for round in 0..200 {
        world.ask(1 + round % 2, "mix", true, 40);
        world.mem.advance(2_000_000);
        world.run(1000);
    }
    assert_eq!(world.heard(0), ["tree"], "the search of another keyspace ends all the same");
    let answers =
        [1, 2].map(|at| count(&world.heard(at).iter().map(String::as_str).collect::<Vec<_>>(), "mix"));
    assert!(answers.iter().all(|answers| *answers >= 60), "and so do most of theirs: {answers:?}");
}

/// Whether a search of the adaptive policy that answers to another mix ends, in a store in which another keyspace has a
/// search that never does.
#[test]
fn another_mix_is_answered_beside_a_search_that_never_ends() {
    let world = World::new(1);
    let options = [("memtable_bytes", "32KiB"), ("file_bytes", "64KiB")];
    let keys = world.db.keyspace_with("main", &options).unwrap();
    world.ask(0, "tree", false, u32::MAX);
    let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
    for n in 0..30_000 {
        keys.put(key(n), [7; 64]).unwrap();
        world.mem.advance(100);
    }
    assert!(count(&world.steps.lock(), "tree") > 100, "it takes all that it can");
    for n in 0..30_000 {
        assert!(keys.range(key(n)..).next().is_some() || n > 0);
        world.mem.advance(100);
    }
    let state = keys.policy_state();
    // Without writes windows are longer too, which is searched for next.
    let answers = ["another mix of operations", "windows hold another number of operations"];
    assert!(answers.iter().any(|why| state.contains(&format!("last search, {why}"))), "{state}");
    assert!(state.contains("\nphases: 30"), "{state}");
    assert!(world.is_searching(0) || world.heard(0) == ["tree so far"]);
}
