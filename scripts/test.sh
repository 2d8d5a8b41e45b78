#!/bin/sh
# Runs every test of the workspace, the repository's own checks, and the merge lane.
set -eu
cd "$(dirname "$0")/.."

# Property tests draw their cases from the commit, as the merge lane does: the same commit gives the same result. Without
# the variable, `cargo test` draws others each time.
commit=$(git rev-parse --short=8 HEAD 2>/dev/null || echo 1)
PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$(printf %d "0x$commit")}
export PROPTEST_RNG_SEED
echo "property tests: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"

cargo test --workspace
# What programs embed, as they get it: the workspace's other crates enable the feature `experiments`.
cargo test --package drumlin-policy --package drumlin --lib
cargo xtask tidy
if [ -f ci/merge.sh ]; then
    bash ci/merge.sh
fi
