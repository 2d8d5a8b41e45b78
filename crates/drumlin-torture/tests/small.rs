//! The runs at small volumes, so that `cargo test` alone covers them all. The lanes run them at large volumes.

use drumlin_torture::runs::{admin, corrupt, crash, meta, model, repair, repeat, threads};
use drumlin_torture::tapes;
use std::path::Path;

#[test]
fn answers_are_the_oracles() {
    let figures = model::run(0x51, 12, 1000);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
    assert_eq!((figures.seeds, figures.tally.operations), (12, 12_000));
    assert!(figures.tally.installs > 500 && figures.tally.swaps > 100, "{}", figures.line());
}

#[test]
fn what_a_crash_leaves_is_a_prefix() {
    let figures = crash::run(0x51, 10, 150);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
    assert!(figures.images() > 800, "{}", figures.line());
}

#[test]
fn no_option_set_changes_an_answer() {
    let figures = meta::run(0x51, 1, 600);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}

#[test]
fn damage_is_an_error_or_the_truth() {
    let figures = corrupt::run(0x51, 1500);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}

#[test]
fn what_is_repaired_is_the_truth_as_far_as_it_says() {
    let figures = repair::run(0x51, 600);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}

#[test]
fn the_same_seed_makes_the_same_calls() {
    let figures = repeat::run(0x51, 6, 300);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}

#[test]
fn what_was_fixed_stays_fixed() {
    let replayed = tapes::replay_all(Path::new(tapes::REGRESS));
    assert!(replayed.as_ref().is_ok_and(|count| *count >= 4), "{replayed:?}");
}

#[test]
fn administration_by_threads_is_in_force() {
    let figures = admin::run(0x51, 6, admin::OPERATIONS);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}

#[test]
fn one_order_explains_what_threads_saw() {
    let figures = threads::run(0x51, 2, 8_000);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}
