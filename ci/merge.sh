#!/usr/bin/env bash
# The merge lane: the runs that every change must pass, the floors on their volume, and the regression gate. The same
# commit gives the same seeds and the same result.
set -euo pipefail
code=0
folder=$(dirname "$0")
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# Counts are reproducible on all machines. Instructions are measured where valgrind exists, and judged on the
# processor that the gate file names. The gate uses one core and measures no time, so it runs beside the lane.
if command -v valgrind > /dev/null; then
    bash "$folder/gate.sh" > "$output" 2>&1 &
else
    echo "no valgrind here: instructions are not measured"
    bash "$folder/gate.sh" --counts > "$output" 2>&1 &
fi
gate=$!

bash "$folder/lane.sh" merge || code=1
wait $gate || code=1
cat "$output"
exit $code
