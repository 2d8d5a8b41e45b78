#!/usr/bin/env bash
# Runs one lane of `drumlin-torture` and holds its figure lines against ci/floors.toml.
# A lane fails when a run fails, when a figure misses its floor, or when a figure line is absent.
#
#     bash ci/lane.sh merge|nightly
set -euo pipefail
lane=$1
cd "$(dirname "$0")/.."

if [ ! -e crates/drumlin-torture/src/main.rs ] && [ ! -d crates/drumlin-torture/src/bin ]; then
    echo "lane $lane: NOT RUN, drumlin-torture has no program yet"
    exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

cargo run --quiet --profile sim --package drumlin-torture -- "$lane" | tee "$log"
cargo xtask floors "$log" --lane "$lane"
