//! Counting, traces, clock, randomness and threads of the simulated world.

use std::collections::BTreeSet;
use std::path::Path;

use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Env, FileKind, ImageMode, MemEnv, Op};

use crate::{durable, file, world};

#[test]
fn the_same_calls_leave_the_same_trace() {
    let run = |content: &[u8], name: &str| {
        let (mem, env) = world();
        durable(&env, name, FileKind::Log, content);
        mem.trace_hash()
    };
    let base = run(b"bytes", "file");
    assert_eq!(base, run(b"bytes", "file"));
    let others = [run(b"byteS", "file"), run(b"bytes", "File"), run(b"bytes\0", "file"), run(b"", "file")];
    assert!(others.iter().all(|&other| other != base));
}

#[test]
fn every_call_has_an_index_and_a_site() {
    let (mem, env) = world();
    let before = mem.io_index();
    let log = env.fs().create(Path::new("d/log"), FileKind::Log).unwrap();
    let line = line!() + 2;
    for _ in 0..3 {
        log.write_at(0, b"x").unwrap();
    }
    assert_eq!(mem.io_index(), before + 4);
    let sites = mem.sites();
    let writes: Vec<_> = sites.iter().filter(|(site, _)| site.op == Op::Write).collect();
    assert_eq!(writes.len(), 1);
    let (site, count) = writes[0];
    assert_eq!((site.kind, *count, site.at.line()), (Some(FileKind::Log), 3, line));
    assert!(site.at.file().ends_with("worlds.rs"));
}

#[test]
fn a_look_from_outside_is_not_counted() {
    let (mem, env) = world();
    durable(&env, "file", FileKind::Table, b"bytes");
    let (index, trace) = (mem.io_index(), mem.trace_hash());
    let path = Path::new("d/file");
    mem.fail_at(index, 5);
    assert_eq!(mem.peek(path).unwrap(), b"bytes");
    assert_eq!(mem.peek(Path::new("d/none")), None);
    assert_eq!(mem.kind_of(path), Some(FileKind::Table));
    assert!(mem.patch(path, 1, b"Y") && mem.truncate_file(path, 3));
    assert!(!mem.patch(Path::new("none"), 0, b""));
    mem.plant(Path::new("e/f/planted"), FileKind::Log, b"orphan");
    assert_eq!(mem.files(), [path, Path::new("e/f/planted")]);
    mem.snapshot();
    assert_eq!((mem.io_index(), mem.trace_hash()), (index, trace));
    let image = mem.snapshot().image(ImageMode::None, 0);
    assert_eq!(image.peek(path).unwrap(), b"bYt", "damage is on stable storage");
    assert_eq!(image.peek(Path::new("e/f/planted")).unwrap(), b"orphan");
}

#[test]
fn a_recorder_chooses_the_pictures() {
    let (mem, env) = world();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    // Snapshot the first write of each call site.
    mem.record(move |call| {
        record.lock().push((call.index, call.path.to_owned()));
        call.seen_before == 0 && call.site.op == Op::Write
    });
    let first = mem.io_index();
    for name in ["a", "b", "c"] {
        file(&env, name, FileKind::Log, b"x");
    }
    assert_eq!(seen.lock().len(), 6);
    assert_eq!(seen.lock()[1], (first + 1, Path::new("d/a").to_owned()));
    let taken = mem.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].0, first + 1);
    assert_eq!(taken[0].1.image(ImageMode::All, 0).peek(Path::new("d/a")).unwrap(), b"");
}

#[test]
fn time_moves_when_told() {
    let (mem, env) = world();
    let clock = env.clock();
    let (start, unix) = (clock.monotonic_micros(), clock.unix_micros());
    clock.sleep_micros(5);
    mem.advance(7);
    assert_eq!(clock.monotonic_micros(), start + 12);
    assert_eq!(clock.unix_micros(), unix + 12);
    assert_eq!(clock.monotonic_nanos(), (start + 12) * 1000);
    mem.set_io_cost(100, 10);
    file(&env, "file", FileKind::Log, &[0; 3000]);
    assert_eq!(clock.monotonic_nanos(), (start + 12) * 1000 + 230);
    // The clock continues after a power loss.
    let image = mem.snapshot().image(ImageMode::None, 0);
    assert_eq!(image.env().clock().monotonic_nanos(), clock.monotonic_nanos());
}

#[test]
fn chance_follows_from_seed_and_purpose() {
    let draw = |env: &Env, purpose| [env.random_u64(purpose), env.random_u64(purpose)];
    let env = MemEnv::new(1).env();
    let first = draw(&env, "a");
    assert_ne!(first[0], first[1]);
    assert_ne!(draw(&env, "b"), first);
    // A draw for another purpose does not change this stream.
    let again = MemEnv::new(1).env();
    draw(&again, "b");
    assert_eq!(draw(&again, "a"), first);
    assert_ne!(draw(&MemEnv::new(2).env(), "a"), first);
}

#[test]
fn a_stepped_world_chooses_and_starts_no_threads() {
    let env = MemEnv::new(1).env();
    let stepping = env.stepping().unwrap();
    let choices: BTreeSet<usize> = (0..100).map(|_| stepping.choose(5)).collect();
    assert_eq!(choices, (0..5).collect());
    assert!(env.spawn("none", || {}).is_err());
    let image = MemEnv::new(1).snapshot().image(ImageMode::All, 3).env();
    assert!(image.stepping().is_some());
}

#[test]
fn a_peek_hides_the_calls_of_its_own_thread_alone() {
    let mem = MemEnv::threaded(1);
    let env = mem.env();
    let log = env.fs().create(Path::new("log"), FileKind::Log).unwrap();
    let before = mem.io_index();
    env.peek(|| {
        log.write_at(0, &[1]).unwrap();
        let other = log.clone();
        env.spawn("writer", move || other.write_at(0, &[2]).unwrap()).unwrap().join().unwrap();
    });
    assert_eq!(mem.io_index(), before + 1);
}

#[test]
fn a_threaded_world_has_threads() {
    let mem = MemEnv::threaded(1);
    let env = mem.env();
    assert!(env.stepping().is_none());
    assert!(mem.snapshot().image(ImageMode::All, 3).env().stepping().is_none());
    let log = env.fs().create(Path::new("log"), FileKind::Log).unwrap();
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let log = log.clone();
            env.spawn("writer", move || {
                for number in 0..50 {
                    log.write_at((number * 4 + thread) * 8, &thread.to_le_bytes()).unwrap();
                    log.sync_data().unwrap();
                }
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let content = mem.peek(Path::new("log")).unwrap();
    let expected: Vec<u8> = (0..200u64).flat_map(|number| (number % 4).to_le_bytes()).collect();
    assert_eq!(content, expected);
    assert_eq!(mem.io_index(), 401);
}

#[test]
fn locks_die_with_the_process() {
    let (mem, env) = world();
    let path = Path::new("d/LOCK");
    let held = env.fs().lock(path).unwrap();
    assert!(held.is_some() && env.fs().lock(path).unwrap().is_none());
    let image = mem.snapshot().image(ImageMode::All, 0);
    assert!(image.env().fs().lock(path).unwrap().is_some());
}
