//! Fuzzing: one target per decoder of bytes that may come from elsewhere than this store.
//!
//! A [`Target`] is a function from bytes to "accepted" or "refused" that panics when a rule is broken. Three drivers
//! share it: the libFuzzer binaries of `fuzz/`; `cargo test`, which runs the corpus and a few mutations; and
//! `drumlin-torture fuzz`, which runs many mutations. Each target checks these rules:
//!
//! - no panic, for any bytes;
//! - at most `4 x input + 64 MiB` on the heap at any moment ([`heap`]);
//! - no endless loop: a decoder returns no more items than its input has space for;
//! - an accepted input is encoded again and decodes to the same value; to the same bytes, where a value has only one
//!   encoding.
//!
//! Checksums hide decoders from a fuzzer. So each target has a `mend` function, which corrects the checksums of
//! damaged bytes in place; half of the mutated inputs pass through it ([`mend`]).
//!
//! [`targets::all`] is the registry. Each kind of file and each module of `drumlin-format` has a target: the match in
//! [`of_file`] does not compile without one, and a test compares the registry with the folder of codecs.

pub mod corpus;
pub mod heap;
pub mod mend;
pub mod mutate;
mod target;
pub mod targets;

pub use target::Target;

use drumlin_format::names::FileName;

/// Heap bytes that a decoder may use beyond four times its input.
const HEAP_ALWAYS_ALLOWED: u64 = 64 << 20;
/// Heap bytes that a decoder may use per input byte.
const HEAP_PER_BYTE: u64 = 4;

/// Returns the targets for the content of a file of this kind; empty for a kind without content.
pub fn of_file(name: FileName) -> &'static [&'static str] {
    match name {
        FileName::Log(_) => &["log-header", "log-records", "log-recovery", "batch", "store"],
        FileName::Table(_) => &["table", "block", "index", "filter", "table-properties", "table-footer"],
        FileName::Manifest(_) => &["manifest", "manifest-edit"],
        FileName::Pointer => &["pointer"],
        FileName::Decisions(_) => &["decisions", "policy-call"],
        FileName::Value(_) => &["value-file", "value-pointer"],
        FileName::Map(_) => &["value-map"],
        // Nothing reads the content of these files.
        FileName::Lock | FileName::Temp(_) => &[],
    }
}

/// Runs `target` on `input` with the heap limit in force; returns whether the target accepted the input.
///
/// # Panics
/// Panics when a rule is broken.
pub fn check(target: &Target, input: &[u8]) -> bool {
    let limit = HEAP_ALWAYS_ALLOWED + HEAP_PER_BYTE * input.len() as u64;
    let (accepted, peak) = heap::peak_of(|| (target.run)(input));
    assert!(peak <= limit, "{peak} bytes on the heap for an input of {} bytes", input.len());
    accepted
}

/// Returns the target called `name`.
pub fn by_name(name: &str) -> Option<Target> {
    targets::all().into_iter().find(|target| target.name == name)
}
