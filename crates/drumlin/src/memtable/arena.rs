//! Arena: memory handed out in pieces and freed as a whole.
//!
//! A thread cuts a piece from the front of the current chunk with one `fetch_add`. A chunk that cannot hold the next
//! piece is retired and its rest stays unused. A new chunk replaces it by compare-and-swap: twice as large up to 1
//! MiB, then a region of 2 MiB. If several threads try at once, one wins; the others free their chunks and use the
//! winner's.
//!
//! A piece too big to cut from a chunk gets a chunk of its own, which is never current. All chunks are in two lists
//! that only grow. They are freed when the arena is dropped.
//!
//! Invariants:
//! * No two pieces overlap, and no piece moves.
//! * A piece stays valid until the arena is dropped; nothing is freed earlier.
//! * Pieces start at multiples of [`ALIGN`]; their bytes are uninitialised.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use drumlin_env::region::{REGION_BYTES, Region};
use drumlin_env::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Alignment of every piece, in bytes.
pub(super) const ALIGN: usize = 8;

/// Size of the first chunk in bytes; small, so that a keyspace with a handful of entries costs little.
const FIRST_CHUNK_BYTES: usize = 4 << 10;
/// Maximum chunk size in bytes. After chunks of this size the arena uses regions, if the system has them.
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// Maximum size in bytes of a piece that shares a chunk. It also bounds the unused rest of a chunk.
const MAX_CUT_BYTES: usize = MAX_CHUNK_BYTES / 4;

/// Unit of chunk memory: a cache line, so that chunks are aligned to cache lines.
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// Memory of a chunk, by its origin.
enum Memory {
    Lines(NonNull<[MaybeUninit<CacheLine>]>),
    /// Only `drop` takes the region out.
    Region(Option<Region>),
}

/// Block of memory, with the number of bytes in use.
struct Chunk {
    memory: Memory,
    start: NonNull<u8>,
    capacity: usize,
    /// Bytes requested so far; above the capacity once a request did not fit.
    taken: AtomicUsize,
    /// Total capacity of all earlier chunks of the list, in bytes.
    before: usize,
    previous: *mut Chunk,
}

impl Chunk {
    /// Creates a chunk of at least `bytes` bytes, of which the first `taken` are taken.
    fn boxed(bytes: usize, taken: usize, before: usize, previous: *mut Chunk) -> Box<Chunk> {
        let memory: Box<[MaybeUninit<CacheLine>]> =
            Box::new_uninit_slice(bytes.div_ceil(size_of::<CacheLine>()));
        let memory = NonNull::from(Box::leak(memory));
        let (start, capacity) = (memory.cast::<u8>(), memory.len() * size_of::<CacheLine>());
        let taken = AtomicUsize::new(taken);
        Box::new(Chunk { memory: Memory::Lines(memory), start, capacity, taken, before, previous })
    }

    /// Creates a chunk over a region, of which the first `taken` bytes are taken.
    fn of_region(region: Region, taken: usize, before: usize, previous: *mut Chunk) -> Box<Chunk> {
        let (start, capacity) = (region.start(), REGION_BYTES);
        let taken = AtomicUsize::new(taken);
        Box::new(Chunk { memory: Memory::Region(Some(region)), start, capacity, taken, before, previous })
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bytes handed out by this chunk; its capacity if a last piece did not fit.
    fn used(&self) -> usize {
        self.taken.load(Relaxed).min(self.capacity())
    }

    /// Returns the piece that starts `offset` bytes into the chunk.
    ///
    /// # Safety
    /// `offset` is at most the capacity.
    unsafe fn piece(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: by the contract of this function the result is inside the memory or just after it.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match &mut self.memory {
            // SAFETY: the memory came from a leaked box in `boxed`, and only this chunk owns it.
            Memory::Lines(memory) => drop(unsafe { Box::from_raw(memory.as_ptr()) }),
            Memory::Region(region) => {
                if let Some(region) = region.take() {
                    region.give_back();
                }
            }
        }
    }
}

/// Allocator that serves any number of threads and frees all its memory at once.
pub(super) struct Arena {
    /// Chunk that pieces are cut from, linked to earlier ones; null before the first piece.
    current: AtomicPtr<Chunk>,
    /// Chunks that hold one big piece each.
    big: AtomicPtr<Chunk>,
}

impl Arena {
    /// Creates an arena that holds no memory yet.
    pub(super) fn new() -> Arena {
        Arena { current: AtomicPtr::new(ptr::null_mut()), big: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns `bytes` uninitialised bytes that belong to the caller until the arena is dropped.
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGN);
        if bytes > MAX_CUT_BYTES {
            return self.allocate_big(bytes);
        }
        loop {
            let current = self.current.load(Acquire);
            // SAFETY: chunks are freed only when the arena is dropped, and no thread has a mutable reference to one.
            if let Some(chunk) = unsafe { current.as_ref() } {
                // Failed attempts add to `taken` too. Each is followed by a new chunk of at least that size, so the
                // sum cannot come near the maximum of `usize`.
                let offset = chunk.taken.fetch_add(bytes, Relaxed);
                if offset + bytes <= chunk.capacity() {
                    // SAFETY: the piece ends inside the chunk, so it starts there too.
                    return unsafe { chunk.piece(offset) };
                }
            }
            if let Some(piece) = self.replace(current, bytes) {
                return piece;
            }
        }
    }

    /// Replaces `full` by a new chunk and cuts `bytes` from it. Returns `None` if another thread was faster.
    #[cold]
    fn replace(&self, full: *mut Chunk, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: as in `allocate`: chunks live as long as the arena.
        let (capacity, before) = match unsafe { full.as_ref() } {
            Some(chunk) => ((2 * chunk.capacity()).min(MAX_CHUNK_BYTES), chunk.before + chunk.capacity()),
            None => (FIRST_CHUNK_BYTES, 0),
        };
        // Total size of the chunks of 4 KiB, 8 KiB and so on up to the largest.
        let is_grown = before >= 2 * MAX_CHUNK_BYTES - FIRST_CHUNK_BYTES;
        let chunk = match is_grown.then(Region::take).flatten() {
            Some(region) => Chunk::of_region(region, bytes, before, full),
            None => Chunk::boxed(capacity.max(bytes.next_power_of_two()), bytes, before, full),
        };
        let chunk = Box::into_raw(chunk);
        match self.current.compare_exchange(full, chunk, AcqRel, Relaxed) {
            // SAFETY: the chunk was just made, and offset 0 is in it.
            Ok(_) => Some(unsafe { (*chunk).piece(0) }),
            Err(_) => {
                // SAFETY: the chunk was never published, so it still belongs to this thread alone.
                drop(unsafe { Box::from_raw(chunk) });
                None
            }
        }
    }

    #[cold]
    fn allocate_big(&self, bytes: usize) -> NonNull<u8> {
        let mut chunk = Chunk::boxed(bytes, bytes, 0, ptr::null_mut());
        // SAFETY: offset 0 is in every chunk.
        let piece = unsafe { chunk.piece(0) };
        let mut first = self.big.load(Acquire);
        loop {
            // SAFETY: as in `allocate`: chunks live as long as the arena.
            chunk.before = unsafe { first.as_ref() }.map_or(0, |first| first.before + first.capacity());
            chunk.previous = first;
            let raw = Box::into_raw(chunk);
            match self.big.compare_exchange(first, raw, AcqRel, Acquire) {
                Ok(_) => return piece,
                Err(now) => {
                    first = now;
                    // SAFETY: the chunk was not published, so it still belongs to this thread alone.
                    chunk = unsafe { Box::from_raw(raw) };
                }
            }
        }
    }

    /// Returns the bytes handed out, including the unused ends of retired chunks. Never decreases.
    pub(super) fn bytes(&self) -> usize {
        self.sum(Chunk::used)
    }

    #[cfg(test)]
    /// Returns the bytes held: those handed out and those still free.
    pub(super) fn held_bytes(&self) -> usize {
        self.sum(Chunk::capacity)
    }

    fn sum(&self, of_last: impl Fn(&Chunk) -> usize) -> usize {
        [&self.current, &self.big]
            .into_iter()
            // SAFETY: as in `allocate`: chunks live as long as the arena.
            .filter_map(|list| unsafe { list.load(Acquire).as_ref() })
            .map(|chunk| chunk.before + of_last(chunk))
            .sum()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for list in [&self.current, &self.big] {
            let mut chunk = list.load(Acquire);
            while !chunk.is_null() {
                // SAFETY: every listed chunk came from `Box::into_raw` and is listed once; `&mut self` proves that no
                // other thread uses the arena any more.
                let freed = unsafe { Box::from_raw(chunk) };
                chunk = freed.previous;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills each piece with its own byte value, and finds every byte unchanged after all are filled.
    #[test]
    fn pieces_do_not_overlap() {
        let arena = Arena::new();
        assert_eq!((arena.bytes(), arena.held_bytes()), (0, 0));
        let sizes = [1, 8, 63, 64, 4000, 5000, 17, MAX_CUT_BYTES, MAX_CUT_BYTES + 1, 0, 9];
        let rounds = if cfg!(miri) { 2 } else { 40 };
        let pieces: Vec<(NonNull<u8>, usize)> =
            (0..rounds).flat_map(|_| sizes).map(|size| (arena.allocate(size), size)).collect();
        for (i, (piece, size)) in pieces.iter().enumerate() {
            assert_eq!(piece.as_ptr().addr() % ALIGN, 0);
            // SAFETY: the piece is `size` bytes long and belongs to this thread alone.
            unsafe { piece.write_bytes(i as u8, *size) };
        }
        for (i, (piece, size)) in pieces.iter().enumerate() {
            // SAFETY: initialised above, and not written since.
            let bytes = unsafe { core::slice::from_raw_parts(piece.as_ptr(), *size) };
            assert!(bytes == vec![i as u8; *size]);
        }
        let taken: usize = pieces.iter().map(|(_, size)| size).sum();
        assert!(arena.bytes() >= taken);
        assert!(arena.held_bytes() >= arena.bytes());
        assert!(arena.held_bytes() <= 2 * taken + 2 * REGION_BYTES);
    }

    /// A few entries do not allocate a large chunk.
    #[test]
    fn a_small_arena_is_small() {
        let arena = Arena::new();
        arena.allocate(100);
        assert_eq!((arena.bytes(), arena.held_bytes()), (104, FIRST_CHUNK_BYTES));
        arena.allocate(MAX_CUT_BYTES + 1);
        assert!(arena.held_bytes() < FIRST_CHUNK_BYTES + MAX_CUT_BYTES + 128);
    }

    /// Four threads race for pieces across many chunk changes. No address is handed out twice.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "races real threads")]
    fn threads_get_pieces_of_their_own() {
        let arena = Arena::new();
        let each = if cfg!(miri) { 60 } else { 5000 };
        let mut starts: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..each).map(|_| arena.allocate(200).as_ptr().addr()).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        starts.sort_unstable();
        assert_eq!(starts.len(), 4 * each);
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 200));
    }
}
