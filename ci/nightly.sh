#!/usr/bin/env bash
# The nightly lane. It runs the modules with `unsafe` under Miri, searches for the worst workloads, runs the merge
# lane's runs at a larger volume with seeds of the day, and runs the gate with instruction counts. The gate needs
# valgrind. Miri needs a nightly toolchain with the components miri and rust-src.
set -euo pipefail
cd "$(dirname "$0")/.."

# Arena and list obey the tree borrows rules. Tests use smaller sizes under `cfg(miri)`.
export MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-strict-provenance -Zmiri-disable-isolation"
export PROPTEST_CASES=4
target=${CARGO_TARGET_DIR:-target}/miri
cargo +nightly miri test --quiet --target-dir "$target" --package drumlin --lib memtable::
echo "miri: modules of memtable, UB 0"
unset MIRIFLAGS PROPTEST_CASES

# Search for the worst workloads for the adaptive policy, longer than `cargo test` does and from another seed.
ADVERSE_SEED=$(date -u +%Y%m%d) ADVERSE_ROUNDS=20 \
    cargo test --quiet --release --package drumlin-policy --test adverse -- --nocapture --test-threads 2

# Make each file system call fail once; an ordinary test run makes one call in seven fail.
FAULTS=all cargo test --quiet --release --package drumlin --test faults -- --nocapture

bash ci/lane.sh nightly
exec bash ci/gate.sh
