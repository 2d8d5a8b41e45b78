//! A fuzz target: one decoder under test.

/// One decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the target, of its corpus and of its binary.
    pub name: &'static str,
    /// Modules of `drumlin-format` that the target exercises; empty for targets outside that crate.
    pub codecs: &'static [&'static str],
    /// Runs the decoder on these bytes; returns whether it accepted them. Panics when a rule is broken.
    pub run: fn(&[u8]) -> bool,
    /// Corrects the checksums in these bytes.
    pub mend: fn(&mut [u8]),
    /// Sound inputs, from which mutation starts. The decoder accepts each.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Approximate cost of one execution, relative to a decoder of bytes.
    pub cost: u64,
}
