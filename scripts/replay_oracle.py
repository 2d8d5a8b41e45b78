#!/usr/bin/env python3
"""Computes the expected content of a store after `drumlin replay`, and compares it with the store.

The script parses the trace independently of Drumlin, applies it to a dictionary, and compares the dictionary with
the lines of `drumlin scan --format tsv`. It reads them from stdin, or runs the binary when --db is given. It prints

    keys N, differing D

where N counts the keys in the dictionary, and D the keys that are missing, surplus, out of order or have another
value. The exit status is 0 if D is 0, 1 if not, and 2 on wrong usage.

    drumlin replay db trace.csv.zst && scripts/replay_oracle.py trace.csv.zst --drumlin target/release/drumlin --db db
    drumlin scan db | scripts/replay_oracle.py trace.csv.zst

Needs the zstd command for compressed files.
"""

import argparse
import subprocess
import sys
from functools import cache

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


@cache
def lanes(words):
    """Returns three constants for `words` words, in lanes of 128 bits: 1, the 64-bit mask, and (i + 1) * GAMMA."""
    ones = sum(1 << (128 * i) for i in range(words))
    steps = sum((((i + 1) * GAMMA) & MASK) << (128 * i) for i in range(words))
    return ones, MASK * ones, steps


def generated_value(key, write_number, size):
    """Returns the value that a replay without --values writes: splitmix64 from FNV-1a-64(key) xor the write number.

    One large number holds all words, so that they are computed at once. A lane of 128 bits holds the product of
    two words, and the mask reduces it to 64 bits.
    """
    seed = 0xCBF29CE484222325
    for byte in key:
        seed = ((seed ^ byte) * 0x100000001B3) & MASK
    seed ^= write_number
    words = (size + 7) // 8
    if words == 0:
        return b""
    ones, mask, steps = lanes(words)
    z = (seed * ones + steps) & mask
    z = ((z ^ (z >> 30) & mask) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27) & mask) * 0x94D049BB133111EB) & mask
    z ^= (z >> 31) & mask
    lane_bytes = z.to_bytes(16 * words, "little")
    return b"".join(lane_bytes[i : i + 8] for i in range(0, len(lane_bytes), 16))[:size]


def contents(path):
    """Returns the bytes of a file, decompressed if it is a zstd frame."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\x28\xb5\x2f\xfd":
        return data
    return subprocess.run(["zstd", "-d", "--long=27", "-c", path], stdout=subprocess.PIPE, check=True).stdout


def real_values(path):
    """Yields the objects of a file in `git cat-file --batch` framing, one after the other."""
    data = contents(path)
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        yield data[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def operations(path, expand):
    """Yields (op, key, size) in order."""
    lines = contents(path).split(b"\n")
    header = lines[0]
    if header not in (b"ts,op,key,size", b"ts,op,lba,bytes"):
        sys.exit(f"{path}: not a trace")
    for line in lines[1:]:
        if not line:
            continue
        _, op, key, size = line.split(b",")
        size = int(size)
        if header == b"ts,op,key,size":
            yield op, key, size
        elif not expand:
            yield op, b"%016x" % int(key), size
        elif size > 0:
            start = int(key) * 512
            for block in range(start // 4096, (start + size - 1) // 4096 + 1):
                yield op, b"%016x" % block, 4096


def expected_map(arguments):
    """Returns the final state: key -> (put number, size), or the value itself with --values. Also counts gets."""
    values = real_values(arguments.values) if arguments.values else None
    state = {}
    puts = deletes = hits = misses = 0
    for op, key, size in operations(arguments.trace, arguments.expand_4k):
        if op == b"P":
            if values is None:
                state[key] = (puts, size)
            else:
                state[key] = next(values)
            puts += 1
        elif op == b"D":
            state.pop(key, None)
            deletes += 1
        elif key in state:
            hits += 1
        else:
            misses += 1
    print(f"oracle: {puts} puts, {deletes} deletes, {hits} gets found, {misses} not", file=sys.stderr)
    return state


def unescape(text):
    # A scan's four escapes mean the same in Python, whose decoder runs at the speed of C.
    if b"\\" not in text:
        return text
    return text.decode("unicode_escape").encode("latin-1")


def compare(state, lines):
    """Returns the number of keys that differ; prints the first few on stderr."""
    differing = 0
    last = None

    def report(what, key):
        nonlocal differing
        differing += 1
        if differing <= 10:
            print(f"oracle: {what}: {key!r}", file=sys.stderr)

    left = dict(state)
    for line in lines:
        key, value = (unescape(field) for field in line.rstrip(b"\n").split(b"\t"))
        if last is not None and key <= last:
            report("out of order", key)
        last = key
        if key not in left:
            report("surplus", key)
            continue
        expected = left.pop(key)
        if isinstance(expected, tuple):
            expected = generated_value(key, *expected)
        if value != expected:
            report("another value", key)
    for key in sorted(left):
        report("missing", key)
    return differing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--values", help="as given to drumlin replay")
    parser.add_argument("--expand-4k", action="store_true", help="as given to drumlin replay")
    parser.add_argument("--drumlin", default="drumlin", help="the binary to run with --db")
    parser.add_argument("--db", help="scan this store; without it, read the lines of a scan from stdin")
    parser.add_argument("--keyspace", default="default")
    arguments = parser.parse_args()

    state = expected_map(arguments)
    if arguments.db is None:
        differing = compare(state, sys.stdin.buffer)
    else:
        command = [arguments.drumlin, "scan", arguments.db, "--format", "tsv", "--keyspace", arguments.keyspace]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as scan:
            differing = compare(state, scan.stdout)
        if scan.returncode != 0:
            sys.exit(f"oracle: the scan ended with status {scan.returncode}")
    print(f"keys {len(state)}, differing {differing}")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
