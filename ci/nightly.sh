#!/usr/bin/env bash
# The nightly lane: the runs of the merge lane at a larger volume, with seeds of the day.
set -euo pipefail
exec bash "$(dirname "$0")/lane.sh" nightly
