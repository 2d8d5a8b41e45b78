//! `drumlin-torture RUN [--seed S] [--cases N] [--ops N]`: runs of the lanes, each with its figure line.

use drumlin_torture::runs::model;
use drumlin_torture::shrink::shrink;
use drumlin_torture::workload::{Taste, Workload, number};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |name: &str, default: u64| args.iter().position(|a| a == name).map_or(default, |i| number(&args[i + 1]).unwrap());
    let ops = get("--ops", 2000) as usize;
    let figures = model::run(get("--seed", 1), get("--cases", 100), ops);
    println!("{}", figures.line());
    for (seed, failure) in figures.failures.iter().take(2) {
        println!("{seed:#x} {failure}");
        let w = Workload::generate("model", *seed, &Taste { operations: ops, ..model::TASTE });
        std::panic::set_hook(Box::new(|_| {}));
        let (small, f) = shrink(&w, failure, 3000, |w| model::one(w).map(drop));
        println!("{}\n{f}", small.tape());
    }
    ExitCode::SUCCESS
}
