//! The directory of a store: file names, file numbers, the directory lock, and the open files.
//!
//! ```text
//! Files ── env, dir ── DirLock
//!   ├── file numbers: the next one, and the lease of table numbers in the manifest
//!   ├── open tables and their blocks (TableCache, BlockCache)
//!   └── obsolete files that wait to be unlinked
//! ```
//!
//! Everything that creates, names, opens or removes a file of a store goes through [`Files`]. It has no reference to
//! the open store, so a job can hold it for as long as it needs.

mod files;

pub(crate) use files::{
    Files, FilesParts, NUMBER_LEASE, check_empty, check_path, look_error, sync_dir, target_outside, unlink,
};
