#!/usr/bin/env bash
# Measures the missing reports of the comparison with other engines: one report of three rounds for each row, in
# docs/results/comparison. To measure a report again, delete its file first. A report that was interrupted has the
# suffix `.part` and is measured again. Run nothing else meanwhile: rounds on a machine that was not idle do not
# count. In each round Drumlin runs twice (`--aa`), which shows how far two runs of the same program differ.
#
#     bash scripts/compare.sh [ROW..]
#
# Stores go to the folder DB (default: $TMPDIR or /tmp), which must lie on a disk.
#
# Afterwards `cargo xtask bless -p drumlin-bench` generates docs/results/comparison.md from the reports.
set -euo pipefail
cd "$(dirname "$0")/.."
results=docs/results/comparison
mkdir -p "$results"
# Builds in the folder of the program, so that its .cargo/config.toml applies. The tests find options that do not take
# effect.
(cd compare && cargo test --release --target-dir target && cargo build --release --target-dir target)
program=compare/target/release/drumlin-compare

pair=drumlin,rocksdb,rocksdb-tuned
writers=$pair,rocksdb-universal
# For rows with a measured load.
loaders=$writers,rocksdb-deferred
# For stores that fit into the block cache and are read while or after they are written.
cached=$writers,rocksdb-warm
four=$writers,rocksdb-pinned
wanted=" $* "
known=" "
failed=()
row() {
    local name=$1 file=$results/$1.json
    shift
    known+="$name "
    if [ "$wanted" != "  " ] && [[ "$wanted" != *" $name "* ]]; then return; fi
    if [ -f "$file" ]; then return; fi
    echo "== $name: $*" >&2
    "$program" "$@" --rounds 3 --aa --brief ${DB:+--db "$DB"} --json "$file" && return
    failed+=("$name")
    # The report of a failed run, such as one with fewer than three usable rounds of a phase, counts as missing.
    if [ -f "$file" ]; then mv "$file" "$file.part"; fi
}

row load micro fillrandom --num 10000000 --engines "$loaders"
row small micro fillrandom,readrandom,readmissing,seekrandom,readseq --num 1000000 --engines "$four,fjall,redb,lmdb"
row large micro fillrandom,readrandom,readmissing,seekrandom,scan50,readseq --num 10000000 --engines "$four"
row kib micro fillrandom,readrandom,readmissing,seekrandom --num 2000000 --key-size 24 --value-size 1000 \
    --engines "$writers"
row overwrite micro fillrandom,overwrite --num 4000000 --engines "$loaders"
row ycsb ycsb --workload all --records 1000000 --ops 500000 --value-size 100 --engines "$cached"
row ycsb-2 ycsb --workload all --records 1000000 --ops 500000 --value-size 100 --threads 2 --engines "$cached"
row ycsb-4 ycsb --workload all --records 1000000 --ops 500000 --value-size 100 --threads 4 --engines "$cached"
row ycsb-large ycsb --workload all --records 10000000 --ops 1000000 --value-size 100 --engines "$cached"
row beside-writer micro readwhilewriting --num 1000000 --write-rate 10000000 --engines "$writers"
row uncached micro readuncached,readuncached16,multiget,readpagecache --num 1500000 --reads 60000 \
    --engines "$pair,rocksdb-pinned"
row sync micro fillsync --num 1000000 --engines "$pair"
row sync-8 micro fillsync --num 1000000 --threads 8 --engines "$pair"
row rate micro fillrandom --num 3000000 --rate 98500 --engines "$loaders"
row threads-2 micro fillrandom,readrandom,readmissing --num 2000000 --threads 2 --engines "$loaders"
row batch micro fillbatch --num 2000000 --engines "$loaders"
row zipf micro readrandom,readmissing --num 2000000 --theta 0.99 --engines "$pair"
row lz4 micro fillrandom,readrandom,readseq --num 2000000 --compression lz4 --engines "$loaders"
row values-64k micro fillrandom,readrandom --num 30000 --reads 300000 --value-size 65536 --engines "$pair"
# Values in value files and in blob files.
blobs=drumlin,rocksdb-tuned,rocksdb-blob,rocksdb-blob-forced
blob="values --scale 1/64 --memory 3GiB --memtable 64MiB --set value_threshold=1KiB --engines $blobs"
row blob-4k $blob
row blob-16k $blob --value-size 16384
row blob-64k $blob --value-size 65536
row open micro open --num 1000000 --engines "$pair"
# Phases whose mix changes without notice: 640,000 entries of 1 KiB, with memory for a tenth of them.
dynamic="--scale 1/64 --memory 64MiB --memtable 2MiB --engines $writers --html /dev/null"
row dynamic-1 dynamic --plan I $dynamic
row dynamic-2 dynamic --plan II $dynamic
# How writes and lookups scale with threads, on a machine with 16 cores.
if [ "$(nproc)" -eq 16 ]; then
    for threads in 1 2 4 8 16; do
        row "cores-16-threads-$threads" micro fillrandom,readrandom,readmissing --num 2000000 --threads "$threads" \
            --engines "$pair"
    done
    row cores-16-sync micro fillsync --num 200000 --threads 16 --engines "$pair"
fi

for name in "$@"; do
    if [[ "$known" != *" $name "* ]]; then failed+=("$name: no such row on this machine"); fi
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
