//! Background work on an open store, lane by lane. A lane is one background job queue: it does its work in bounded
//! steps and holds the store.
//!
//! ```text
//! flush        sealed memtables ──> runs of level 0
//! piece        one compaction slot: takes a piece (subcompaction) from the scheduler, runs it ──> install
//! preallocate  the next log segment, memory for the next memtable
//! maintenance  obsolete files, manifest, decision log, lookup statistics and their buckets, search
//! ```
//!
//! `install` makes finished work part of the tree. `inherit` gives new files the lookup statistics of those that they
//! replace.

mod buckets;
pub(crate) mod flush;
mod inherit;
mod install;
mod lookups;
mod maintenance;
mod piece;
mod preallocate;
mod search;
