//! Tests of the number of compaction slots of an open store, with a simulated duration of background work. The number
//! is tuned by measurement when the option is 0, depends only on the seed, and stays fixed when it is set.

use drumlin::env::MemEnv;
use drumlin::env::sync::{Arc, Mutex};
use drumlin::{Db, Event, EventListener};

const PUTS: u32 = 24_000;
/// Virtual nanoseconds per block of 4 KiB, slow enough for many intervals of two seconds.
const BLOCK: u64 = 20_000_000;
/// Virtual microseconds between two puts.
const EACH: u64 = 1000;
/// Initial number of slots on the four cores of the simulated machine.
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
    /// The changes as events and, in the next field, as `explain` shows them.
    told: Vec<(usize, usize, String)>,
    explained: Vec<(String, String)>,
    slots: u64,
    most_parallel: u64,
}

/// Writes faster than compactions can process.
fn course(workers: &str, memory: &str, puts: u32) -> Course {
    course_with(workers, memory, puts, &[])
}

/// Runs [`course`] and changes the option `adaptation` of the keyspace before the given puts.
fn course_with(workers: &str, memory: &str, puts: u32, adaptation: &[(u32, &str)]) -> Course {
    let mem = MemEnv::new(1);
    mem.pace(BLOCK, BLOCK);
    let heard = Heard::default();
    let options = [("compaction_slots", workers), ("memory_budget", memory)];
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
    let is_change = |what: &str| what.starts_with("compaction slots ");
    let explained = db.explain().into_iter().filter(|d| is_change(&d.what)).map(|d| (d.what, d.reason));
    let explained = explained.collect();
    let metrics = db.metrics();
    db.close().expect("closed");
    let told = heard.0.lock().clone();
    Course {
        told,
        explained,
        slots: metrics.compaction_slots,
        most_parallel: metrics.compactions_max_parallel,
    }
}

#[test]
fn slots_are_added_while_merges_gain_by_them() {
    let found = course("0", "512MiB", PUTS);
    assert!(found.told.len() >= 3, "{:?}", found.told);
    assert_eq!(found.told[0].0 as u64, FIRST);
    assert!(found.told.iter().any(|(_, slots, _)| *slots as u64 >= FIRST + 2), "{:?}", found.told);
    assert_eq!(found.told.last().map(|(_, slots, _)| *slots as u64), Some(found.slots));
    assert!(found.most_parallel > FIRST, "the added lanes ran no compactions");
    for (before, slots, reason) in &found.told {
        assert_eq!(before.abs_diff(*slots), 1, "the number must change in steps of one");
        let verdict =
            if slots > before { "one more slot is tried" } else { "the last slot gained too little" };
        assert!(reason.starts_with(verdict) && reason.contains("MiB/s"), "{reason}");
    }
    let told = |(before, slots, why): &(usize, usize, String)| {
        (format!("compaction slots {before} -> {slots}"), why.clone())
    };
    assert_eq!(found.explained, found.told.iter().map(told).collect::<Vec<_>>());
    let again = course("0", "512MiB", PUTS);
    assert_eq!(again.told, found.told, "the same seed gave another result");
}

#[test]
fn a_number_that_was_set_stays() {
    let set = course("2", "512MiB", PUTS / 4);
    assert!(set.told.is_empty() && set.explained.is_empty());
    assert_eq!(set.slots, 2);
    assert!(set.most_parallel <= 2);
}

/// The number of slots does not change while a policy is frozen. The tuning continues when no policy is frozen.
#[test]
fn the_number_stays_while_a_policy_is_frozen() {
    let frozen = course_with("0", "512MiB", PUTS / 2, &[(0, "frozen")]);
    assert_eq!((frozen.slots, frozen.told.len()), (FIRST, 1), "{:?}", frozen.told);
    let halves = course_with("0", "512MiB", PUTS, &[(PUTS / 3, "frozen"), (2 * (PUTS / 3), "on")]);
    let at = |what: &str| halves.told.iter().position(|(_, _, why)| why == what).expect("it was set");
    let (frozen, thawed) = (at("frozen"), at("on"));
    assert!(frozen > 0, "no change before the freeze: {:?}", halves.told);
    assert_eq!(thawed, frozen + 1, "a change while frozen: {:?}", halves.told);
    assert!(halves.told.len() > thawed + 1, "no change after the freeze: {:?}", halves.told);
}

#[test]
fn little_memory_carries_few_slots() {
    // An eighth of this memory holds the buffers of one slot.
    let small = course("0", "16MiB", PUTS / 4);
    assert_eq!((small.slots, small.told), (1, Vec::new()));
    assert_eq!(small.most_parallel, 1);
}
