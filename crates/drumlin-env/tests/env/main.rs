//! Tests of the crate's public API: the two worlds agree, and the simulated world loses data, fails and checks the
//! order as documented.

mod agreement;
mod faults;
mod images;
mod order;
mod worlds;

use std::path::Path;

use drumlin_env::{Env, File, FileKind, MemEnv};

/// Creates a stepped world with a durable directory `d`.
fn world() -> (MemEnv, Env) {
    let mem = MemEnv::new(1);
    let env = mem.env();
    env.fs().create_dir_all(Path::new("d")).unwrap();
    env.fs().sync_dir(Path::new("")).unwrap();
    (mem, env)
}

/// Creates a file in `d` with this content; syncs nothing.
fn file(env: &Env, name: &str, kind: FileKind, content: &[u8]) -> File {
    let file = env.fs().create(&Path::new("d").join(name), kind).unwrap();
    file.write_at(0, content).unwrap();
    file
}

/// Creates a durable file in `d`.
fn durable(env: &Env, name: &str, kind: FileKind, content: &[u8]) -> File {
    let file = file(env, name, kind, content);
    file.sync_data().unwrap();
    env.fs().sync_dir(Path::new("d")).unwrap();
    file
}
