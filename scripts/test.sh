#!/bin/sh
# Runs every test of the workspace, the repository's own checks, and the merge lane.
set -eu
cd "$(dirname "$0")/.."

cargo test --workspace
# What programs embed, as they get it: the workspace's other crates enable the feature `experiments`.
cargo test --package drumlin-policy --package drumlin --lib
cargo xtask tidy
if [ -f ci/merge.sh ]; then
    bash ci/merge.sh
fi
