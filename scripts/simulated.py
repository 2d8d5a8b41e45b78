#!/usr/bin/env python3
"""Runs the published simulations and writes their figures to docs/results/simulated.json.

    python3 scripts/simulated.py [--only WORD]

The figures depend on the commands alone, not on the machine. The page docs/results/simulated.md is generated from the
file: `cargo xtask bless -p drumlin-bench`. With --only, commands that contain WORD run, and the others keep their
figures. All commands take about twenty minutes on two cores.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "docs/results/simulated.json"

ENTRIES = "--entries 2560000"
POLICIES = "--policy arce --policy 1-leveling:static --policy leveling:10 --policy tiering:4"
PARTS = ["", ":no-rho", ":no-park", ":no-between", ":no-horizon", ":no-even", ":no-masks", ":no-first", ":no-whole"]
WITHOUT = " ".join(f"--policy arce{part}" for part in PARTS)

# Each command with the title of its table.
COMMANDS = [
    (f"sim I {ENTRIES} --flush-bytes 131072 {POLICIES}", "Plan I, flushes of 128 KiB"),
    (f"sim II {ENTRIES} --flush-bytes 131072 {POLICIES}", "Plan II, flushes of 128 KiB"),
    (f"sim I {ENTRIES} --flush-bytes 2097152 {POLICIES}", "Plan I, flushes of 2 MiB"),
    (f"sim II {ENTRIES} --flush-bytes 2097152 {POLICIES}", "Plan II, flushes of 2 MiB"),
    (f"sim III {ENTRIES} --flush-bytes 2097152 --clients 1 {POLICIES}", "Plan III, one client"),
    (f"sim III {ENTRIES} --flush-bytes 2097152 --clients 8 {POLICIES}", "Plan III, eight clients"),
    (f"sim I {ENTRIES} --flush-bytes 2097152 {WITHOUT}", "Plan I, parts of ARCE switched off"),
    (f"sim II {ENTRIES} --flush-bytes 2097152 {WITHOUT}", "Plan II, parts of ARCE switched off"),
    ("sim pipeline", "Load of the Downforce paper"),
    ("sim pipeline --rate 1600 --load 12800 --workers 4,8,16,32 --policy 1-leveling:5 --policy tiering:4",
     "The same at up to 1600 MiB/s"),
    ("sim pipeline --load 12800 --engine 256 --workers 1,2 --detail 2 --modes split,pipelined",
     "The same on the engine, a 256th of the size"),
    ("bench paced I --entries 60000 --policies arce,leveling,1-leveling:static", "Plan I on the engine, virtual time"),
    ("bench paced II --entries 60000 --policies arce,leveling,1-leveling:static", "Plan II on the engine, virtual time"),
]


def sim(courses):
    """Returns the table of `drumlin sim`: a row for each policy."""
    names = [phase["phase"] for phase in courses[0]["phases"]]
    columns = [f"{name}, us" for name in names] + ["mean, us", "GiB compacted", "worst put p99.9, us", "most runs"]
    rows = []
    for course in courses:
        phases = course["phases"]
        operations = sum(phase["operations"] for phase in phases)
        mean = sum(phase["ns_per_operation"] * phase["operations"] for phase in phases) / operations / 1e3
        cells = [phase["ns_per_operation"] / 1e3 for phase in phases]
        cells += [mean, sum(phase["bytes_merged"] for phase in phases) / 2**30]
        cells += [max(phase["ns_write_wait_p999"] for phase in phases) / 1e3]
        cells += [max(phase["most_runs"] for phase in phases)]
        rows.append([course["policy"], cells])
    return columns, rows


def pipeline(courses):
    """Returns the table of `drumlin sim pipeline`: a row for each policy, mode and number of workers."""
    columns = ["workers", "MiB/s", "bytes per byte", "busy workers", "most runs of level 0"]
    measured = any(course.get("engine") for course in courses)
    if measured:
        columns += ["bytes per flushed byte on the engine", "difference to the simulation, %"]
    rows = []
    for course in courses:
        cells = [course["workers"], course["mib_per_s"], course["write_amp"], course["mean_busy"]]
        cells.append(course["most_level0_runs"])
        if measured:
            engine = course["engine"]
            cells += [engine["bytes_per_flushed"], 100 * engine["bytes_against_simulated"]]
        rows.append([f"{course['policy']} {course['mode']}", cells])
    return columns, rows


def paced(courses):
    """Returns the table of `drumlin bench paced`: a row for each policy."""
    columns = [f"{phase['name']}, us" for phase in courses[0]["phases"]] + ["mean, us", "worst put p99.9, us"]
    rows = []
    for course in courses:
        cells = [phase["nanos"] / 1e3 for phase in course["phases"]]
        cells += [course["nanos"] / 1e3, max(phase["put_p999"] for phase in course["phases"]) / 1e3]
        rows.append([course["policy"], cells])
    return columns, rows


def figures(program, command):
    """Runs `command` and returns its columns and rows."""
    words = command.split()
    if words[:2] == ["bench", "paced"]:
        path = ROOT / "target/paced.json"
        subprocess.run([program, *words, "--quiet", "--json", path], check=True, stdout=subprocess.DEVNULL)
        return paced(json.loads(path.read_text()))
    done = subprocess.run([program, *words, "--json"], check=True, capture_output=True, text=True)
    courses = json.loads(done.stdout)
    return pipeline(courses) if words[:2] == ["sim", "pipeline"] else sim(courses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="run only commands that contain this text", default="")
    parser.add_argument("--program", help="the drumlin command", default=str(ROOT / "target/release/drumlin"))
    options = parser.parse_args()
    old = {run["command"]: run for run in json.loads(FILE.read_text())} if FILE.exists() else {}
    git = lambda *words: subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    if [line for line in git("status", "--porcelain").splitlines() if "docs/results/" not in line]:
        sys.exit("the sources differ from the commit: commit them first")
    commit = git("rev-parse", "HEAD").strip()
    runs = []
    for command, title in COMMANDS:
        if options.only in command:
            print(command, file=sys.stderr, flush=True)
            columns, rows = figures(options.program, command)
            rows = [[name, [round(cell, 4) for cell in cells]] for name, cells in rows]
            date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
            old[command] = {"commit": commit, "date": date, "columns": columns, "rows": rows}
        if command in old:
            runs.append({**old[command], "title": title, "command": command})
            FILE.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
