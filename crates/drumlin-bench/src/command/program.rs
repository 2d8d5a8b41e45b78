//! Description of a program that offers the benchmarks.

use crate::engine::Engines;

/// A program that offers the benchmarks.
pub struct Program {
    /// Engines of the program. The others are compared with the first one.
    pub engines: &'static Engines,
    /// Arguments that precede those of the benchmarks.
    pub prefix: &'static [&'static str],
    /// Name of the memory allocator.
    pub allocator: &'static str,
    /// Text of the `Cargo.toml` with the build profiles.
    pub profiles: &'static str,
}
