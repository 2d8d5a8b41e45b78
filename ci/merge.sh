#!/usr/bin/env bash
# The merge lane: the runs that every change passes, the floors that show they looked, and the regression gate.
# Same commit, same seeds, same result.
set -euo pipefail
bash "$(dirname "$0")/lane.sh" merge
# Counts repeat everywhere; instructions are measured where there is valgrind, and judged on the processor of the file.
if command -v valgrind > /dev/null; then
    exec bash "$(dirname "$0")/gate.sh"
fi
echo "no valgrind here: instructions are not measured"
exec bash "$(dirname "$0")/gate.sh" --counts
