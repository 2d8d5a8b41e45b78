//! Brute-force model of the pipeline on the scheduler's own code. Seeded mistakes prove that the comparison works:
//! each must be caught in a fair share of schedules.
//!
//! `cargo run --release -p drumlin-policy --example schedules -- 1000000` runs any number of schedules.

#[path = "../../../drumlin-types/tests/model/content.rs"]
mod content;
#[path = "../../../drumlin-types/tests/model/reader.rs"]
mod reader;
mod store;
mod world;

use store::{Mistake, Tally};
use world::schedule;

/// Returns the first seed and the number of schedules: 1000, or the value of `DRUMLIN_SCHEDULES=COUNT` or
/// `COUNT@FIRST`.
fn range() -> (u64, u64) {
    let Ok(text) = std::env::var("DRUMLIN_SCHEDULES") else { return (0, 1000) };
    let (count, first) = text.split_once('@').unwrap_or((&text, "0"));
    let number = |text: &str| text.parse().expect("DRUMLIN_SCHEDULES is COUNT or COUNT@FIRST");
    (number(first), number(count))
}

#[test]
fn every_read_is_right_after_every_event() {
    let mut tally = Tally::default();
    let (first, schedules) = range();
    for seed in first..first + schedules {
        schedule(seed, Mistake::None, &mut tally).unwrap_or_else(|e| panic!("{e}"));
    }
    println!("schedules={schedules} {tally:?}");
    // A test run that meets none of the interesting cases proves nothing.
    for (what, count) in tally.figures() {
        assert!(count >= schedules / 4, "too few: {what} {count}");
    }
}

/// Returns the percentage of schedules in which a mistake is detected.
fn caught(mistake: Mistake) -> u64 {
    let schedules = 200;
    let wrong =
        (0..schedules).filter(|&seed| schedule(seed, mistake, &mut Tally::default()).is_err()).count();
    println!("{mistake:?}: caught in {wrong} of {schedules} schedules");
    100 * wrong as u64 / schedules
}

#[test]
fn installing_in_any_order_is_caught() {
    assert!(caught(Mistake::NoWaits) >= 40);
}

#[test]
fn forgetting_the_age_test_is_caught() {
    assert!(caught(Mistake::NoAgeTest) >= 45);
}

#[test]
fn dropping_blind_to_claimed_files_is_caught() {
    assert!(caught(Mistake::BlindDrop) >= 7);
}

#[test]
fn leaving_dependants_alone_is_caught() {
    assert!(caught(Mistake::NoRedirect) >= 15);
}

#[test]
fn waiting_for_a_part_alone_is_caught() {
    // Few pieces are both divided and waited for by a piece that finishes before all parts do.
    let is_caught = |seed: &u64| schedule(*seed, Mistake::FirstPart, &mut Tally::default()).is_err();
    assert!((0..2000).any(|seed| is_caught(&seed)));
}
