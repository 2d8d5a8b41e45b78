#!/bin/sh
# Runs everything that a change must pass besides lints: all tests of the workspace, the repository's own checks, the
# regression gate and the merge lane. The same commit gives the same seeds and the same result.
set -eu
cd "$(dirname "$0")/.."

# Property tests draw their cases from the commit, as the merge lane does. Without the variable, `cargo test` draws
# others each time.
commit=$(git rev-parse --short=8 HEAD 2>/dev/null || echo 1)
PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$(printf %d "0x$commit")}
export PROPTEST_RNG_SEED
echo "property tests: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"

# Counts are reproducible on all machines. Instructions are measured where valgrind exists, and judged only with the
# compiler and processor that the gate file names. The gate measures no time, so it runs beside the tests, which often
# leave a core idle. It ends before the lane begins, whose bounds run needs idle cores.
counts=
if ! command -v valgrind > /dev/null; then
    echo "no valgrind here: instructions are not measured"
    counts=--counts
fi
log=$(mktemp)
# shellcheck disable=SC2086
bash ci/gate.sh $counts > "$log" 2>&1 &
gate=$!
trap '[ -z "$gate" ] || kill "$gate" 2> /dev/null || true; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# As in a lane, one failure does not hide the others.
failed=
cargo test --workspace || failed="$failed tests"
cargo xtask tidy || failed="$failed tidy"
wait "$gate" || failed="$failed gate"
gate=
cat "$log"
bash ci/lane.sh merge || failed="$failed lane"
if [ -n "$failed" ]; then
    # Prints the gate's output again at the end, where a truncated log still shows it.
    case $failed in *gate*) cat "$log" ;; esac
    echo "failed:$failed" >&2
    exit 1
fi
