//! The public surface of the crate: the two worlds agree, and the simulated one forgets, fails and watches as
//! it says.

mod agreement;
mod faults;
mod images;
mod order;
mod worlds;

use std::path::Path;

use drumlin_env::{Env, File, FileKind, MemEnv};

/// A stepped world with a durable directory `d`.
fn world() -> (MemEnv, Env) {
    let mem = MemEnv::new(1);
    let env = mem.env();
    env.fs().create_dir_all(Path::new("d")).unwrap();
    env.fs().sync_dir(Path::new("")).unwrap();
    (mem, env)
}

/// A file in `d` with this content; nothing is synced.
fn file(env: &Env, name: &str, kind: FileKind, content: &[u8]) -> File {
    let file = env.fs().create(&Path::new("d").join(name), kind).unwrap();
    file.write_at(0, content).unwrap();
    file
}

/// A durable file in `d`.
fn durable(env: &Env, name: &str, kind: FileKind, content: &[u8]) -> File {
    let file = file(env, name, kind, content);
    file.sync_data().unwrap();
    env.fs().sync_dir(Path::new("d")).unwrap();
    file
}
