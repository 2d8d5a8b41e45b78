#!/usr/bin/env bash
# The merge lane: the runs that every change passes, the floors that show they looked, and the regression gate.
# Same commit, same seeds, same result.
set -euo pipefail
bash "$(dirname "$0")/lane.sh" merge
# Counts repeat everywhere. Instructions depend on the processor that valgrind finds, so the nightly lane judges them.
exec bash "$(dirname "$0")/gate.sh" --counts
