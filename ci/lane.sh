#!/usr/bin/env bash
# Runs one lane: tests that are too long, or too unusual, for `cargo test`. Compares their figure lines with
# ci/floors.toml. A lane fails when a run fails, when a figure misses its floor, or when a line is absent. It goes on
# after a failed run, so one lane shows all failures.
#
#     bash ci/lane.sh merge|nightly
#
# With LANE_PARTS=FOLDER, the output of each completed part is kept there, and a part that is there already does not run
# again. So a lane that was stopped goes on where it was.
#
# The simulated runs use a separate build, with the seeded bugs compiled in (`--cfg sim`) and switched off. The kill
# run uses the real program on real files.
set -euo pipefail
lane=$1
cd "$(dirname "$0")/.."

# The merge lane derives its seeds from the commit: the same commit gives the same result, and another commit gives
# other seeds. Outside a repository the seed is 1. A run uses consecutive seeds from the first one. The six zeros keep
# the seeds of different nights apart.
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo 1)
case $lane in
    merge) times=1 crashes=160 faults=6 metas=24 schedules=1000 kills=15 seed=$((16#$commit)) ;;
    nightly) times=10 crashes=400 faults=80 metas=300 schedules=20000 kills=300 seed=$(date -u +%Y%m%d)000000 ;;
    *) echo "usage: bash ci/lane.sh merge|nightly" >&2; exit 2 ;;
esac
parts=${LANE_PARTS:-}
if [ -n "$parts" ]; then
    mkdir -p "$parts"
    [ -f "$parts/seed" ] || echo "$seed" > "$parts/seed"
    seed=$(cat "$parts/seed")
fi
echo "lane $lane, seed $seed"

work=$(mktemp -d)
log=$work/log search=$work/search
touch "$log"
searching=
trap '[ -z "$searching" ] || kill "$searching" 2> /dev/null || true; rm -rf "$work"' EXIT
target=${CARGO_TARGET_DIR:-target}

RUSTFLAGS="--cfg sim" cargo build --quiet --profile sim --target-dir "$target/cfgsim" --package drumlin-torture
torture=$target/cfgsim/sim/drumlin-torture
failed=()
# Runs a command, unless its output is there from an earlier time, and adds its output to the log.
part() {
    local name=$1 output began=$SECONDS
    shift
    output=${parts:+$parts/$name}
    if [ -n "$output" ] && [ -f "$output" ]; then
        tee -a "$log" < "$output"
    elif "$@" | tee "$work/output" | tee -a "$log"; then
        if [ -n "$output" ]; then mv "$work/output" "$output"; fi
    else
        failed+=("$name")
    fi
    echo "part $name took $((SECONDS - began)) s"
}
run() { part "$1" "$torture" "$@" --seed "$seed"; }

# Runs before the search starts, because memory peaks depend on how far flushes fall behind.
run bounds --cases $times

# At night the search for bytes that break a decoder runs beside the other runs, since it uses only one core. It
# continues from the inputs of earlier searches.
if [ "$lane" = nightly ]; then
    { FUZZ_SEED=$((seed % 4294967296)) bash ci/fuzz.sh ${parts:+--parts "$parts/search"} 1000000 || true; } > "$search" &
    searching=$!
fi
run tapes
# Replay the listed seeds, which once failed or which reach something rare.
while read -r kind number rest || [ -n "$kind" ]; do
    case $kind in '' | '#'*) continue ;; esac
    # shellcheck disable=SC2086
    "$torture" "$kind" --seed "$number" --cases 1 $rest </dev/null || failed+=("$kind --seed $number")
done <ci/seeds.txt
run model --cases $((1500 * times))
# In pieces, so that a stopped lane loses little. Floors hold for the sum of their lines.
for ((piece = 0; piece < times; piece++)); do
    part "crash-$piece" "$torture" crash --cases "$crashes" --seed $((seed + crashes * piece))
done
run fault --cases "$faults"
run fsync --cases $((15 * times))
run full --cases $((90 * times))
run segment --cases $((20000 * times))
run meta --cases "$metas"
run corrupt --cases $((60000 * times))
run repair --cases $((6000 * times))
run repeat --cases $((100 * times))
run threads --cases $((20 * times))
run admin --cases $((200 * times))
run fuzz --cases $((50000 * times))
# The floor of this run is the number of seeded bugs to find, so the status of the run itself is ignored: it fails
# unless it finds all of them.
bank() { "$torture" bank || true; }
part bank bank

export SCHEDULES=$schedules SEED=$seed
part models bash ci/models.sh

cargo build --quiet --package drumlin-cli
for durability in buffered sync; do
    part "kill-$durability" python3 scripts/kill_test.py --drumlin "$target/debug/drumlin" --kills "$kills" \
        --durability "$durability" --set memtable_bytes=256KiB --seed "$seed"
done

if [ "$lane" = nightly ]; then
    wait "$searching"
    searching=
    tee -a "$log" < "$search"
fi

cargo xtask floors "$log" --lane "$lane" || failed+=(floors)
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
