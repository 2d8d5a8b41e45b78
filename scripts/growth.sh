#!/usr/bin/env bash
# Measures the growth policies beside the others on the clock of a disk model: the mixes of Vertiorizon, uniform and zipf,
# with the pipeline and without it. The figures are the same on every machine. Writes docs/results/growth.json, from which
# `cargo xtask bless -p drumlin-bench` generates docs/results/growth.md.
#
#     bash scripts/growth.sh
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "$(git status --porcelain -- crates Cargo.toml Cargo.lock)" ]; then
    echo "the sources differ from the commit; commit them first" >&2
    exit 1
fi
cargo build --release -p drumlin-cli
program=target/release/drumlin
policies=vertiorizon,vertiorizon:paper,horizontal-leveling:2,horizontal-tiering:2,horizontal-lazy:6/3
policies=$policies,leveling:6,1-leveling:6,tiering:6,lazy-leveling:6,universal,arce
results=target/growth
mkdir -p "$results"
for plan in growth growth-zipf; do
    for pipeline in pipelined split; do
        "$program" bench paced "$plan" --entries 60000 --policies "$policies" --set "pipeline=$pipeline" \
            --json "$results/$plan-$pipeline.json"
    done
done
{
    echo '['
    cat "$results/growth-pipelined.json"
    for name in growth-split growth-zipf-pipelined growth-zipf-split; do
        echo ','
        cat "$results/$name.json"
    done
    echo ']'
} > docs/results/growth.json
