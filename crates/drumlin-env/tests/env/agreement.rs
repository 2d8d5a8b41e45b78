//! Random calls on the operating system and on the simulated disk give the same results.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use drumlin_env::{Env, File, FileKind, FileLock, MemEnv, Random, TempDir};

const NAMES: [&str; 9] = ["a", "b", "c", "sub/a", "sub/b", "sub", "missing/x", "a/x", "."];
const HANDLES: usize = 6;

/// One world under test, with its open files.
struct Side {
    env: Env,
    root: PathBuf,
    files: Vec<Option<File>>,
    locks: Vec<FileLock>,
}

/// Result of a call: its value as text, or the error.
type Outcome = Result<String, (io::ErrorKind, Option<i32>)>;

fn outcome<T: Debug>(result: io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|error| (error.kind(), error.raw_os_error()))
}

/// One random call, drawn before either world runs it.
struct Step {
    call: usize,
    name: &'static str,
    other: &'static str,
    handle: usize,
    offset: u64,
    len: usize,
    byte: u8,
}

impl Step {
    fn draw(random: &mut Random) -> Step {
        Step {
            call: random.index(24),
            name: NAMES[random.index(NAMES.len())],
            other: NAMES[random.index(NAMES.len())],
            handle: random.index(HANDLES),
            offset: random.below(30_000),
            len: random.index(12_000),
            byte: random.next_u64() as u8,
        }
    }
}

impl Side {
    fn new(env: Env, root: &Path) -> Side {
        env.fs().create_dir_all(root).unwrap();
        Side { env, root: root.to_owned(), files: vec![None; HANDLES], locks: Vec::new() }
    }

    fn open(&mut self, handle: usize, opened: io::Result<File>) -> Outcome {
        outcome(opened.map(|file| self.files[handle] = Some(file)))
    }

    fn carry_out(&mut self, step: &Step) -> Outcome {
        let path = |name: &str| if name == "." { self.root.clone() } else { self.root.join(name) };
        let (from, to) = (path(step.name), path(step.other));
        let fs = self.env.fs().clone();
        let is_dir = fs.list(&from).is_ok();
        match step.call {
            0..=2 => self.open(step.handle, fs.create(&from, FileKind::Table)),
            // A real system can open a directory, but Drumlin never does.
            3 if !is_dir => self.open(step.handle, fs.open(&from, FileKind::Table)),
            4 => self.open(step.handle, fs.open_write(&from, FileKind::Table)),
            // A real system can move a directory; a non-empty one as target gives a different error.
            5 if !is_dir && step.other != "." => outcome(fs.rename(&from, &to)),
            6 => outcome(fs.link(&from, &to)),
            7 => outcome(fs.unlink(&from, FileKind::Table)),
            8 => outcome(fs.sync_dir(&from)),
            9 => outcome(fs.list(&from)),
            10 => outcome(fs.exists(&from)),
            11 => outcome(fs.file_len(&from)),
            12 if step.byte < 60 => outcome(fs.create_dir_all(&from)),
            13 if !is_dir => {
                let locked = if step.byte.is_multiple_of(2) { fs.lock(&from) } else { fs.lock_shared(&from) };
                outcome(locked.map(|lock| lock.map(|lock| self.locks.push(lock)).is_some()))
            }
            14 => {
                self.locks.pop();
                outcome(fs.free_space(&from).map(|free| free > 0))
            }
            _ => self.on_file(step),
        }
    }

    fn on_file(&mut self, step: &Step) -> Outcome {
        let Some(file) = &self.files[step.handle] else { return Ok(String::new()) };
        let mut buf = vec![0; step.len];
        match step.call {
            15 => outcome(file.read_at(step.offset, &mut buf).map(|n| buf[..n].to_vec())),
            16 => outcome(file.read_exact_at(step.offset, &mut buf).map(|()| buf)),
            17 | 18 => outcome(file.write_at(step.offset, &vec![step.byte; step.len])),
            19 => outcome(file.allocate(step.offset, step.len as u64)),
            20 => outcome(file.set_len(step.offset)),
            21 => outcome(file.sync_data().and(file.sync_all()).and(file.len())),
            22 => outcome(self.files[step.handle].take().expect("checked above").close()),
            _ => outcome(file.len()),
        }
    }
}

#[test]
fn random_calls_agree() {
    let (mut calls, mut failures) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed, "agreement");
        let dir = TempDir::new("drumlin-agreement").unwrap();
        let root = dir.path().join("root");
        let mut real = Side::new(Env::os(), &root);
        let mut simulated = Side::new(MemEnv::new(seed).env(), &root);
        for number in 0..400 {
            let step = Step::draw(&mut random);
            let (expected, got) = (real.carry_out(&step), simulated.carry_out(&step));
            assert_eq!(
                expected, got,
                "seed {seed}, step {number}: call {} on {} and {}",
                step.call, step.name, step.other
            );
            calls += 1;
            failures += u32::from(expected.is_err());
        }
        for name in ["", "sub"] {
            let list = |side: &Side| side.env.fs().list(&side.root.join(name)).map_err(|error| error.kind());
            assert_eq!(list(&real), list(&simulated), "seed {seed}");
        }
    }
    // The calls include both successes and failures.
    assert!(failures > calls / 10 && failures < calls / 2, "{failures} of {calls}");
}

#[test]
fn locks_to_read_are_shared_and_make_no_file() {
    let dir = TempDir::new("drumlin-lock").unwrap();
    for (env, root) in [(Env::os(), dir.path()), (MemEnv::new(1).env(), Path::new(""))] {
        let path = root.join("LOCK");
        let missing = env.fs().lock_shared(&path).map(|_| ()).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        assert!(!env.fs().exists(&path).unwrap());
        let writer = env.fs().lock(&path).unwrap();
        assert!(env.fs().lock_shared(&path).unwrap().is_none());
        drop(writer);
        let readers = [env.fs().lock_shared(&path).unwrap(), env.fs().lock_shared(&path).unwrap()];
        assert!(readers.iter().all(Option::is_some));
        let [one, other] = readers;
        drop(one);
        assert!(env.fs().lock(&path).unwrap().is_none(), "one reader is left");
        drop(other);
        assert!(env.fs().lock(&path).unwrap().is_some());
    }
}

#[test]
fn a_lock_keeps_the_same_process_out_until_it_is_dropped() {
    let dir = TempDir::new("drumlin-lock").unwrap();
    for (env, root) in [(Env::os(), dir.path()), (MemEnv::new(1).env(), Path::new(""))] {
        let path = root.join("LOCK");
        let held = env.fs().lock(&path).unwrap();
        assert!(held.is_some());
        assert!(env.fs().lock(&path).unwrap().is_none());
        assert!(env.fs().lock(&path).unwrap().is_none());
        drop(held);
        assert!(env.fs().lock(&path).unwrap().is_some());
    }
}

#[test]
fn the_machine_answers() {
    let env = Env::os();
    assert_ne!(env.random_u64("a"), env.random_u64("a"));
    assert!(env.available_cores() > 0);
    assert!(env.total_memory().is_none_or(|bytes| bytes > 1 << 20));
    assert!(env.stepping().is_none());
    let before = env.clock().monotonic_nanos();
    env.clock().sleep_micros(1);
    assert!(env.clock().monotonic_nanos() > before);
    assert!(env.clock().unix_micros() > 1_600_000_000_000_000);
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = env.spawn("answer", move || sender.send(42).unwrap()).unwrap();
    thread.join().unwrap();
    assert_eq!(receiver.recv(), Ok(42));
    assert!(env.spawn("fail", || panic!("expected by the test")).unwrap().join().is_err());
}

#[test]
fn whole_buffers_are_read_or_nothing() {
    let dir = TempDir::new("drumlin-shared").unwrap();
    let data: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    for (env, root) in [(Env::os(), dir.path()), (MemEnv::new(1).env(), Path::new(""))] {
        let path = root.join("table");
        env.fs().create(&path, FileKind::Table).unwrap().write_at(0, &data).unwrap();
        for file in [env.fs().open(&path, FileKind::Table), env.fs().open_direct(&path, FileKind::Table)] {
            let file = file.unwrap();
            for (offset, len) in [(0, 20_000), (0, 0), (4101, 4096), (19_999, 1), (20_000, 0)] {
                let found = file.read_shared(offset, len).unwrap();
                assert_eq!(*found, data[offset as usize..offset as usize + len]);
            }
            for (offset, len) in [(0, 20_001), (19_999, 2), (20_000, 1), (1 << 40, 1)] {
                let error = file.read_shared(offset, len).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{len} at {offset}");
            }
        }
    }
}
