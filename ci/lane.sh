#!/usr/bin/env bash
# Runs one lane of tests that are too long, or too odd, for `cargo test`, and holds their figure lines against
# ci/floors.toml. A lane fails when a run fails, when a figure misses its floor, or when a line is absent.
#
#     bash ci/lane.sh merge|nightly
#
# The simulated runs are built apart, with the seeded bugs compiled in (`--cfg sim`) and all off. The kill run is of
# the real program on real files.
set -euo pipefail
lane=$1
cd "$(dirname "$0")/.."

# The merge lane's seeds are made from the commit: same commit, same result, and other seeds with every commit. Outside a
# repository there is no commit to make them from.
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo 1)
case $lane in
    merge) times=1 kills=15 seed=$((16#$commit)) ;;
    nightly) times=10 kills=300 seed=$(date -u +%Y%m%d) ;;
    *) echo "usage: bash ci/lane.sh merge|nightly" >&2; exit 2 ;;
esac
echo "lane $lane, seed $seed"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
target=${CARGO_TARGET_DIR:-target}

RUSTFLAGS="--cfg sim" cargo build --quiet --profile sim --target-dir "$target/cfgsim" --package drumlin-torture
torture=$target/cfgsim/sim/drumlin-torture
run() { "$torture" "$@" --seed "$seed" | tee -a "$log"; }
run tapes
# Seeds that once failed, or that reach something rare: each is replayed as it is.
while read -r kind number rest; do
    case $kind in '' | '#'*) continue ;; esac
    # shellcheck disable=SC2086
    "$torture" "$kind" --seed "$number" --cases 1 $rest
done <ci/seeds.txt
run model --cases $((1500 * times))
run crash --cases $((115 * times))
run meta --cases $((30 * times))
run corrupt --cases $((60000 * times))
run repeat --cases $((100 * times))
# Its floor says how many of the seeded bugs must be found; it fails by itself unless all are.
{ "$torture" bank || true; } | tee -a "$log"

cargo build --quiet --package drumlin-cli
for durability in buffered sync; do
    python3 scripts/kill_test.py --drumlin "$target/debug/drumlin" --kills "$kills" --durability "$durability" \
        --set memtable_bytes=256KiB --seed "$seed" | tee -a "$log"
done

cargo xtask floors "$log" --lane "$lane"
