"""Plays histories: `make histories SEEDS=100`, or `SEED=7` for one, whose story is printed.

A line of progress is printed every few seconds, each failing seed at once, and at the end how many
passed and failed. `--planted` looks for each defect of `planted.py` instead, and prints the first
seed that finds it.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.histories.branches import not_taken, table
from tests.histories.drawing import draw
from tests.histories.history import play
from tests.histories.planted import MISSED, PLANTED, finding
from tests.histories.playing import Total, results
from tests.histories.shrinking import shrunk
from tests.histories.story import story

_PROGRESS_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the arguments ask for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many to play (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="play one seed and print its story")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (the number of cores)"
    )
    parser.add_argument(
        "--branches",
        choices=("table", "missed"),
        help="record the branches of retry, rollback, fencing, withdrawal and stale clean-up; "
        "print a table of how many were taken, or also each that was not (several times slower)",
    )
    parser.add_argument(
        "--planted",
        metavar="NAME",
        nargs="?",
        const="",
        help="look for the defects of planted.py whose name contains NAME, in SEEDS seeds",
    )
    options = parser.parse_args(arguments)
    if options.planted is not None:
        return _planted(options.planted, range(options.first, options.first + options.seeds))
    if options.seed is not None:
        return _one(options.seed)
    seeds = range(options.first, options.first + options.seeds)
    return _many(seeds, options.jobs, options.branches)


def _one(seed: int) -> int:
    played = play(draw(seed))
    print(story(played))
    if not played.problem:
        return 0
    print("\nmade smaller, the history is:\n")
    print(story(shrunk(played)))
    return 1


def _planted(name: str, seeds: range) -> int:
    missed = 0
    for defect in (*PLANTED, *MISSED):
        if name not in defect.name:
            continue
        found = finding(defect, seeds)
        missed += found is None
        what = f"{found.seed}: {found.problem}" if found is not None else f"not in {len(seeds)}"
        print(f"{defect.name}: {what}", flush=True)
    return 1 if missed else 0


def _many(seeds: range, jobs: int, branches: str | None) -> int:
    total, shown_s = Total(len(seeds), time.monotonic()), time.monotonic()
    with results(seeds, jobs, records=branches is not None) as played:
        for result in played:
            total.add(result)
            if result.problem:
                print(f"seed {result.seed}: {result.problem}", flush=True)
            if time.monotonic() - shown_s > _PROGRESS_S:
                shown_s = time.monotonic()
                print(total.progress(shown_s), flush=True)
    print(total.summary(time.monotonic()))
    if branches is not None:
        print("\nbranches taken\n" + table(total.ways))
    if branches == "missed":
        print("\nbranches not taken\n" + "\n".join(not_taken(total.ways)))
    if total.failed:
        print(f"the story of one: make histories SEED={min(total.failed)}")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
