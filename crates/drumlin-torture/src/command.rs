//! The command line: which run, with which seeds and volumes, and what is printed when it fails.

use crate::failure::Failure;
use crate::lane;
use crate::runs::{bank, corrupt, crash, meta, model, repeat};
use crate::shrink::shrink;
use crate::workload::{Taste, Workload, number};
use drumlin_env::ImageMode;
use std::process::ExitCode;

/// What follows the run's name.
pub struct Arguments<'a>(&'a [String]);

impl Arguments<'_> {
    /// The text after `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|argument| argument == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    /// The number after `name`.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.text(name).map(number).transpose()
    }

    fn or(&self, name: &str, default: u64) -> Result<u64, String> {
        Ok(self.number(name)?.unwrap_or(default))
    }
}

/// Runs the program with these arguments.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((run, rest)) = arguments.split_first() else {
        eprintln!(
            "usage: drumlin-torture merge|nightly|tapes|model|meta|crash|corrupt|repeat|bank|replay [--seed S] [--cases N] [--ops N]"
        );
        return ExitCode::FAILURE;
    };
    // Panics are failures of a run like others; they are printed once, with how to see them again.
    std::panic::set_hook(Box::new(|_| {}));
    match dispatch(run, &Arguments(rest)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("drumlin-torture {run}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(run: &str, arguments: &Arguments<'_>) -> Result<bool, String> {
    let seed = arguments.or("--seed", 1)?;
    match run {
        "model" => {
            let operations = arguments.or("--ops", model::TASTE.operations as u64)? as usize;
            let figures = model::run(seed, arguments.or("--cases", 100)?, operations);
            println!("{}", figures.line());
            for (seed, failure) in figures.failures.iter().take(1) {
                let workload = Workload::generate("model", *seed, &Taste { operations, ..model::TASTE });
                report("model", *seed, operations, failure);
                print_shrunk(&workload, failure, |workload| model::one(workload).map(drop));
            }
            Ok(figures.failures.is_empty())
        }
        "crash" => crash(seed, arguments),
        "corrupt" => {
            let figures = corrupt::run(seed, arguments.or("--cases", 10_000)?);
            println!("{}", figures.line());
            for (seed, failure) in &figures.failures {
                println!("corrupt: {failure}\nrepro: cargo xtask sim corrupt --seed {seed:#x} --cases 500");
            }
            Ok(figures.failures.is_empty())
        }
        "bank" => bank(seed, arguments),
        "merge" => lane::run(&lane::MERGE, seed),
        "nightly" => {
            lane::run(&lane::NIGHTLY, arguments.number("--seed")?.unwrap_or_else(lane::seed_of_the_day))
        }
        "replay" => {
            let path = arguments.0.first().ok_or("which tape?")?;
            let text = crate::tapes::read(std::path::Path::new(path))?;
            let every = arguments.or("--every", 1)? as usize;
            crate::tapes::replay(&text, every).map_err(|failure| failure.to_string()).map(|()| true)
        }
        "tapes" => {
            let count = crate::tapes::replay_all(std::path::Path::new(crate::tapes::REGRESS));
            println!("tapes: replayed {}, failed {}", count.as_ref().unwrap_or(&0), u8::from(count.is_err()));
            count.map(|_| true).map_err(|failure| failure.to_string())
        }
        "meta" => {
            let operations = arguments.or("--ops", meta::TASTE.operations as u64)? as usize;
            let figures = meta::run(seed, arguments.or("--cases", 4)?, operations);
            println!("{}", figures.line());
            for (seed, failure) in &figures.failures {
                report("meta", *seed, operations, failure);
                // A wrong answer shows without the other sets.
                for set in 0..meta::SETS {
                    let workload = meta::workload(*seed, set, operations);
                    let alone = |workload: &Workload| model::closely(workload, usize::MAX).map(drop);
                    if let Err(failure) = alone(&workload) {
                        print_shrunk(&workload, &failure, alone);
                        break;
                    }
                }
            }
            Ok(figures.failures.is_empty())
        }
        "tape" => {
            let operations = arguments.or("--ops", meta::TASTE.operations as u64)? as usize;
            println!("{}", meta::workload(seed, arguments.or("--set", 0)?, operations).tape());
            Ok(true)
        }
        "repeat" => {
            let operations = arguments.or("--ops", 300)? as usize;
            let figures = repeat::run(seed, arguments.or("--cases", 100)?, operations);
            println!("{}", figures.line());
            figures.failures.iter().for_each(|(seed, failure)| report("repeat", *seed, operations, failure));
            Ok(figures.failures.is_empty())
        }
        _ => Err("there is no such run".into()),
    }
}

fn crash(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", crash::TASTE.operations as u64)? as usize;
    if let Some(index) = arguments.number("--at")? {
        let name = arguments.text("--image").unwrap_or("None").to_owned();
        let mode = ImageMode::ALL.into_iter().find(|mode| format!("{mode:?}") == name);
        let mode = mode.ok_or_else(|| format!("there is no image {name}"))?;
        let cut = crash::Cut { index, mode, then: arguments.number("--then")? };
        let result = crash::again(&crash::workload(seed, operations), &cut);
        println!("{result:?}");
        return Ok(result.is_ok());
    }
    let figures = crash::run(seed, arguments.or("--cases", 100)?, operations);
    println!("{}", figures.line());
    for (seed, failure) in figures.failures.iter().take(2) {
        report("crash", *seed, operations, failure);
    }
    Ok(figures.failures.is_empty())
}

fn bank(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let Some(name) = arguments.text("--bug") else {
        let figures = bank::run(seed)?;
        figures.notes.iter().for_each(|note| println!("{note}"));
        println!("{}", figures.line());
        return Ok(figures.is_good());
    };
    let hunts = [bank::Hunt::Model, bank::Hunt::Crash, bank::Hunt::Corrupt];
    let wanted = arguments.text("--hunt").unwrap_or("Model");
    let hunt = hunts.into_iter().find(|hunt| format!("{hunt:?}") == wanted).ok_or("there is no such hunt")?;
    match bank::hunt(name, hunt, seed) {
        (cases, Some(failure)) => {
            let words: String = failure.to_string().chars().take(120).collect();
            println!("{name}: found by {hunt:?} in case {cases}: {words}");
            std::process::exit(FOUND);
        }
        (cases, None) => println!("{name}: not found by {hunt:?} in {cases} cases"),
    }
    Ok(true)
}

/// Exit code of a hunt that found something.
const FOUND: i32 = 3;

fn report(run: &str, seed: u64, operations: usize, failure: &Failure) {
    println!("{run}: {failure}");
    println!("repro: cargo xtask sim {run} --seed {seed:#x} --cases 1 --ops {operations}");
}

fn print_shrunk(workload: &Workload, failure: &Failure, run: impl Fn(&Workload) -> Result<(), Failure>) {
    let (small, failure) = shrink(workload, failure, 3000, run);
    println!("shrunk, {failure}:\n{}", small.tape());
}
