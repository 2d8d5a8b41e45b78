#!/bin/sh
# The tests: every test of the workspace, the repository's habits, and the merge lane.
set -eu
cd "$(dirname "$0")/.."

cargo test --workspace
cargo xtask tidy
if [ -f ci/merge.sh ]; then
    bash ci/merge.sh
fi
