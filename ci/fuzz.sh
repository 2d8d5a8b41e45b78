#!/usr/bin/env bash
# Searches with libFuzzer, guided by code coverage, for bytes that break a decoder.
#
#     bash ci/fuzz.sh [--parts FOLDER] [EXECUTIONS [TARGET..]]
#
# With --parts, a target whose search is recorded in FOLDER is not searched again.
# Each target gets EXECUTIONS executions; a costlier target gets proportionally fewer. Needs a nightly toolchain and
# cargo-fuzz (`cargo install cargo-fuzz`). The script keeps inputs that reach new code in fuzz/target/found/TARGET for
# the next search, and inputs that break a rule in fuzz/target/broken/TARGET. Minimise a broken input with
# `-minimize_crash=1`, and add it to fuzz/corpus/TARGET together with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
parts=
if [ "${1:-}" = --parts ]; then
    parts=$2
    mkdir -p "$parts"
    shift 2
fi
executions=${1:-1000000}
shift || true

# A build that fails must not leave an older program to run.
rm -f fuzz/target/x86_64-unknown-linux-gnu/release/decoder
cargo +nightly fuzz build decoder 2>&1 | grep -v '^ *Compiling' >&2 || true
decoder=fuzz/target/x86_64-unknown-linux-gnu/release/decoder
[ -x "$decoder" ] || { echo "the fuzzer was not built" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
list=$(cargo run --quiet --package drumlin-torture -- fuzz --list)
targets=0 done=0 edges=0 crashes=0
while read -r target cost; do
    if [ $# -gt 0 ] && [[ " $* " != *" $target "* ]]; then continue; fi
    found=fuzz/target/found/$target broken=fuzz/target/broken/$target
    mkdir -p "$found" "$broken"
    targets=$((targets + 1))
    if [ -n "$parts" ] && [ -f "$parts/$target" ]; then
        cp "$parts/$target" "$log"
    elif ! DRUMLIN_FUZZ=$target "$decoder" -runs=$((executions / cost)) -seed="${FUZZ_SEED:-1}" -max_len=16384 \
        -len_control=20 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$broken/" \
        "$found" "fuzz/corpus/$target" > "$log" 2>&1; then
        crashes=$((crashes + 1))
        echo "fuzz: $target breaks a rule"
        grep -a -e 'panicked at' -A 3 -e 'ERROR' -e 'Test unit written' "$log" | head -20 || true
    elif [ -n "$parts" ]; then
        cp "$log" "$parts/$target"
    fi
    ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    reached=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    done=$((done + ${ran:-0})) edges=$((edges + ${reached:-0}))
    echo "$target: executions ${ran:-0}, edges ${reached:-0}" >&2
done <<< "$list"
[ "$targets" -gt 0 ] || { echo "no target is named: $*" >&2; exit 2; }
echo "search: targets $targets, executions $done, edges $edges, crashes $crashes"
[ "$crashes" = 0 ]
