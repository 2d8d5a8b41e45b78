//! ARCE refuses a damaged saved state, or brings its numbers into bounds: it does not panic, and it saves the state
//! that it took.

use drumlin_policy::by_name;
use drumlin_sim::World;
use drumlin_types::contract::{CompactionPolicy, LimitView};

const FLUSH: u64 = 2 << 20;
const KEYS: u32 = 1 << 20;

fn world() -> World {
    World::new(LimitView { memtable_bytes: FLUSH, file_bytes: 16 * FLUSH, slots: 1, ..LimitView::default() })
}

fn arce() -> Box<dyn CompactionPolicy> {
    by_name("arce").unwrap()
}

/// Returns the saved state of a policy that has seen a flush.
fn state() -> Vec<u8> {
    let (mut world, mut policy) = (world(), arce());
    world.flush(&mut *policy, 0, KEYS);
    world.settle(&mut *policy, 100).unwrap();
    policy.save()
}

/// Counts continue from the saved state, so a count at its maximum would overflow at the next flush.
#[test]
fn a_number_of_the_state_may_be_huge() {
    let blob = state();
    for at in (1..blob.len() - 7).step_by(8) {
        let mut bytes = blob.clone();
        bytes[at..at + 8].copy_from_slice(&1e300f64.to_le_bytes());
        let mut policy = arce();
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

/// Whatever number of the state is replaced, the policy that takes the state saves and restores it unchanged.
#[test]
fn a_state_that_is_taken_is_saved_unchanged() {
    const VALUES: [f64; 12] =
        [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, -1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let blob = state();
    let mut taken = 0;
    for at in (1..blob.len() - 7).step_by(8) {
        // Flags decide what other numbers mean, so the number behind each one is replaced as well.
        for (value, next) in VALUES.into_iter().flat_map(|value| VALUES.map(|next| (value, next))) {
            let mut bytes = blob.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            if let Some(behind) = bytes.get_mut(at + 8..at + 16) {
                behind.copy_from_slice(&next.to_le_bytes());
            }
            let [mut one, mut other] = [arce(), arce()];
            if one.restore(&bytes).is_ok() {
                taken += 1;
                let saved = one.save();
                other.restore(&saved).unwrap();
                assert_eq!(other.save(), saved, "{value} and {next} at byte {at}");
            }
        }
    }
    assert!(taken > 1000, "{taken} states were taken");
}
