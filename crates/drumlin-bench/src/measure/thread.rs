//! Execution, timing and verification of the operations of one thread.
//!
//! A thread's time runs from the common start of all threads, without the CPU time that it spent drawing keys. The id
//! of every value is checked. For one value in 64, all bytes are checked and, with one thread, that it is the latest
//! version. Entries of ranges must be in ascending or descending order. The first wrong result ends the run.

use super::latency::Recorder;
use super::oracle::Oracle;
use super::process;
use super::sampler::Shared;
use crate::engine::{Direction, Durability, Engine, Result, Seeker};
use crate::generate::stream::{Call, Chunk, Item, Operation, Stream};
use crate::generate::values::{HEADER, ID_BYTES, Values, read_header};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// One value in this many is checked byte by byte.
const WHOLE_EVERY: u64 = 64;

/// Objects that a thread works on.
pub struct Context<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// Expected content of the store.
    pub oracle: &'a Oracle,
    /// Generator of the values.
    pub values: &'a Values,
    /// Durability of writes.
    pub durability: Durability,
    /// Whether no other thread writes.
    pub alone: bool,
    /// Value size in bytes, if all values have the same size.
    pub value_bytes: usize,
    /// State shared with the sampler.
    pub shared: &'a Shared,
    /// Operations per second to start.
    pub rate: Option<f64>,
    /// Number of operations in the window whose lowest rate is reported.
    pub window: Option<u64>,
    /// Time after which the thread ends, even if operations are left.
    pub seconds: Option<f64>,
    /// Whether only a sample of the calls is timed.
    pub is_sampled: bool,
}

/// Counts of one thread.
#[derive(Default)]
pub struct Done {
    /// Number of operations.
    pub ops: u64,
    /// Nanoseconds from the start of the phase to the end of the last chunk, less `drawing`.
    pub busy: u64,
    /// CPU nanoseconds spent executing chunks.
    pub cpu: u64,
    /// CPU nanoseconds spent drawing chunks and counting.
    pub drawing: u64,
    /// Key and value bytes written.
    pub ingested: u64,
    /// Lookups that found a value, and lookups that found none.
    pub found: (u64, u64),
    /// Latencies.
    pub latencies: Recorder,
    /// Lowest rate over a window, in operations per second.
    pub worst_window: Option<f64>,
}

/// Checker of the values that reads return.
struct Check<'a> {
    values: &'a Values,
    oracle: &'a Oracle,
    alone: bool,
    seen: u64,
    wrong: Option<String>,
}

impl Check<'_> {
    fn value(&mut self, id: u64, value: &[u8]) {
        self.seen += 1;
        let (named, version) = read_header(value);
        if value.len() >= HEADER && named != id {
            self.fail(format!("id {id} gave the value of id {named}"));
        } else if self.seen.is_multiple_of(WHOLE_EVERY) {
            if !self.values.is_whole(id, value) {
                self.fail(format!("id {id}, version {version}: wrong bytes"));
            }
            let latest = self.oracle.version(id);
            if self.alone && value.len() >= HEADER && version != latest {
                self.fail(format!("id {id} gave version {version}, the latest is {latest}"));
            }
        }
    }

    fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn result(&mut self) -> Result<()> {
        self.wrong.take().map_or(Ok(()), |what| Err(format!("wrong answer: {what}")))
    }
}

/// Executes operations one after the other.
pub struct Thread<'a> {
    context: &'a Context<'a>,
    check: Check<'a>,
    seeker: Option<Box<dyn Seeker + 'a>>,
    value: Vec<u8>,
    values: Vec<Vec<u8>>,
    last_key: Vec<u8>,
    done: Done,
    windows: VecDeque<(u64, u64)>,
}

impl<'a> Thread<'a> {
    /// Creates a thread that has not executed anything yet.
    pub fn new(context: &'a Context<'a>) -> Thread<'a> {
        Thread {
            context,
            check: Check {
                values: context.values,
                oracle: context.oracle,
                alone: context.alone,
                seen: 0,
                wrong: None,
            },
            seeker: None,
            value: Vec::new(),
            values: Vec::new(),
            last_key: Vec::new(),
            done: Done::default(),
            windows: VecDeque::new(),
        }
    }

    /// Executes all operations of `stream`. The phase started at `begun`.
    pub fn run(mut self, stream: &mut Stream, begun: u64) -> Result<Done> {
        let mut chunk = Chunk::default();
        let mut intended = self.context.rate.map(|rate| (begun, 1e9 / rate, 0u64));
        let end = self.context.seconds.map(|seconds| begun + (seconds * 1e9) as u64);
        let mut ended = process::thread_cpu();
        while end.is_none_or(|end| process::wall() < end)
            && stream.fill(&mut chunk, &|id| self.context.oracle.is_present(id))?
        {
            let cpu = process::thread_cpu();
            self.done.drawing += cpu - ended;
            let ops_before = self.done.ops;
            match &mut intended {
                Some(pace) => self.paced(&chunk, pace, end)?,
                None => self.chunk(&chunk)?,
            }
            ended = process::thread_cpu();
            self.done.cpu += ended - cpu;
            self.done.busy = (process::wall() - begun).saturating_sub(self.done.drawing);
            self.context.shared.ops.fetch_add(self.done.ops - ops_before, Relaxed);
            self.answer_sampler();
            self.note_window();
        }
        Ok(self.done)
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<()> {
        let timing = self.done.latencies.timing(chunk.operations.len(), self.context.is_sampled);
        let mut last = process::wall();
        for (position, operation) in chunk.operations.iter().enumerate() {
            let weight = timing.weight(position);
            if weight == 0 {
                self.step(chunk, operation)?;
                continue;
            }
            if timing.is_sample() {
                last = process::wall();
            }
            self.step(chunk, operation)?;
            let now = process::wall();
            self.done.latencies.record(operation.call, now - last, weight);
            last = now;
        }
        Ok(())
    }

    /// Executes a chunk with intended start times, up to the end of the phase. `pace` is the first start, the
    /// nanoseconds between starts, and the number of calls so far.
    fn paced(&mut self, chunk: &Chunk, pace: &mut (u64, f64, u64), end: Option<u64>) -> Result<()> {
        for operation in &chunk.operations {
            let start = pace.0 + (pace.2 as f64 * pace.1) as u64;
            let ahead = end.map_or(start, |end| start.min(end)).saturating_sub(process::wall());
            if ahead > 0 {
                std::thread::sleep(Duration::from_nanos(ahead));
            }
            // At a low rate, a chunk of calls may take longer than the phase.
            if end.is_some_and(|end| start >= end || process::wall() >= end) {
                break;
            }
            pace.2 += 1;
            self.step(chunk, operation)?;
            self.done.latencies.record(operation.call, process::wall().saturating_sub(start), 1);
        }
        Ok(())
    }

    fn answer_sampler(&mut self) {
        let shared = self.context.shared;
        if shared.p99_wanted.load(Relaxed) && shared.p99_wanted.swap(false, Relaxed) {
            let p99 = self.done.latencies.take_interval_p99().unwrap_or(0.0);
            shared.p99_bits.store(p99.to_bits(), Relaxed);
        }
    }

    fn note_window(&mut self) {
        let Some(window) = self.context.window else { return };
        self.windows.push_back((self.done.ops, self.done.busy));
        while let Some(&(ops, busy)) = self.windows.front()
            && self.done.ops - ops >= window
        {
            let rate = (self.done.ops - ops) as f64 * 1e9 / (self.done.busy - busy).max(1) as f64;
            self.done.worst_window = Some(self.done.worst_window.map_or(rate, |worst| worst.min(rate)));
            self.windows.pop_front();
        }
    }

    fn step(&mut self, chunk: &Chunk, operation: &Operation) -> Result<()> {
        let items = chunk.items(operation);
        let Some(first) = items.first() else { return Ok(()) };
        let key = chunk.key(first);
        let ops = match operation.call {
            Call::Put => self.put(first, key)?,
            Call::Batch => self.batch(chunk, items)?,
            Call::Get => self.get(first, key)?,
            Call::GetAbsent => self.get_absent(key)?,
            Call::MultiGet => self.multi_get(chunk, items)?,
            Call::Range(direction) => self.range(first, key, direction)?,
            Call::Reseek => self.reseek(first, key)?,
            Call::Scan(direction) => self.scan(direction)?,
            Call::Delete => self.delete(first, key)?,
            Call::Modify => {
                self.get(first, key)?;
                self.put(first, key)?
            }
        };
        self.done.ops += ops;
        self.done.latencies.count(operation.call, ops);
        self.check.result()
    }

    fn put(&mut self, item: &Item, key: &[u8]) -> Result<u64> {
        let Context { engine, oracle, values, durability, .. } = self.context;
        let version = oracle.next_version(item.id);
        values.write(item.id, version, item.size as usize, &mut self.value);
        engine.put(key, &self.value, *durability)?;
        oracle.note_put(item.id, version, key.len(), self.value.len());
        self.done.ingested += (key.len() + self.value.len()) as u64;
        Ok(1)
    }

    fn batch(&mut self, chunk: &Chunk, items: &[Item]) -> Result<u64> {
        let Context { engine, oracle, values, durability, .. } = self.context;
        self.values.resize_with(items.len().max(self.values.len()), Vec::new);
        let mut versions = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            // A batch may contain an id more than once; the last value counts.
            let earlier = items[..position].iter().filter(|earlier| earlier.id == item.id).count() as u64;
            let version = oracle.next_version(item.id) + earlier;
            values.write(item.id, version, item.size as usize, &mut self.values[position]);
            versions.push(version);
        }
        let pairs = items.iter().zip(&self.values).map(|(item, value)| (chunk.key(item), value.as_slice()));
        let pairs: Vec<(&[u8], &[u8])> = pairs.collect();
        engine.batch(&pairs, *durability)?;
        for ((item, version), (key, value)) in items.iter().zip(versions).zip(&pairs) {
            oracle.note_put(item.id, version, key.len(), value.len());
            self.done.ingested += (key.len() + value.len()) as u64;
        }
        Ok(items.len() as u64)
    }

    fn get(&mut self, item: &Item, key: &[u8]) -> Result<u64> {
        let expected = self.context.oracle.is_present(item.id);
        let check = &mut self.check;
        let found = self.context.engine.get(key, &mut |value| check.value(item.id, value))?;
        self.found(item.id, expected, found);
        Ok(1)
    }

    /// Checks whether a lookup of `id` found an entry if and only if one was expected.
    fn found(&mut self, id: u64, expected: bool, found: bool) {
        if found {
            self.done.found.0 += 1
        } else {
            self.done.found.1 += 1
        }
        // With concurrent writers, an entry may have appeared since the oracle was read, but it cannot have
        // disappeared.
        if expected && !found {
            self.check.fail(format!("id {id} is there and was not found"));
        } else if found && !expected && self.context.alone {
            self.check.fail(format!("id {id} is not there and was found"));
        }
    }

    fn get_absent(&mut self, key: &[u8]) -> Result<u64> {
        let found = self.context.engine.get(key, &mut |_| {})?;
        self.done.found.1 += 1;
        if found {
            self.check.fail("a key that was never written was found".to_owned());
        }
        Ok(1)
    }

    fn multi_get(&mut self, chunk: &Chunk, items: &[Item]) -> Result<u64> {
        let keys: Vec<&[u8]> = items.iter().map(|item| chunk.key(item)).collect();
        let expected: Vec<bool> = items.iter().map(|item| self.context.oracle.is_present(item.id)).collect();
        let mut present = vec![false; items.len()];
        let check = &mut self.check;
        self.context.engine.multi_get(&keys, &mut |position, value| {
            if let (Some(item), Some(value)) = (items.get(position), value) {
                present[position] = true;
                check.value(item.id, value);
            }
        })?;
        for ((item, expected), found) in items.iter().zip(expected).zip(present) {
            self.found(item.id, expected, found);
        }
        Ok(items.len() as u64)
    }

    fn range(&mut self, item: &Item, key: &[u8], direction: Direction) -> Result<u64> {
        let expected = self.context.oracle.is_present(item.id);
        let Thread { check, last_key, context, .. } = self;
        let mut order =
            Order { check, last: last_key, direction, given: 0, first: Some((key, item.id, expected)) };
        let limit = item.size as usize;
        let given = context.engine.range(Some(key), direction, limit, &mut |k, v| order.entry(k, v))?;
        order.end(given, limit);
        Ok(1)
    }

    fn reseek(&mut self, item: &Item, key: &[u8]) -> Result<u64> {
        let context = self.context;
        let seeker = match &mut self.seeker {
            Some(seeker) => seeker,
            None => {
                let made = context.engine.seeker().ok_or("the engine has no reusable iterator")?;
                self.seeker.insert(made)
            }
        };
        let expected = context.oracle.is_present(item.id);
        let (check, last) = (&mut self.check, &mut self.last_key);
        let direction = Direction::Forward;
        let mut order = Order { check, last, direction, given: 0, first: Some((key, item.id, expected)) };
        let limit = item.size as usize;
        let given = seeker.seek(key, limit, &mut |k, v| order.entry(k, v))?;
        order.end(given, limit);
        Ok(1)
    }

    fn scan(&mut self, direction: Direction) -> Result<u64> {
        let Thread { check, last_key, context, .. } = self;
        let expected = context.oracle.entries();
        let mut order = Order { check, last: last_key, direction, given: 0, first: None };
        let given = context.engine.range(None, direction, usize::MAX, &mut |k, v| order.entry(k, v))? as u64;
        if given != expected && context.alone {
            check.fail(format!("a scan gave {given} entries, there are {expected}"));
        }
        Ok(given)
    }

    fn delete(&mut self, item: &Item, key: &[u8]) -> Result<u64> {
        self.context.engine.delete(key, self.context.durability)?;
        self.context.oracle.note_delete(item.id, key.len(), self.context.value_bytes);
        self.done.ingested += key.len() as u64;
        Ok(1)
    }
}

/// Checks the entries of a range as they arrive.
struct Order<'a, 'b> {
    check: &'a mut Check<'b>,
    last: &'a mut Vec<u8>,
    direction: Direction,
    given: usize,
    /// Lower or upper bound of the range, its id, and whether it has an entry.
    first: Option<(&'a [u8], u64, bool)>,
}

impl Order<'_, '_> {
    fn entry(&mut self, key: &[u8], value: &[u8]) {
        // A shorter value does not contain its whole id.
        if value.len() >= ID_BYTES {
            self.check.value(read_header(value).0, value);
        }
        if self.given == 0 {
            if let Some((bound, id, true)) = self.first
                && bound != key
            {
                self.check.fail(format!("a range from id {id}, which is there, began elsewhere"));
            }
        } else {
            let in_order = match self.direction {
                Direction::Forward => key > self.last.as_slice(),
                Direction::Back => key < self.last.as_slice(),
            };
            if !in_order {
                self.check.fail("a range gave keys out of order".to_owned());
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.given += 1;
    }

    fn end(self, given: usize, limit: usize) {
        if given > limit || given != self.given {
            self.check.fail(format!("a range of {limit} gave {given} entries"));
        }
        if let Some((_, id, true)) = self.first
            && given == 0
            && limit > 0
        {
            self.check.fail(format!("a range from id {id}, which is there, was empty"));
        }
    }
}
