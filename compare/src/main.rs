//! Drumlin beside other key-value engines: the benchmarks of `drumlin bench` with more engines compiled in.
//!
//! A program of its own with its own lock file, for RocksDB takes long to compile and belongs in no build of Drumlin.
//! Every engine allocates through one jemalloc: RocksDB's crate replaces `malloc` by it, and the global allocator of
//! this program is the same. Each adapter is one file behind `drumlin_bench::engine::Engine`; what it sets and why is in
//! its essay, and `drumlin-compare options ENGINE` prints what the engine itself says is in effect.

#[cfg(feature = "fjall")]
mod fjall_engine;
#[cfg(feature = "redb")]
mod redb_engine;
#[cfg(feature = "rocksdb")]
mod rocksdb_engine;
#[cfg(feature = "rocksdb")]
mod rocksdb_log;
#[cfg(feature = "rocksdb")]
mod rocksdb_options;

use clap::Parser;
use drumlin_bench::command::args::BenchArgs;
use drumlin_bench::command::{self, Program};
use drumlin_bench::drumlin_engine::Drumlin;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measure Drumlin beside other key-value engines
#[derive(Parser)]
#[command(name = "drumlin-compare", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

const PROGRAM: Program = Program {
    engines: &[
        &Drumlin,
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb", tuned: false },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-tuned", tuned: true },
        #[cfg(feature = "fjall")]
        &fjall_engine::Fjall,
        #[cfg(feature = "redb")]
        &redb_engine::Redb,
    ],
    prefix: &[],
    allocator: "jemalloc",
};

fn main() -> ExitCode {
    command::run(&Cli::parse().bench, &PROGRAM).exit_code()
}
