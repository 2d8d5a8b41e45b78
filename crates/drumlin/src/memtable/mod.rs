//! Where writes live until they are flushed.
//!
//! Four layers, each knowing only those below:
//!
//! 1. `arena`: memory that is handed out piece by piece, by many threads at once, and freed whole;
//! 2. `skiplist`: an insert-only ordered list in that memory, with a safe interface;
//! 3. `presence`: a filter over the keys of the list, for lookups of keys that are not there;
//! 4. `memtable`: the list of point entries, the range tombstones beside it, and the counts that sealing,
//!    flushing and pacing go by.
//!
//! Why a skip list in an arena: readers take no lock and announce themselves to nobody, because nothing is ever
//! unlinked or freed while the memtable lives; writers insert side by side with one compare-and-swap per
//! level; and the flush finds its entries already in order. The life of a memtable is the life of its
//! `Arc`: whoever reads it, or holds a cursor on it, keeps it.
//!
//! Architecture invariants: this module imports only the vocabulary, the locks, the errors, the cursor
//! interface and the range tombstones. `unsafe` is in `arena` and `skiplist` alone, and nothing unsafe leaves `skiplist`.
//! All atomics and locks come from `drumlin_env::sync`, where a model checker can put its own in their place.

#[expect(unsafe_code, reason = "hands out uninitialised memory")]
mod arena;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod memtable;
mod presence;
#[expect(unsafe_code, reason = "nodes are laid out by hand in the arena")]
mod skiplist;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use memtable::MemCursor;
pub(crate) use memtable::Memtable;
