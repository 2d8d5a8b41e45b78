//! Seeded bugs: the tests must be able to find each of them (`docs/design/testing.md`).
//!
//! `bug!("B10")` is the constant `false` in every build but one made with `--cfg sim`, where a test
//! process may switch on exactly one bug for its whole life.

#[cfg(sim)]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(sim)]
static ACTIVE: AtomicU64 = AtomicU64::new(0);

/// The bug's name as a number: up to seven ASCII bytes.
#[cfg(sim)]
fn code(name: &str) -> u64 {
    name.bytes().fold(0, |sum, byte| (sum << 8) | u64::from(byte))
}

/// Switches the bug `name` on, and any other off; the empty name switches all off.
#[cfg(sim)]
pub fn activate(name: &str) {
    ACTIVE.store(code(name), Relaxed);
}

/// Whether the bug `name` is on.
#[cfg(sim)]
pub fn on(name: &str) -> bool {
    ACTIVE.load(Relaxed) == code(name)
}

/// Whether the seeded bug of this name is switched on; `false` outside simulation builds.
#[cfg(sim)]
#[macro_export]
macro_rules! bug {
    ($name:literal) => {
        $crate::bug::on($name)
    };
}

/// Whether the seeded bug of this name is switched on; `false` outside simulation builds.
#[cfg(not(sim))]
#[macro_export]
macro_rules! bug {
    ($name:literal) => {
        false
    };
}
