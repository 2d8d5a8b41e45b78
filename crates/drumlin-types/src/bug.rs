//! Seeded bugs: deliberate faults that the tests must detect (`docs/design/testing.md`).
//!
//! `bug!("B10")` is the constant `false`, except in builds with `--cfg sim`. There a test process may switch on one
//! bug at a time.

#[cfg(sim)]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(sim)]
static ACTIVE: AtomicU64 = AtomicU64::new(0);

/// Encodes a bug's name, up to seven ASCII bytes, as a number.
#[cfg(sim)]
fn code(name: &str) -> u64 {
    name.bytes().fold(0, |sum, byte| (sum << 8) | u64::from(byte))
}

/// Switches the bug `name` on and any other bug off. The empty name switches all bugs off.
#[cfg(sim)]
pub fn activate(name: &str) {
    ACTIVE.store(code(name), Relaxed);
}

/// Returns whether the bug `name` is switched on.
#[cfg(sim)]
pub fn on(name: &str) -> bool {
    ACTIVE.load(Relaxed) == code(name)
}

/// Evaluates to whether the named seeded bug is switched on; `false` outside simulation builds.
#[cfg(sim)]
#[macro_export]
macro_rules! bug {
    ($name:literal) => {
        $crate::bug::on($name)
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
