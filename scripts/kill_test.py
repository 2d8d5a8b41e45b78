#!/usr/bin/env python3
"""Kills a loading process repeatedly, and checks the content of the store after each kill.

Each round feeds puts with unique values to `drumlin load --ack --durability X`, and reads the keys that it
acknowledges. At a random moment the process receives SIGKILL. The store is then reopened, and

- `drumlin verify` must find nothing;
- the state must be the state before the round plus the first m writes of the round, for one m: no write before a
  surviving one may be missing, no value may be changed, and no deleted or overwritten version may reappear;
- m must be at least the number of acknowledged writes (for --durability none, which promises nothing before
  a flush, m may have any value).

Between rounds some keys are deleted with --durability sync; they must stay deleted until written again. The
state found after a kill is the base of the next round. Prints one figure line:

    kill-X: kills N, writes W, acknowledged A, kept K, deleted D, lost 0, wrong 0, damaged 0, seed S

`lost` counts acknowledged writes that are gone, `wrong` keys whose state no m explains and rounds in which the process
hung or ended by itself, and `damaged` rounds with findings of verify. The exit status is 0 if all three are 0. SIGKILL
ends a process, not the machine. So this tests that the kernel has a write before its acknowledgement, not that the disk
has it.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

# Maximum number of writes per round; the kill comes long before.
ROUND_WRITES = 200_000
# Seconds without output after which a process counts as hung.
PATIENCE = 120


class Figures:
    def __init__(self):
        self.kills = self.writes = self.acknowledged = self.kept = self.deleted = 0
        self.lost = self.wrong = self.damaged = 0


class Round:
    """One round: a process that loads, a thread that feeds it, a thread that reads its output, and the kill."""

    def __init__(self, arguments, database, writes, target, delay):
        self.writes = writes
        self.target = target
        self.fed = 0
        self.acknowledged = []
        self.reached = threading.Event()
        command = [arguments.drumlin, "load", database, "-", "--format", "tsv", "--ack"]
        command += ["--durability", arguments.durability]
        if arguments.policy:
            command += ["--policy", arguments.policy]
        for setting in arguments.set:
            command += ["--set", setting]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        threads = [threading.Thread(target=f) for f in (self.feed, self.read, self.drain)]
        for thread in threads:
            thread.start()
        self.hung = target > 0 and not self.reached.wait(PATIENCE)
        time.sleep(delay)
        self.ended_early = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        for thread in threads:
            thread.join()

    def feed(self):
        try:
            with self.process.stdin as pipe:
                for key, value in self.writes:
                    self.fed += 1
                    pipe.write(key + b"\t" + value + b"\n")
        except (BrokenPipeError, OSError):
            pass

    def read(self):
        # Output from before the kill is still in the pipe afterwards. Ignore a truncated last line.
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.acknowledged.append(line[:-1])
                if len(self.acknowledged) >= self.target:
                    self.reached.set()
        self.reached.set()

    def drain(self):
        self.messages = self.process.stderr.read().decode(errors="replace")


def make_writes(rng, round_number, keys):
    """Yields the puts of one round as (key, value). Values are unique over all rounds, of tens of bytes to tens of KiB."""
    for number in range(ROUND_WRITES):
        key = b"key%06d" % rng.randrange(keys)
        size = rng.choice((16, 100, 100, 400, 1000, 4000)) if rng.random() < 0.99 else 40_000
        yield key, b"r%d-w%d-" % (round_number, number) + b"x" * rng.randrange(size)


def scan(arguments, database):
    command = [arguments.drumlin, "scan", database, "--format", "tsv"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout.split(b"\n")
    return dict(line.split(b"\t") for line in lines if line)


def explain(base, writes, found):
    """Returns the number m of writes that, applied to base, best explain found, and the keys that still differ.

    Values are unique, so m follows from the last write whose value is in found.
    """
    number_of = {value: number for number, (_, value) in enumerate(writes)}
    m = 1 + max((number_of[value] for value in found.values() if value in number_of), default=-1)
    state = dict(base)
    state.update(writes[:m])
    wrong = [key for key in state.keys() | found.keys() if state.get(key) != found.get(key)]
    return m, sorted(wrong)


def check_round(arguments, database, base, round_, writes, figures):
    """Checks the store after a kill; returns its content."""
    acknowledged = len(round_.acknowledged)
    figures.kills += 1
    figures.writes += round_.fed
    figures.acknowledged += acknowledged
    expected_keys = [key for key, _ in writes[:acknowledged]]
    if round_.acknowledged != expected_keys:
        figures.wrong += 1
        print("kill_test: the acknowledged keys are not the keys fed, in order", file=sys.stderr)
    if round_.hung:
        figures.wrong += 1
        print(f"kill_test: the process acknowledged too few writes in {PATIENCE} s: {round_.messages}", file=sys.stderr)
    if round_.ended_early:
        figures.wrong += 1
        print(f"kill_test: the process ended by itself: {round_.messages}", file=sys.stderr)
    verify = subprocess.run([arguments.drumlin, "verify", database], capture_output=True, timeout=PATIENCE)
    if verify.returncode != 0:
        figures.damaged += 1
        print(f"kill_test: verify: {verify.stdout.decode()}{verify.stderr.decode()}", file=sys.stderr)
    found = scan(arguments, database)
    m, wrong = explain(base, writes, found)
    figures.kept += m
    figures.wrong += len(wrong)
    for key in wrong[:10]:
        print(f"kill_test: no prefix of the writes explains {key!r}: {found.get(key, b'(gone)')[:40]!r}", file=sys.stderr)
    if arguments.durability != "none" and m < acknowledged:
        figures.lost += acknowledged - m
        print(f"kill_test: {acknowledged} writes were acknowledged, {m} are there", file=sys.stderr)
    return found


def delete_some(arguments, database, rng, base, figures):
    """Deletes a few keys durably, and removes them from base."""
    for key in rng.sample(sorted(base), min(len(base), 3)):
        command = [arguments.drumlin, "delete", database, key.decode(), "--durability", "sync"]
        subprocess.run(command, check=True, timeout=PATIENCE)
        del base[key]
        figures.deleted += 1


def run(arguments, database):
    rng = random.Random(arguments.seed)
    figures = Figures()
    base = {}
    subprocess.run([arguments.drumlin, "put", database, "key000000", "first"], check=True, timeout=PATIENCE)
    base[b"key000000"] = b"first"
    for number in range(arguments.kills):
        # The kill comes mostly during writes, sometimes while the store opens.
        target = 0 if rng.random() < 0.1 else rng.randrange(1, arguments.writes)
        delay = rng.random() * (0.1 if target == 0 else 0.01)
        writes = list(make_writes(random.Random(rng.random()), number, arguments.keys))
        round_ = Round(arguments, database, writes, target, delay)
        base = check_round(arguments, database, base, round_, writes, figures)
        delete_some(arguments, database, rng, base, figures)
    found = scan(arguments, database)
    figures.wrong += sum(base.get(key) != found.get(key) for key in base.keys() | found.keys())
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drumlin", default="drumlin", help="the binary")
    parser.add_argument("--db", help="directory of the store, which must not be there; a temporary one by default")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--writes", type=int, default=5000, help="acknowledged writes before a kill, at most about")
    parser.add_argument("--keys", type=int, default=2000, help="distinct keys")
    parser.add_argument("--durability", choices=("none", "buffered", "sync"), default="buffered")
    parser.add_argument("--policy", help="as given to drumlin load")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="as given to drumlin load")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    parent = None
    if arguments.db is None:
        parent = tempfile.mkdtemp(prefix="drumlin-kill-")
        arguments.db = os.path.join(parent, "db")
    elif os.path.exists(arguments.db):
        parser.error(f"{arguments.db} exists")
    figures = run(arguments, arguments.db)
    print(
        f"kill-{arguments.durability}: kills {figures.kills}, writes {figures.writes}, acknowledged {figures.acknowledged}, "
        f"kept {figures.kept}, deleted {figures.deleted}, lost {figures.lost}, wrong {figures.wrong}, "
        f"damaged {figures.damaged}, seed {arguments.seed}"
    )
    good = figures.lost == figures.wrong == figures.damaged == 0
    if parent and good:
        shutil.rmtree(parent)
    elif not good:
        print(f"kill_test: the store is kept in {arguments.db}", file=sys.stderr)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
