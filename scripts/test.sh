#!/bin/sh
# Runs every test of the workspace, the repository's own checks, and the merge lane.
set -eu
cd "$(dirname "$0")/.."

cargo test --workspace
cargo xtask tidy
if [ -f ci/merge.sh ]; then
    bash ci/merge.sh
fi
