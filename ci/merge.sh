#!/usr/bin/env bash
# The merge lane: the runs that every change passes, and the floors that show they looked.
# Same commit, same seeds, same result.
set -euo pipefail
exec bash "$(dirname "$0")/lane.sh" merge
