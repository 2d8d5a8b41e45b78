//! The number of merge slots on an open store, in a world where background work has a time of its own: it is found by
//! measuring where it is left open, follows from the seed alone, and stays where it was set.

use drumlin::env::MemEnv;
use drumlin::env::sync::{Arc, Mutex};
use drumlin::{Db, Event, EventListener};

const PUTS: u32 = 24_000;
/// Virtual nanoseconds of a block of 4 KiB: slow enough for many intervals of two seconds.
const BLOCK: u64 = 20_000_000;
/// Virtual microseconds between two puts.
const EACH: u64 = 1000;
/// What the engine begins with on the four cores of the simulated machine.
const FIRST: u64 = 3;

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(usize, usize, String)>>>);

impl EventListener for Heard {
    fn on_event(&self, event: &Event) {
        if let Event::SlotsChanged { before, slots, reason } = event {
            self.0.lock().push((*before, *slots, reason.clone()));
        }
    }
}

struct Course {
    /// The changes as they were told, and as `explain` shows them.
    told: Vec<(usize, usize, String)>,
    explained: Vec<(String, String)>,
    slots: u64,
    most_parallel: u64,
}

/// Puts faster than merges can follow.
fn course(workers: &str, memory: &str, puts: u32) -> Course {
    course_with(workers, memory, puts, &[])
}

/// The same, where the `adaptation` of the keyspace is set before puts.
fn course_with(workers: &str, memory: &str, puts: u32, adaptation: &[(u32, &str)]) -> Course {
    let mem = MemEnv::new(1);
    mem.pace(BLOCK, BLOCK);
    let heard = Heard::default();
    let options = [("workers", workers), ("memory_budget", memory)];
    let builder = Db::builder("/store").env(mem.env()).listener(Arc::new(heard.clone()));
    let builder = options.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
    let env = mem.env();
    let clock = env.clock();
    let db = builder.open().expect("the store opens");
    let options = [
        ("memtable_bytes", "32KiB"),
        ("file_bytes", "16KiB"),
        ("compression", "none"),
        ("compaction", "tiering:2"),
    ];
    let keyspace = db.keyspace_with("k", &options).expect("a keyspace");
    for write in 0..puts {
        for (_, value) in adaptation.iter().filter(|(at, _)| *at == write) {
            keyspace.set_option("adaptation", value).expect("a live option");
            heard.0.lock().push((0, 0, (*value).to_owned()));
        }
        let key = write.wrapping_mul(2_654_435_761);
        keyspace.put(key.to_be_bytes(), [write as u8; 120]).expect("a put");
        clock.sleep_micros(EACH);
    }
    let is_change = |what: &str| what.starts_with("merge slots ");
    let explained = db.explain().into_iter().filter(|d| is_change(&d.what)).map(|d| (d.what, d.reason));
    let explained = explained.collect();
    let metrics = db.metrics();
    db.close().expect("closed");
    let told = heard.0.lock().clone();
    Course { told, explained, slots: metrics.merge_slots, most_parallel: metrics.merges_most_parallel }
}

#[test]
fn slots_are_added_while_merges_gain_by_them() {
    let found = course("0", "512MiB", PUTS);
    assert!(found.told.len() >= 3, "{:?}", found.told);
    assert_eq!(found.told[0].0 as u64, FIRST);
    assert!(found.told.iter().any(|(_, slots, _)| *slots as u64 >= FIRST + 2), "{:?}", found.told);
    assert_eq!(found.told.last().map(|(_, slots, _)| *slots as u64), Some(found.slots));
    assert!(found.most_parallel > FIRST, "lanes that were added ran merges");
    for (before, slots, reason) in &found.told {
        assert_eq!(before.abs_diff(*slots), 1, "a step at a time");
        let verdict = if slots > before { "one more is tried" } else { "the last was not worth it" };
        assert!(reason.starts_with(verdict) && reason.contains("MiB/s"), "{reason}");
    }
    let told = |(before, slots, why): &(usize, usize, String)| {
        (format!("merge slots {before} -> {slots}"), why.clone())
    };
    assert_eq!(found.explained, found.told.iter().map(told).collect::<Vec<_>>());
    let again = course("0", "512MiB", PUTS);
    assert_eq!(again.told, found.told, "the same seed");
}

#[test]
fn a_number_that_was_set_stays() {
    let set = course("2", "512MiB", PUTS / 4);
    assert!(set.told.is_empty() && set.explained.is_empty());
    assert_eq!(set.slots, 2);
    assert!(set.most_parallel <= 2);
}

/// Nothing moves while a policy is frozen, and the search goes on from there when none is.
#[test]
fn the_number_stays_while_a_policy_is_frozen() {
    let frozen = course_with("0", "512MiB", PUTS / 2, &[(0, "frozen")]);
    assert_eq!((frozen.slots, frozen.told.len()), (FIRST, 1), "{:?}", frozen.told);
    let halves = course_with("0", "512MiB", PUTS, &[(PUTS / 3, "frozen"), (2 * (PUTS / 3), "on")]);
    let at = |what: &str| halves.told.iter().position(|(_, _, why)| why == what).expect("it was set");
    let (frozen, thawed) = (at("frozen"), at("on"));
    assert!(frozen > 0, "it moved before: {:?}", halves.told);
    assert_eq!(thawed, frozen + 1, "it moved while frozen: {:?}", halves.told);
    assert!(halves.told.len() > thawed + 1, "it moves again: {:?}", halves.told);
}

#[test]
fn little_memory_carries_few_slots() {
    // An eighth of it holds one slot's buffers.
    let small = course("0", "16MiB", PUTS / 4);
    assert_eq!((small.slots, small.told), (1, Vec::new()));
    assert_eq!(small.most_parallel, 1);
}
