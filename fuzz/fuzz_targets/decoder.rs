//! The libFuzzer driver: `DRUMLIN_FUZZ=block cargo +nightly fuzz run decoder fuzz/corpus/block`.
//!
//! The targets are those of `drumlin_torture::fuzz`. Half of the mutated inputs get valid checksums, so that the
//! search reaches the code behind the checksum tests.

#![no_main]

use drumlin_torture::fuzz::{Target, by_name, check, heap};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

thread_local! {
    static TARGET: Target = chosen();
}

fn chosen() -> Target {
    let name = std::env::var("DRUMLIN_FUZZ").expect("DRUMLIN_FUZZ names a target");
    by_name(&name).unwrap_or_else(|| panic!("there is no target {name}"))
}

fuzz_target!(|input: &[u8]| {
    TARGET.with(|target| check(target, input));
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if seed % 2 == 0 {
        TARGET.with(|target| (target.mend)(&mut data[..size]));
    }
    size
});
