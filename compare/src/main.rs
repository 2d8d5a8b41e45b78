//! Benchmarks of Drumlin beside other key-value engines: `drumlin bench` with more engines compiled in.
//!
//! This is a separate program with its own lock file, because RocksDB takes long to compile and is not part of any
//! build of Drumlin. Every engine allocates from one jemalloc: RocksDB's crate replaces `malloc` with it, and it is
//! also the global allocator of this program. Each adapter is one file that implements
//! `drumlin_bench::engine::Engine`. Its essay explains which options it sets and why. `drumlin-compare options
//! ENGINE` prints the options in effect, as the engine reports them.

#[cfg(feature = "fjall")]
mod fjall_engine;
#[cfg(feature = "lmdb")]
mod lmdb_engine;
#[cfg(feature = "redb")]
mod redb_engine;
#[cfg(feature = "rocksdb")]
mod rocksdb_engine;
#[cfg(feature = "rocksdb")]
mod rocksdb_log;
#[cfg(feature = "rocksdb")]
mod rocksdb_options;
mod symbols;

use clap::Parser;
use drumlin_bench::command::args::BenchArgs;
use drumlin_bench::command::{self, Program};
use drumlin_bench::drumlin_engine::Drumlin;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Benchmark Drumlin beside other key-value engines
///
/// Results go to stdout as a table; progress and warnings go to stderr. Every result of the store is verified,
/// and a wrong one ends the run without numbers.
///
/// Exit status: 0 success, 1 error or wrong result, 2 bad usage, 3 gate failed, 4 too few usable rounds.
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
        &rocksdb_options::RocksDb { name: "rocksdb", form: rocksdb_options::Form::Default },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-tuned", form: rocksdb_options::Form::Tuned },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-pinned", form: rocksdb_options::Form::Pinned },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-universal", form: rocksdb_options::Form::Universal },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-deferred", form: rocksdb_options::Form::Deferred },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-warm", form: rocksdb_options::Form::Warm },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-blob", form: rocksdb_options::Form::Blob },
        #[cfg(feature = "rocksdb")]
        &rocksdb_options::RocksDb { name: "rocksdb-blob-forced", form: rocksdb_options::Form::BlobForced },
        #[cfg(feature = "fjall")]
        &fjall_engine::Fjall,
        #[cfg(feature = "redb")]
        &redb_engine::Redb,
        #[cfg(feature = "lmdb")]
        &lmdb_engine::Lmdb,
    ],
    prefix: &[],
    allocator: "jemalloc",
    profiles: include_str!("../Cargo.toml"),
};

fn main() -> ExitCode {
    command::run(&Cli::parse().bench, &PROGRAM).exit_code()
}
