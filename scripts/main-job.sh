#!/bin/sh
# The main job, from an empty folder to a verified store: builds the command, loads Debian's package index, counts the
# entries, scans by prefix, reads one stanza back and compares it byte for byte, prints the tree, and verifies every
# block.
#
# Without a Debian system, give the index as an argument: sh scripts/main-job.sh Packages
set -eu
cd "$(dirname "$0")/.."

cargo build --release --package drumlin-cli
drumlin=${CARGO_TARGET_DIR:-target}/release/drumlin

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
index=$work/Packages
store=$work/store

if [ $# -gt 0 ]; then
    cp "$1" "$index"
else
    # Keep the package lists in the temporary folder, so that the system stays unchanged.
    mkdir -p "$work/lists/partial" "$work/cache"
    set -- -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Acquire::Languages=none \
        -o APT::Sandbox::User=root
    apt-get "$@" -qq update
    apt-cache "$@" dumpavail > "$index"
fi

"$drumlin" load "$store" "$index" --format deb822

# Distinct keys of the index's stanzas; a key is Package/Version/Architecture.
awk 'function emit() { if (p != "") print p "/" v "/" a; p = v = a = "" }
     /^[ \t]*$/ { emit() } /^Package: / { p = $2 } /^Version: / { v = $2 } /^Architecture: / { a = $2 } END { emit() }' \
    "$index" | LC_ALL=C sort -u > "$work/keys"
expected=$(wc -l < "$work/keys" | tr -d ' ')
counted=$("$drumlin" count "$store" | tr -dc '0-9')
echo "count: $counted entries"
if [ "$counted" != "$expected" ]; then
    echo "main job: the index has $expected packages, the store $counted entries" >&2
    exit 1
fi

# A package from the middle of the index. The store keeps the last stanza with its key.
key=$(sed -n "$((expected / 2))p" "$work/keys")
"$drumlin" scan "$store" --prefix "${key%%/*}/" --keys-only
awk -v key="$key" 'function done() { if (p "/" v "/" a == key) last = text; text = p = v = a = "" }
     /^[ \t]*$/ { done(); next } { text = text $0 "\n" }
     /^Package: / { p = $2 } /^Version: / { v = $2 } /^Architecture: / { a = $2 } END { done(); printf "%s", last }' \
    "$index" > "$work/expected"
"$drumlin" get "$store" "$key" --raw > "$work/actual"
cmp "$work/expected" "$work/actual"
echo "get: $key reads back byte for byte"

"$drumlin" tree "$store"
"$drumlin" verify "$store"
echo "main job: done"
