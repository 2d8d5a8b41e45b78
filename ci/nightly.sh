#!/usr/bin/env bash
# The nightly lane. It runs the modules with `unsafe` under Miri, searches for the worst workloads, runs the merge
# lane's runs at a larger volume with seeds of the day, and runs the gate with instruction counts. The gate needs
# valgrind. Miri needs a nightly toolchain with the components miri and rust-src; the search needs cargo-fuzz. About 150
# minutes on two cores. A failed part does not end the lane: the others run, and the lane fails at its end. If the lane
# is stopped, call it again with the same FILE at the same commit: completed parts are kept in FILE.parts.
#
#     bash ci/nightly.sh [FILE]
#
# FILE, target/nightly.txt by default, gets the figure lines with the commit and the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
file=${1:-$target/nightly.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$(date +%s)
for tool in "valgrind --version" "cargo fuzz --version" "cargo +nightly miri --version"; do
    $tool > /dev/null 2>&1 || { echo "the nightly lane needs this to work: $tool" >&2; exit 2; }
done

mkdir -p "$(dirname "$file")"
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
parts=$file.parts
# Parts are kept for a commit only, so they are dropped if the files differ from it.
if [ "$(cat "$parts/commit" 2>/dev/null)" != "$commit" ] || [ -n "$(git status --porcelain 2>&1)" ]; then
    rm -rf "$parts"
    mkdir -p "$parts"
    echo "$commit" > "$parts/commit"
fi
{
    echo "# Figures of the nightly lane."
    echo "commit $commit, $(date -u +%Y-%m-%d)"
    echo "machine $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores"
} > "$file"
failed=()
keep() { tee >(cat >&2) | grep -aE '^[a-z-]+: .*[0-9]|^(gate|floors)' >> "$file" || true; }

# Miri uses one core, so it runs beside the other parts. Arena and list obey the tree borrows rules. Tests use smaller
# sizes under `cfg(miri)`.
miri() {
    export MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-strict-provenance -Zmiri-disable-isolation" PROPTEST_CASES=4
    cargo +nightly miri test --quiet --target-dir "$target/miri" --package drumlin --lib \
        -- memtable:: base::epoch base::thread write::waiting write::publish stats::operations
}
miri > "$work/miri" 2>&1 &
miri=$!

# Search for the worst workloads for the adaptive policy, longer than `cargo test` does and from another seed.
ADVERSE_SEED=$(date -u +%Y%m%d) ADVERSE_ROUNDS=20 \
    cargo test --quiet --release --package drumlin-policy --test adverse -- --nocapture --test-threads 2 \
    || failed+=(adverse)

# All courses of the paced bench; an ordinary test run leaves out those that take long without optimization.
PACED=all cargo test --quiet --release --package drumlin-bench --lib || failed+=(paced)

# Make each file system call fail once; an ordinary test run makes one call in thirteen fail.
FAULTS=all cargo test --quiet --release --package drumlin --test faults -- --nocapture || failed+=(faults)

# Tests the library as programs embed it, without the feature `experiments`, which other crates of the workspace
# enable. By day only the lints compile this build, and the build of the models tests its options.
cargo test --package drumlin-policy --package drumlin --lib || failed+=(embedded)

LANE_PARTS=$parts bash ci/lane.sh nightly | keep || failed+=(lane)

if wait "$miri"; then
    tests=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$work/miri")
    echo "miri: memtable, epochs, threads, commits $tests tests, UB 0" | keep
    # A renamed module must not drop out of the selection unnoticed.
    [ "${tests:-0}" -ge 44 ] || failed+=("miri: only $tests tests")
else
    cat "$work/miri" >&2
    failed+=(miri)
fi

bash ci/gate.sh | keep || failed+=(gate)
echo "nightly: minutes $((($(date +%s) - began) / 60)), failed ${#failed[@]}" | keep
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
