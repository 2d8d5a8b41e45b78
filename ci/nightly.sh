#!/usr/bin/env bash
# The nightly lane: the modules with `unsafe` under Miri, then the search for the worst loads and the runs of the merge
# lane at a larger volume, with seeds of the day, then the gate with instructions, which needs valgrind. Miri needs a
# nightly toolchain with the components miri and rust-src.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tree borrows: the rules that the arena and the list keep. Tests take smaller sizes under `cfg(miri)`.
export MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-strict-provenance -Zmiri-disable-isolation"
export PROPTEST_CASES=4
target=${CARGO_TARGET_DIR:-target}/miri
cargo +nightly miri test --quiet --target-dir "$target" --package drumlin --lib memtable::
echo "miri: modules of memtable, UB 0"
unset MIRIFLAGS PROPTEST_CASES

# The worst loads for the adaptive policy, searched for longer than `cargo test` does, and from elsewhere.
ADVERSE_SEED=$(date -u +%Y%m%d) ADVERSE_ROUNDS=20 \
    cargo test --quiet --release --package drumlin-policy --test adverse -- --nocapture --test-threads 2

# Each call of the file system fails once; every test run fails one in seven.
FAULTS=all cargo test --quiet --release --package drumlin --test faults -- --nocapture

bash ci/lane.sh nightly
exec bash ci/gate.sh
