//! Which search goes on, and when. Artificial searches take simulated time, in a store whose own lanes are stopped. The
//! last test runs a search of the adaptive policy beside one that never ends.

use super::*;
use crate::api::db::Db;
use crate::api::keyspace::Keyspace;
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
        if let Outcome::SearchEnded(answer) = outcome {
            self.0.lock().push(String::from_utf8_lossy(answer).into_owned());
        }
    }
}

/// A search with `left` more steps, each of which takes a millisecond.
struct Timed {
    mem: MemEnv,
    name: &'static str,
    urgent: bool,
    left: u32,
    /// Names of all searches that took a step, in order.
    steps: Arc<Mutex<Vec<&'static str>>>,
}

impl SearchTask for Timed {
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
    /// Answers that the policies got, and the steps of all searches.
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
        let job = SearchJob::new(store.files.now());
        World { mem, db, heard, steps: Arc::default(), job, keyspaces }
    }

    /// Makes the policy of keyspace `at` ask for a search.
    fn request(&self, at: usize, name: &'static str, urgent: bool, left: u32) {
        let search = Timed { mem: self.mem.clone(), name, urgent, left, steps: self.steps.clone() };
        let mut control = self.keyspaces[at].store.control.lock();
        control.keyspace(&self.keyspaces[at].state).unwrap().begin_search(Box::new(search));
    }

    /// Runs up to `most` steps, as long as more can be done at once. Returns the searches that took a step.
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
    world.request(0, "tree", false, 100);
    assert_eq!(world.run(3), ["tree"; 3]);
    world.request(0, "mix", true, 2);
    assert_eq!(world.run(1), ["mix"], "the newer search did not start at once");
    world.request(0, "next mix", true, 2);
    assert_eq!(world.run(100), ["next mix"; 2]);
    assert_eq!((world.heard(0), world.is_searching(0)), (vec!["next mix".to_owned()], false));
    assert_eq!(world.job.step(&world.keyspaces[0].store).unwrap(), Step::Idle);
    // The same for a search that has no time left.
    world.request(0, "tree", false, 1000);
    world.run(1000);
    assert_eq!((world.heard(0), world.is_searching(0)), (vec!["tree so far".to_owned()], false));
    world.request(0, "mix", true, 2);
    assert_eq!(world.run(100), ["mix"; 2]);
    assert_eq!(world.heard(0), ["mix"]);
    // No step is taken for a replaced search, for a search of a replaced policy, or for one of a dropped keyspace.
    world.mem.advance(60_000_000);
    assert_eq!(world.run(100), [""; 0]);
    world.request(0, "tree", false, 1000);
    assert_eq!(world.run(1), ["tree"]);
    world.keyspaces[0].store.control.lock().keyspaces.iter_mut().for_each(|entry| entry.end_search());
    assert_eq!(world.run(100), [""; 0]);
    world.request(0, "tree", false, 1000);
    assert_eq!(world.run(1), ["tree"]);
    world.db.drop_keyspace("a").unwrap();
    assert_eq!((world.run(100), world.heard(0)), (vec![], vec![String::new()]));
}

#[test]
fn half_of_the_time_saved_is_kept_for_urgent_searches() {
    let mut world = World::new(1);
    // The budget has accumulated 400 ms. A step takes a millisecond and earns a fiftieth of it.
    world.request(0, "tree", false, 1000);
    assert_eq!(world.run(1000).len(), 205, "half of the budget, and the time earned meanwhile");
    assert_eq!(world.heard(0), ["tree so far"], "the best answer is given once");
    let Step::Until(when) = world.job.step(&world.keyspaces[0].store).unwrap() else {
        panic!("the search does not wait")
    };
    world.mem.advance(when - world.keyspaces[0].store.files.now());
    assert!((1..=2).contains(&world.run(1000).len()), "the search did not go on at the given time");
    assert_eq!(world.heard(0), [""; 0]);
    world.request(0, "mix", true, 1000);
    assert_eq!(world.run(1000).len(), 204, "the reserved half of the budget");
    assert_eq!(world.heard(0), ["mix so far"]);
    // Ten seconds earn 200 ms, which are reserved again.
    world.request(0, "tree", false, 1000);
    world.mem.advance(10_000_000);
    assert!(world.run(1000).len() <= 1);
    world.mem.advance(1_000_000);
    assert!((20..=22).contains(&world.run(1000).len()));
}

#[test]
fn urgent_searches_go_before_those_of_other_keyspaces_that_wait_for_time() {
    let mut world = World::new(3);
    world.request(0, "tree", false, 1000);
    world.request(1, "tree too", false, 100);
    let first = world.run(10_000);
    assert!(first.len() > 200 && count(&first, "tree") == first.len(), "the oldest goes first: {first:?}");
    assert_eq!(
        [0, 1].map(|at| (world.heard(at), world.is_searching(at))),
        [(vec!["tree so far".to_owned()], false), (vec!["tree too so far".to_owned()], false),]
    );
    world.request(2, "mix", true, 40);
    let steps = world.run(50);
    let of_mix = (steps[0], count(&steps, "mix"), count(&steps, "tree"));
    assert_eq!(of_mix, ("mix", 40, 10), "a fifth of the steps go to the other searches: {steps:?}");
    assert_eq!(world.heard(2), ["mix"]);
    assert_eq!(world.run(1000), [""; 0], "the other searches must wait again");
    // Two keyspaces whose mixes change all the time, and want all the time that there is.
    for round in 0..200 {
        world.request(1 + round % 2, "mix", true, 40);
        world.mem.advance(2_000_000);
        world.run(1000);
    }
    assert_eq!(world.heard(0), ["tree"], "the search of another keyspace did not end");
    let answers =
        [1, 2].map(|at| count(&world.heard(at).iter().map(String::as_str).collect::<Vec<_>>(), "mix"));
    assert!(answers.iter().all(|answers| *answers >= 60), "most urgent searches must end: {answers:?}");
}

/// Checks that a search of the adaptive policy for a changed operation mix ends, in a store in which another keyspace's
/// search never does.
#[test]
fn another_mix_is_answered_beside_a_search_that_never_ends() {
    let world = World::new(1);
    let options = [("memtable_bytes", "32KiB"), ("file_bytes", "64KiB")];
    let keys = world.db.keyspace_with("main", &options).unwrap();
    world.request(0, "tree", false, u32::MAX);
    let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
    for n in 0..30_000 {
        keys.put(key(n), [7; 64]).unwrap();
        world.mem.advance(100);
    }
    assert!(count(&world.steps.lock(), "tree") > 100, "the endless search got no time");
    for n in 0..30_000 {
        assert!(keys.range(key(n)..).next().is_some() || n > 0);
        world.mem.advance(100);
    }
    let state = keys.policy_state();
    // Without writes flush intervals are longer too, which the policy searches for next.
    let answers = ["the mix of operations changed", "the number of operations per flush changed"];
    assert!(answers.iter().any(|why| state.contains(&format!("last search ({why})"))), "{state}");
    assert!(state.contains("\nphases: 30"), "{state}");
    assert!(world.is_searching(0) || world.heard(0) == ["tree so far"]);
}
