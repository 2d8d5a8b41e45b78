//! Runs random schedules of the pipeline against the brute-force model, and prints the event counts.
//!
//! ```text
//! cargo run --release -p drumlin-policy --example schedules -- COUNT [FIRST]
//! ```

#[path = "../../drumlin-types/tests/model/content.rs"]
mod content;
#[path = "../../drumlin-types/tests/model/reader.rs"]
mod reader;
#[path = "../tests/schedules/store.rs"]
mod store;
#[path = "../tests/schedules/world.rs"]
mod world;

use std::process::ExitCode;
use store::{Mistake, Tally};

/// Number of schedules for each mistake, from which the caught share is computed.
const OF_MISTAKE: u64 = 2000;

/// Number of schedules between two progress lines.
const EACH: u64 = 50_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (count, first) = match (arguments.next(), arguments.next()) {
        (Some(Ok(count)), None) => (count, 0),
        (Some(Ok(count)), Some(Ok(first))) => (count, first),
        _ => {
            eprintln!("usage: schedules COUNT [FIRST]");
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::default();
    for seed in first..first + count {
        if let Err(what) = world::schedule(seed, Mistake::None, &mut tally) {
            println!("{what}");
            return ExitCode::FAILURE;
        }
        let done = seed + 1 - first;
        if done.is_multiple_of(EACH) && done < count {
            println!("so far={done} events={} reads={}", tally.events, tally.reads);
        }
    }
    let figures: Vec<String> =
        tally.figures().iter().map(|(name, count)| format!("{name}={count}")).collect();
    println!("schedules={count} first={first} wrong=0 {}", figures.join(" "));
    for mistake in
        [Mistake::NoWaits, Mistake::NoAgeTest, Mistake::BlindDrop, Mistake::NoRedirect, Mistake::FirstPart]
    {
        let mut wrong = 0;
        for seed in 0..OF_MISTAKE {
            wrong += u64::from(world::schedule(seed, mistake, &mut Tally::default()).is_err());
        }
        println!("mistake={mistake:?} schedules={OF_MISTAKE} caught={wrong}");
    }
    ExitCode::SUCCESS
}
