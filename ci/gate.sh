#!/usr/bin/env bash
# The regression gate: counts that repeat and instructions by callgrind, against ci/gate.toml.
#
#     bash ci/gate.sh [--update] [--only NAME] [--counts]
#
# Its own target folder: valgrind does not know the newest instructions, so the processor is fixed, and allocations are
# counted. Without valgrind the gate fails rather than pass what it did not measure; --counts leaves instructions out.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/gate
RUSTFLAGS="-C target-cpu=x86-64-v3" cargo build --quiet --profile gate --target-dir "$target" \
    --package drumlin-cli --features counted
exec "$target/gate/drumlin" bench gate "$@"
