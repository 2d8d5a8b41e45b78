//! Streams of operations in chunks.
//!
//! A chunk is drawn, with its keys, before the clock starts, so that only the engine is measured. Each chunk is added
//! to a digest of (operation, key, value length). Two engines whose digests are equal received the same work.

use super::choose::{Chooser, Population, Target};
use super::keys::KeyForm;
use super::random::Random;
use super::trace::{Request, Requests};
use crate::engine::{Direction, Result};
use crate::workload::{Action, Entries, Phase};
use xxhash_rust::xxh3::Xxh3;

/// Calls per chunk. The keys of a chunk fit in the L1 cache.
pub const CHUNK: usize = 256;
/// A chunk with this many bytes of keys takes no further call: large batches of large keys would fill the memory.
const MAX_KEY_BYTES: usize = 64 << 20;

/// Maximum number of redraws when a drawn id has no entry; limits the cost when few ids have one.
const REDRAWS: u32 = 64;

/// Type of an engine call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Put one entry.
    Put,
    /// Put several entries at once.
    Batch,
    /// Get one value.
    Get,
    /// Get a key that does not exist.
    GetAbsent,
    /// Get several values at once.
    MultiGet,
    /// Create an iterator and read some entries.
    Range(Direction),
    /// Seek a reused iterator and read some entries.
    Reseek,
    /// Scan the whole store.
    Scan(Direction),
    /// Delete a key.
    Delete,
    /// Read a value and write another one (read-modify-write).
    Modify,
}

/// A key with its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Id of the key.
    pub id: u64,
    /// For writes, the value size in bytes; for ranges, the number of entries to read.
    pub size: u32,
    start: u32,
    end: u32,
}

/// One call with its items.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Type of the call.
    pub call: Call,
    first: u32,
    count: u32,
}

/// Calls to execute one after the other.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Calls of the chunk.
    pub operations: Vec<Operation>,
    items: Vec<Item>,
    keys: Vec<u8>,
}

impl Chunk {
    /// Returns the items of `operation`.
    pub fn items(&self, operation: &Operation) -> &[Item] {
        &self.items[operation.first as usize..(operation.first + operation.count) as usize]
    }

    /// Returns the key of `item`.
    pub fn key(&self, item: &Item) -> &[u8] {
        &self.keys[item.start as usize..item.end as usize]
    }

    fn clear(&mut self) {
        self.operations.clear();
        self.items.clear();
        self.keys.clear();
    }
}

/// Operations of one thread in one phase.
pub struct Stream {
    actions: Vec<(f64, Action, Chooser)>,
    random: Random,
    population: Population,
    keys: KeyForm,
    value_bytes: u32,
    left: u64,
    trace: Option<Requests>,
    digest: Xxh3,
}

impl Stream {
    /// Creates the stream of `thread` in `phase`; ids below `base` were used before the phase.
    pub fn new(
        phase: &Phase,
        keys: KeyForm,
        value_bytes: usize,
        base: u64,
        seed: u64,
        thread: u32,
        trace: Option<Requests>,
    ) -> Stream {
        let threads = u64::from(phase.threads);
        let share = match phase.seconds {
            Some(_) => u64::MAX,
            None => phase.ops / threads + u64::from(u64::from(thread) < phase.ops % threads),
        };
        let population = Population {
            base,
            own: 0,
            thread: u64::from(thread),
            threads,
            expected: (share as f64 * phase.insert_share()).ceil() as u64,
        };
        let mut sum = 0.0;
        let actions = phase.mix.iter().map(|(weight, action)| {
            sum += weight;
            (sum, *action, Chooser::new(target(action), &population))
        });
        Stream {
            actions: actions.collect(),
            random: Random::new(seed, &phase.name, thread),
            population,
            keys,
            value_bytes: value_bytes as u32,
            left: share,
            trace,
            digest: Xxh3::new(),
        }
    }

    /// Draws the next chunk into `chunk`. Returns false at the end of the stream. `is_present` says whether an id
    /// used before the phase has an entry: reads of entries skip ids without one.
    pub fn fill(&mut self, chunk: &mut Chunk, is_present: &dyn Fn(u64) -> bool) -> Result<bool> {
        chunk.clear();
        // A scan is a chunk by itself: it takes as long as many other calls.
        let is_scan =
            |chunk: &Chunk| chunk.operations.last().is_some_and(|last| matches!(last.call, Call::Scan(_)));
        while chunk.operations.len() < CHUNK
            && chunk.keys.len() < MAX_KEY_BYTES
            && self.left > 0
            && !is_scan(chunk)
        {
            if !self.draw(chunk, is_present)? {
                self.left = 0;
            }
        }
        for operation in &chunk.operations {
            for item in chunk.items(operation) {
                self.digest.update(&[code(operation.call)]);
                self.digest.update(chunk.key(item));
                self.digest.update(&item.size.to_le_bytes());
            }
        }
        Ok(!chunk.operations.is_empty())
    }

    /// Returns the digest of all chunks so far.
    pub fn digest(&self) -> u64 {
        self.digest.digest()
    }

    /// Returns the number of ids that the thread has inserted.
    pub fn inserted(&self) -> u64 {
        self.population.own
    }

    fn draw(&mut self, chunk: &mut Chunk, is_present: &dyn Fn(u64) -> bool) -> Result<bool> {
        let total = self.actions.last().map_or(0.0, |(sum, ..)| *sum);
        let point = if self.actions.len() > 1 { self.random.fraction() * total } else { 0.0 };
        let index = self.actions.iter().position(|(sum, ..)| point < *sum).unwrap_or(self.actions.len() - 1);
        let action = self.actions[index].1;
        if action == Action::Replay {
            return self.replay(chunk);
        }
        let (call, count) = match action {
            Action::Put(_) => (Call::Put, 1),
            Action::Batch(_, n) => (Call::Batch, u64::from(n).min(self.left)),
            Action::Get(_) => (Call::Get, 1),
            Action::GetAbsent(_) => (Call::GetAbsent, 1),
            Action::MultiGet(_, n) => (Call::MultiGet, u64::from(n).min(self.left)),
            Action::Range(_, _, direction) => (Call::Range(direction), 1),
            Action::Reseek(..) => (Call::Reseek, 1),
            Action::Scan(direction) => (Call::Scan(direction), 1),
            Action::Delete(_) => (Call::Delete, 1),
            Action::Modify(_) => (Call::Modify, 1),
            Action::Replay => return Ok(false),
        };
        let first = chunk.items.len() as u32;
        for _ in 0..count {
            let Some(id) = self.draw_id(index, is_present) else {
                return Err(format!("{action:?} has no ids to draw from"));
            };
            let size = match action {
                Action::Range(_, entries, _) | Action::Reseek(_, entries) => match entries {
                    Entries::Fixed(n) => n,
                    Entries::UpTo(n) => 1 + self.random.below(u64::from(n)) as u32,
                },
                _ => self.value_bytes,
            };
            self.push(chunk, id, size, call == Call::GetAbsent)?;
        }
        chunk.operations.push(Operation { call, first, count: count as u32 });
        // A scan counts its entries, and their number is known only at its end; here it is one call.
        self.left -= count;
        Ok(true)
    }

    fn draw_id(&mut self, index: usize, is_present: &dyn Fn(u64) -> bool) -> Option<u64> {
        let (_, action, chooser) = &mut self.actions[index];
        let wants_entry = !action.writes() && !matches!(action, Action::GetAbsent(_));
        let mut id = chooser.next(&mut self.random, &mut self.population)?;
        for _ in 0..REDRAWS {
            if !wants_entry || id >= self.population.base || is_present(id) {
                break;
            }
            id = chooser.next(&mut self.random, &mut self.population)?;
        }
        Some(id)
    }

    fn replay(&mut self, chunk: &mut Chunk) -> Result<bool> {
        let request = match &mut self.trace {
            Some(requests) => requests.next_request()?,
            None => return Err("no trace to replay".to_owned()),
        };
        let Some((call, id, size)) = request.map(|r| match r {
            Request::Get(id) => (Call::Get, id, 0),
            Request::Put(id, size) => (Call::Put, id, size),
            Request::Delete(id) => (Call::Delete, id, 0),
        }) else {
            return Ok(false);
        };
        let first = chunk.items.len() as u32;
        let start = chunk.keys.len() as u32;
        if let Some(requests) = &self.trace {
            requests.write_key(id, &mut chunk.keys);
        }
        chunk.items.push(Item { id, size, start, end: chunk.keys.len() as u32 });
        chunk.operations.push(Operation { call, first, count: 1 });
        self.left -= 1;
        Ok(true)
    }

    fn push(&self, chunk: &mut Chunk, id: u64, size: u32, absent: bool) -> Result<()> {
        let start = chunk.keys.len() as u32;
        self.keys.write(id, &mut chunk.keys);
        if absent {
            chunk.keys.push(b'0');
        }
        let end = u32::try_from(chunk.keys.len()).map_err(|_| "the keys of one call take more than 4 GiB")?;
        chunk.items.push(Item { id, size, start, end });
        Ok(())
    }
}

/// Returns the distribution of the ids of `action`. A scan starts at an end of the store and ignores the id it draws.
fn target(action: &Action) -> Target {
    match *action {
        Action::Put(target)
        | Action::Batch(target, _)
        | Action::Get(target)
        | Action::GetAbsent(target)
        | Action::MultiGet(target, _)
        | Action::Range(target, ..)
        | Action::Reseek(target, _)
        | Action::Delete(target)
        | Action::Modify(target) => target,
        Action::Scan(_) | Action::Replay => Target::Ascending,
    }
}

fn code(call: Call) -> u8 {
    match call {
        Call::Put => 1,
        Call::Batch => 2,
        Call::Get => 3,
        Call::GetAbsent => 4,
        Call::MultiGet => 5,
        Call::Range(Direction::Forward) => 6,
        Call::Range(Direction::Back) => 7,
        Call::Reseek => 8,
        Call::Scan(Direction::Forward) => 9,
        Call::Scan(Direction::Back) => 10,
        Call::Delete => 11,
        Call::Modify => 12,
    }
}
