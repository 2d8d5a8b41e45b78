#!/usr/bin/env bash
# Runs the models of `crates/drumlin/src/models`, which are small programs whose threads shuttle schedules. Also hunts
# for the seeded bugs that the models must find. Ends with one figure line.
#
#     bash ci/models.sh
#
# Environment: SCHEDULES is the number of schedules per model (default 100); some models run a fixed share of it. SEED
# is the first seed (default 1). MODEL selects the models whose names contain it (default: all). The script prints
# each failing schedule, with the command that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
export RUST_BACKTRACE=${RUST_BACKTRACE:-0} RUSTFLAGS="--cfg shuttle --cfg sim"
# For few schedules, a build without optimization takes less time in all: it compiles in 0.4 of the time and runs at a
# quarter of the speed.
build=()
if [ "${SCHEDULES:-100}" -le 2000 ]; then
    export CARGO_PROFILE_DEV_OPT_LEVEL=0
    build=(--config 'profile.dev.package."*".opt-level=1')
fi
lib_tests() {
    cargo test --quiet ${build[@]+"${build[@]}"} --target-dir "$target/shuttle" --package drumlin --lib "$@"
}
# Tests the options in this build too. It lacks the feature `experiments`, which the workspace's tests have, and with
# it some options. Skips tests that open a store, because in this build only models can do that.
lib_tests options::tests:: -- --skip ops:: | tee >(cat >&2) | grep -c '^test result: ok. [1-9]' > /dev/null
lib_tests models:: -- --nocapture
