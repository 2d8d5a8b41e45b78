//! The command line: selects a run, its seeds and its volume, and prints its failures.

use crate::failure::Failure;
use crate::runs::{
    admin, bank, bounds, corrupt, crash, fault, fsync, full, fuzz, meta, model, repair, repeat, segment,
    threads,
};
use crate::shrink::shrink;
use crate::tapes;
use crate::workload::{Taste, Workload, number};
use std::path::Path;
use std::process::ExitCode;

/// Arguments after the run's name.
pub struct Arguments<'a>(&'a [String]);

impl Arguments<'_> {
    /// Returns the text after `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|argument| argument == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    /// Returns the number after `name`.
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
            "usage: drumlin-torture tapes|model|meta|crash|fault|fsync|full|bounds|\
             segment|corrupt|repair|repeat|threads|admin|fuzz|bank|replay [--seed S] [--cases N] [--ops N]"
        );
        return ExitCode::FAILURE;
    };
    // A panic is a failure like any other: the run prints it once, with the command that reproduces it.
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
        "model" => model(seed, arguments),
        "meta" => meta(seed, arguments),
        "crash" => crash(seed, arguments),
        "corrupt" => corrupt(seed, arguments),
        "fault" => fault(seed, arguments),
        "fsync" => fsync(seed, arguments),
        "full" => full(seed, arguments),
        "bounds" => bounds(seed, arguments),
        "segment" => segment(seed, arguments),
        "repair" => repair(seed, arguments),
        "repeat" => repeat(seed, arguments),
        "threads" => threads(seed, arguments),
        "admin" => admin(seed, arguments),
        "bank" => bank(seed, arguments),
        "fuzz" => fuzz(seed, arguments),
        "tape" => tape(seed, arguments),
        "replay" => replay(arguments),
        "tapes" => replay_all(),
        _ => Err("unknown run".into()),
    }
}

fn model(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
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

fn meta(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", meta::TASTE.operations as u64)? as usize;
    let figures = meta::run(seed, arguments.or("--cases", 4)?, operations);
    println!("{}", figures.line());
    for (seed, failure) in &figures.failures {
        report("meta", *seed, operations, failure);
        // A wrong answer fails under a single option set; only a difference needs two.
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

fn corrupt(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let figures = corrupt::run(seed, arguments.or("--cases", 10_000)?);
    println!("{}", figures.line());
    Ok(passed_cases("corrupt", 500, &figures.failures))
}

fn fault(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    if let Some(alone) = arguments.number("--alone")? {
        let result = fault::one(seed, Some(alone));
        println!("{result:?}");
        return Ok(result.is_ok());
    }
    let figures = fault::run(seed, arguments.or("--cases", 4)?);
    println!("{}", figures.line());
    Ok(passed("fault", fault::OPERATIONS, &figures.failures))
}

fn fsync(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let figures = fsync::run(seed, arguments.or("--cases", 4)?);
    println!("{}", figures.line());
    passed("fsync", fsync::OPERATIONS, &figures.failures);
    Ok(figures.is_good())
}

fn full(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let figures = full::run(seed, arguments.or("--cases", 4)?);
    println!("{}", figures.line());
    Ok(passed("full", full::OPERATIONS, &figures.failures))
}

fn bounds(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let size = arguments.number("--size")?;
    let sizes = size.map_or(bounds::SIZES.to_vec(), |size| vec![size]);
    let figures = bounds::run(seed, arguments.or("--cases", 1)?, &sizes);
    println!("{}", figures.line());
    for (seed, size, failure) in &figures.failures {
        println!("bounds: {failure}\nrepro: cargo xtask sim bounds --seed {seed:#x} --size {size} --cases 1");
    }
    Ok(figures.failures.is_empty())
}

fn segment(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let figures = segment::run(seed, arguments.or("--cases", 1000)?);
    println!("{}", figures.line());
    Ok(passed("segment", 0, &figures.failures))
}

fn repair(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let figures = repair::run(seed, arguments.or("--cases", 2_000)?);
    println!("{}", figures.line());
    Ok(passed_cases("repair", 200, &figures.failures))
}

fn repeat(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", 300)? as usize;
    let figures = repeat::run(seed, arguments.or("--cases", 100)?, operations);
    println!("{}", figures.line());
    Ok(passed("repeat", operations, &figures.failures))
}

fn threads(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", threads::OPERATIONS as u64)? as usize;
    let figures = threads::run(seed, arguments.or("--cases", 10)?, operations);
    println!("{}", figures.line());
    Ok(passed("threads", operations, &figures.failures))
}

fn admin(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", admin::OPERATIONS as u64)? as usize;
    let figures = admin::run(seed, arguments.or("--cases", 20)?, operations);
    println!("{}", figures.line());
    Ok(passed("admin", operations, &figures.failures))
}

/// Prints a workload of the metamorphic run as a tape.
fn tape(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", meta::TASTE.operations as u64)? as usize;
    println!("{}", meta::workload(seed, arguments.or("--set", 0)?, operations).tape());
    Ok(true)
}

/// Replays one tape.
fn replay(arguments: &Arguments<'_>) -> Result<bool, String> {
    let path = arguments.0.first().ok_or("which tape?")?;
    let text = tapes::read(Path::new(path))?;
    let every = arguments.or("--every", 1)? as usize;
    tapes::replay(&text, every).map_err(|failure| failure.to_string()).map(|()| true)
}

/// Replays all kept tapes.
fn replay_all() -> Result<bool, String> {
    let count = tapes::replay_all(Path::new(tapes::REGRESS));
    println!("tapes: replayed {}, failed {}", count.as_ref().unwrap_or(&0), u8::from(count.is_err()));
    count.map(|_| true).map_err(|failure| failure.to_string())
}

fn crash(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    let operations = arguments.or("--ops", crash::TASTE.operations as u64)? as usize;
    if let Some(index) = arguments.number("--at")? {
        let image = arguments.text("--image").unwrap_or("None");
        let then = arguments.text("--then").unwrap_or_default();
        let cut = crash::read_cut(index, image, then).ok_or("that is no image, or no cut of a recovery")?;
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

/// Runs the fuzz command. `--target NAME --case N` repeats one case, `--target NAME` runs one target, and `--list`
/// prints all targets with their costs.
fn fuzz(seed: u64, arguments: &Arguments<'_>) -> Result<bool, String> {
    if arguments.0.iter().any(|argument| argument == "--list") {
        crate::fuzz::targets::all().iter().for_each(|target| println!("{} {}", target.name, target.cost));
        return Ok(true);
    }
    let only = arguments.text("--target");
    if let Some(name) = only {
        crate::fuzz::by_name(name).ok_or_else(|| format!("there is no target {name}"))?;
    }
    let (first, cases) = match arguments.number("--case")? {
        Some(case) => (case, 1),
        None => (seed.wrapping_mul(fuzz::SEED_STEP), arguments.or("--cases", 10_000)?),
    };
    let figures = fuzz::run(first, cases, only);
    println!("{}", figures.line());
    for (target, case, failure) in &figures.failures {
        println!("fuzz: {failure}\nrepro: cargo xtask sim fuzz --target {target} --case {case:#x}");
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
    let wanted = arguments.text("--hunt").unwrap_or("Model");
    let hunt = bank::Hunt::ALL
        .into_iter()
        .find(|hunt| format!("{hunt:?}") == wanted)
        .ok_or("there is no such hunt")?;
    let cases = arguments.or("--cases", bank::BUDGET)?;
    match bank::hunt(name, hunt, seed, cases, arguments.number("--alone")?) {
        (cases, Some(failure)) => {
            let words: String = failure.to_string().chars().take(120).collect();
            let part = failure.part.map_or_else(String::new, |part| format!(", part {part}"));
            println!("{name}: found by {hunt:?} in case {cases}{part}: {words}");
            std::process::exit(bank::FOUND);
        }
        (cases, None) => println!("{name}: not found by {hunt:?} in {cases} cases"),
    }
    Ok(true)
}

/// Prints the failures of a run of programs, each with the command that repeats it; returns whether there are none.
fn passed(run: &str, operations: usize, failures: &[(u64, Failure)]) -> bool {
    failures.iter().for_each(|(seed, failure)| report(run, *seed, operations, failure));
    failures.is_empty()
}

/// Prints the failures of a run of cases, which are repeated `cases` at a time; returns whether there are none.
fn passed_cases(run: &str, cases: u64, failures: &[(u64, Failure)]) -> bool {
    for (seed, failure) in failures {
        println!("{run}: {failure}\nrepro: cargo xtask sim {run} --seed {seed:#x} --cases {cases}");
    }
    failures.is_empty()
}

fn report(run: &str, seed: u64, operations: usize, failure: &Failure) {
    println!("{run}: {failure}");
    println!("repro: cargo xtask sim {run} --seed {seed:#x} --cases 1 --ops {operations}");
}

fn print_shrunk(workload: &Workload, failure: &Failure, run: impl Fn(&Workload) -> Result<(), Failure>) {
    let (small, failure) = shrink(workload, failure, 3000, run);
    println!("shrunk, {failure}:\n{}", small.tape());
}
