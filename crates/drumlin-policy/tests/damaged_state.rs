//! A policy refuses a damaged saved state, or brings its numbers into bounds: it does not panic, and it saves the state
//! that it took.

use drumlin_policy::by_name;
use drumlin_sim::World;
use drumlin_types::contract::{CompactionPolicy, LimitView};

const FLUSH: u64 = 2 << 20;
const KEYS: u32 = 1 << 20;

fn world() -> World {
    World::new(LimitView { memtable_bytes: FLUSH, file_bytes: 16 * FLUSH, slots: 1, ..LimitView::default() })
}

/// Policies with a state, and the distance of the bytes at which numbers are replaced.
const POLICIES: [(&str, usize); 3] = [("arce", 8), ("vertiorizon", 3), ("vertiorizon:paper", 3)];

fn policy(name: &str) -> Box<dyn CompactionPolicy> {
    by_name(name).unwrap()
}

/// Returns the saved state of a policy that has seen a flush and a load.
fn state(name: &str) -> Vec<u8> {
    let (mut world, mut policy) = (world(), policy(name));
    if name != "arce" {
        (world.load.gets, world.load.writes, world.load.entry_bytes) = (1e5, 1e5, 1e3);
        (world.load.write_bytes, world.costs.probe_ns) = (1e8, 300.0);
    }
    world.flush(&mut *policy, 0, KEYS);
    world.settle(&mut *policy, 100).unwrap();
    policy.save()
}

/// Counts continue from the saved state, so a count at its maximum would overflow at the next flush.
#[test]
fn a_number_of_the_state_may_be_huge() {
    for (name, step) in POLICIES {
        let blob = state(name);
        for at in (1..blob.len() - 7).step_by(step) {
            for value in [1e300f64.to_le_bytes(), u64::MAX.to_le_bytes(), [0; 8]] {
                let mut bytes = blob.clone();
                bytes[at..at + 8].copy_from_slice(&value);
                let mut policy = policy(name);
                if policy.restore(&bytes).is_ok() {
                    let mut world = world();
                    for _ in 0..3 {
                        world.flush(&mut *policy, 0, KEYS);
                        world.now += 400_000_000;
                        world.decide(&mut *policy, 0);
                    }
                }
            }
        }
    }
}

/// Whatever number of the state is replaced, the policy that takes the state saves and restores it unchanged.
#[test]
fn a_state_that_is_taken_is_saved_unchanged() {
    const VALUES: [f64; 12] =
        [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, -1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for (name, step) in POLICIES {
        let blob = state(name);
        let mut taken = 0;
        for at in (1..blob.len() - 7).step_by(step) {
            // Flags decide what other numbers mean, so the number behind each one is replaced as well.
            for (value, next) in VALUES.into_iter().flat_map(|value| VALUES.map(|next| (value, next))) {
                let mut bytes = blob.clone();
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                if let Some(behind) = bytes.get_mut(at + 8..at + 16) {
                    behind.copy_from_slice(&next.to_le_bytes());
                }
                let [mut one, mut other] = [policy(name), policy(name)];
                if one.restore(&bytes).is_ok() {
                    taken += 1;
                    let saved = one.save();
                    other.restore(&saved).unwrap();
                    assert_eq!(other.save(), saved, "{name}: {value} and {next} at byte {at}");
                }
            }
        }
        assert!(taken > 1000, "{name}: {taken} states were taken");
    }
}
