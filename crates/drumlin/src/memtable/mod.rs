//! Where writes live until they are flushed.
//!
//! Layers, each knowing only those above it here:
//!
//! 1. `arena`: memory that is handed out piece by piece, by many threads at once, and freed whole;
//! 2. `node`: an entry in that memory, with a link to the next one;
//! 3. `block` and `guide`: a tree of hints that finds a node close to any place;
//! 4. `list`: the ordered list of nodes, insert-only, with a safe interface;
//! 5. `presence`: a filter over the keys of the list, for lookups of keys that are not there;
//! 6. `memtable`: the list of point entries, the range tombstones beside it, and the counts that sealing,
//!    flushing and pacing go by.
//!
//! Why so: nothing is ever unlinked or freed while the memtable lives, so readers take no lock and announce
//! themselves to nobody. Writers insert side by side with one compare-and-swap each, and the flush finds its
//! entries already in order. What is left to make fast is finding the place, and that is only a matter of
//! good hints: the guide can be wrong, late or half changed without an answer ever being wrong. The life of a
//! memtable is the life of its `Arc`: whoever reads it, or holds a cursor on it, keeps it.
//!
//! Architecture invariants: this module imports only the vocabulary, the locks, the errors, the cursor
//! interface and the range tombstones. `unsafe` ends at `list`, whose interface is safe.
//! All atomics and locks come from `drumlin_env::sync`, where a model checker can put its own in their place.

#[expect(unsafe_code, reason = "hands out uninitialised memory")]
mod arena;
#[expect(unsafe_code, reason = "blocks are laid out by hand in the arena, and name nodes without lifetimes")]
mod block;
#[expect(unsafe_code, reason = "blocks name nodes and each other without lifetimes")]
mod guide;
#[expect(unsafe_code, reason = "keeps a node beside the arena that holds it")]
mod list;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod memtable;
#[expect(unsafe_code, reason = "nodes are laid out by hand in the arena")]
mod node;
mod presence;
#[cfg(test)]
mod tests;

pub(crate) use memtable::{MemCursor, Memtable};
