//! Memtables: where writes live until they are flushed.
//!
//! Layers; each one uses only those above it in this list:
//!
//! 1. `arena`: memory handed out in pieces, by many threads at once, and freed as a whole;
//! 2. `node`: an entry in that memory, with a link to the next one;
//! 3. `block` and `guide`: a tree of hints that finds a node close to any place;
//! 4. `skips`: records of parts of the list that hold no entry newer than a given sequence number;
//! 5. `list`: the ordered, insert-only list of nodes, with a safe interface;
//! 6. `presence`: a Bloom filter over the keys of the list, for lookups of absent keys;
//! 7. `combined`: combined merge operands of hot keys, kept beside the list;
//! 8. `memtable`: the list of point entries, the range tombstones beside it, and the counters that sealing, flushing
//!    and write throttling use.
//!
//! Design: nothing is unlinked or freed while the memtable lives. Readers therefore take no lock and need no epoch or
//! hazard pointer. Writers insert concurrently with one compare-and-swap each, and a flush finds its entries in
//! order. The remaining cost is finding the place of an entry, which depends on good hints only: the guide may be
//! wrong, late or half changed, and results stay correct. The `Arc` of a memtable owns it: each reader and each
//! cursor keeps it alive.
//!
//! Architecture invariants: this module imports only the shared types, the locks, the errors, the cursor interface
//! and the range tombstones. `unsafe` ends at `list`, whose interface is safe. All atomics and locks come from
//! `drumlin_env::sync`, where a model checker can substitute its own.

#[expect(unsafe_code, reason = "hands out uninitialised memory")]
mod arena;
#[expect(unsafe_code, reason = "blocks are laid out by hand in the arena, and name nodes without lifetimes")]
mod block;
mod combined;
#[expect(unsafe_code, reason = "blocks name nodes and each other without lifetimes")]
mod guide;
#[expect(unsafe_code, reason = "keeps a node beside the arena that holds it")]
mod list;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod memtable;
#[expect(unsafe_code, reason = "nodes are laid out by hand in the arena")]
mod node;
mod presence;
mod skips;
#[cfg(test)]
mod tests;

pub(crate) use combined::LONG;
pub(crate) use memtable::{MemCursor, Memtable, NewEntry};
