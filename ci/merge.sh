#!/usr/bin/env bash
# The merge lane: the runs that every change must pass, the floors on their volume, and the regression gate. The same
# commit gives the same seeds and the same result.
set -euo pipefail
code=0
bash "$(dirname "$0")/lane.sh" merge || code=1
# Counts are reproducible on all machines. Instructions are measured where valgrind exists, and judged on the
# processor that the gate file names.
if command -v valgrind > /dev/null; then
    bash "$(dirname "$0")/gate.sh" || code=1
else
    echo "no valgrind here: instructions are not measured"
    bash "$(dirname "$0")/gate.sh" --counts || code=1
fi
exit $code
