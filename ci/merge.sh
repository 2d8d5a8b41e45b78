#!/usr/bin/env bash
# The merge lane: the runs that every change must pass, the floors on their volume, and the regression gate. The same
# commit gives the same seeds and the same result.
set -euo pipefail

# Counts are reproducible on all machines. Instructions are measured where valgrind exists, and judged on the
# processor that the gate file names. The gate uses one core and measures no time, so it runs beside the lane's runs.
gate="bash ci/gate.sh"
if ! command -v valgrind > /dev/null; then
    echo "no valgrind here: instructions are not measured"
    gate="$gate --counts"
fi
BESIDE=$gate exec bash "$(dirname "$0")/lane.sh" merge
