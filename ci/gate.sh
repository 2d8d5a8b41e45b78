#!/usr/bin/env bash
# The regression gate: compares reproducible counts, and instruction counts by callgrind, with ci/gate.toml.
#
#     bash ci/gate.sh [--update --reason TEXT] [--only NAME] [--counts] [--regress PERCENT]
#
# It builds into its own target folder. The build fixes the processor type, because valgrind does not support the
# newest instructions, and it counts allocations. Without valgrind the gate fails, since it must not pass unmeasured
# figures; --counts omits instruction counts.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/gate
RUSTFLAGS="-C target-cpu=x86-64-v3" cargo build --quiet --profile gate --target-dir "$target" \
    --package drumlin-cli --features counted
exec "$target/gate/drumlin" bench gate "$@"
