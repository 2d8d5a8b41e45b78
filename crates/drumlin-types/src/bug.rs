//! Seeded bugs: deliberate faults that the tests must detect (`docs/design/testing.md`).
//!
//! `bug!("no-table-sync")` is the constant `false`, except in builds with `--cfg sim`. There a test process may switch
//! on one bug at a time. The name says what the bug breaks, so `if !bug!("no-table-sync") { sync()? }` always syncs in
//! the builds that people use.

#[cfg(sim)]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(sim)]
static ACTIVE: AtomicU64 = AtomicU64::new(0);

/// Returns a number for a bug's name: its 64-bit FNV-1a hash, or 0 for the empty name.
#[cfg(sim)]
#[must_use]
pub const fn code(name: &str) -> u64 {
    let (mut hash, mut at) = (if name.is_empty() { 0 } else { 0xcbf2_9ce4_8422_2325 }, 0);
    while at < name.len() {
        hash = (hash ^ name.as_bytes()[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

/// Switches the bug `name` on and any other bug off. The empty name switches all bugs off.
#[cfg(sim)]
pub fn activate(name: &str) {
    ACTIVE.store(code(name), Relaxed);
}

/// Returns whether the bug with this [`code`] is switched on.
#[cfg(sim)]
pub fn on(code: u64) -> bool {
    ACTIVE.load(Relaxed) == code
}

/// Evaluates to whether the named seeded bug is switched on; `false` outside simulation builds.
#[cfg(sim)]
#[macro_export]
macro_rules! bug {
    ($name:literal) => {
        $crate::bug::on(const { $crate::bug::code($name) })
    };
}

/// Evaluates to whether the named seeded bug is switched on; `false` outside simulation builds.
#[cfg(not(sim))]
#[macro_export]
macro_rules! bug {
    ($name:literal) => {
        false
    };
}
