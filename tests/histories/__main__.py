"""Plays histories: `make histories SEEDS=100`, or `SEED=7` for one, whose story is printed.

A line of progress is printed every few seconds, and at the end how many passed and failed.
"""

import argparse
import sys
import time
from collections import Counter

from tests.histories.history import Played, play
from tests.histories.plan import draw
from tests.histories.shrinking import shrunk
from tests.histories.story import story

_PROGRESS_S = 5.0


def main() -> int:
    """Play what the arguments ask for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many to play (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="play one seed and print its story")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed)
    return _many(range(options.first, options.first + options.seeds))


def _one(seed: int) -> int:
    played = play(draw(seed))
    print(story(played))
    if not played.problem:
        return 0
    print("\nmade smaller, the history is:\n")
    print(story(shrunk(played)))
    return 1


def _many(seeds: range) -> int:
    begin_s, shown_s = time.monotonic(), time.monotonic()
    failed: list[Played] = []
    faults: Counter[str] = Counter()
    virtual_s, calls = 0.0, 0
    for number, seed in enumerate(seeds, 1):
        played = play(draw(seed))
        faults.update({str(kind): count for kind, count in played.faults.items()})
        virtual_s += played.virtual_s
        calls += sum(played.calls.values())
        if played.problem:
            failed.append(played)
            print(f"seed {seed}: {played.problem}", flush=True)
        if time.monotonic() - shown_s > _PROGRESS_S:
            shown_s = time.monotonic()
            print(f"{number} of {len(seeds)} played, {len(failed)} failed", flush=True)
    print(
        f"{len(seeds) - len(failed)} histories passed, {len(failed)} failed: "
        f"{virtual_s / 3600:.1f} hours of virtual time, {calls} calls, "
        f"{time.monotonic() - begin_s:.0f} s"
    )
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())))
    if failed:
        print(f"the story of one: make histories SEED={failed[0].plan.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
