//! Prints the cost of an ARCE policy decision that includes a plan: `cargo bench -p drumlin --bench decide --
//! [runs]`.
//!
//! The inputs are those of [`drumlin_sim::desk`]. The regression gate counts the instructions of some of
//! them.

use drumlin_env::Env;
use drumlin_sim::desk::{Case, Desk};
use std::hint::black_box;

const TIMES: u64 = 500;

fn measure(label: &str, desk: &Desk) {
    let clock = Env::os();
    let (mut nanos, mut takes) = (u64::MAX, 0);
    for _ in 0..TIMES {
        let start = clock.clock().monotonic_nanos();
        takes = black_box(black_box(desk).decide()).expect("a decision");
        nanos = nanos.min(clock.clock().monotonic_nanos() - start);
    }
    println!("  {label:<32} {:7.1} us, {takes} files taken", nanos as f64 / 1e3);
}

fn main() {
    let runs = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(200);
    println!("one decision over {runs} runs, the quickest of {TIMES}");
    for (covers, partial) in [("full", false), ("partial", true)] {
        for (needs, must) in [("elective", false), ("must", true)] {
            for (prices, priced) in [("", false), (", priced", true)] {
                let desk = Desk::new(runs, Case { partial, must, priced }).expect("a desk");
                measure(&format!("{covers} covers, {needs}{prices}"), &desk);
            }
        }
    }
}
