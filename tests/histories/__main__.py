"""Plays histories: `make histories SEEDS=100`, or `SEED=7` for one, whose story is printed.

A line of progress is printed every few seconds, each failing seed at once, and at the end how many
passed and failed.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from tests.histories.branches import AREAS, Recorder, Way, not_taken, table
from tests.histories.history import play
from tests.histories.plan import draw
from tests.histories.shrinking import shrunk
from tests.histories.story import story

_PROGRESS_S = 5.0
_PLAYED_BY_ONE = 200
"""Histories after which a process is replaced, so that what caches hold does not grow."""


@dataclass(frozen=True)
class Result:
    """What one history came to, without its writes."""

    seed: int
    problem: str
    virtual_s: float
    calls: int
    faults: Counter[str]
    ways: frozenset[Way]
    """Branches taken; none if they are not recorded."""


@dataclass
class Total:
    """The results so far."""

    of: int
    begin_s: float
    played: int = 0
    failed: list[int] = field(default_factory=list)
    """Seeds."""
    virtual_s: float = 0.0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ways: set[Way] = field(default_factory=set)

    def add(self, result: Result) -> None:
        """Add a result."""
        self.played += 1
        self.virtual_s += result.virtual_s
        self.calls += result.calls
        self.faults.update(result.faults)
        self.ways |= result.ways
        if result.problem:
            self.failed.append(result.seed)

    def progress(self, now_s: float) -> str:
        """Return how far it is, how fast, and how long it will still take."""
        rate = self.played / max(now_s - self.begin_s, 1e-9)
        left_s = (self.of - self.played) / rate
        return (
            f"{self.played} of {self.of} played, {len(self.failed)} failed: "
            f"{rate:.1f} a second, {left_s:.0f} s left"
        )

    def summary(self, now_s: float) -> str:
        """Return how it ended."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.played - len(self.failed)} histories passed, {len(self.failed)} failed: "
            f"{self.virtual_s / 3600:.1f} hours of virtual time, {self.calls} calls, "
            f"{now_s - self.begin_s:.0f} s\nfaults: {faults}"
        )


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
    options = parser.parse_args(arguments)
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


def _many(seeds: range, jobs: int, branches: str | None) -> int:
    total, shown_s = Total(len(seeds), time.monotonic()), time.monotonic()
    with _results(seeds, jobs, records=branches is not None) as results:
        for result in results:
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


@contextmanager
def _results(seeds: range, jobs: int, *, records: bool) -> Iterator[Iterable[Result]]:
    """Return the results as they come, from `jobs` processes."""
    one = partial(result_of, records=records)
    if jobs == 1:
        yield map(one, seeds)
        return
    made = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of a caller
    with made.Pool(jobs, maxtasksperchild=_PLAYED_BY_ONE) as pool:
        yield pool.imap_unordered(one, seeds)


def result_of(seed: int, *, records: bool = False) -> Result:
    """Play one seed. An error of the histories themselves is a problem, too."""
    recorder = Recorder({module for modules in AREAS.values() for module in modules})
    try:
        with recorder.recording() if records else nullcontext():
            played = play(draw(seed))
    except Exception as error:
        return Result(seed, f"{type(error).__name__}: {error}", 0.0, 0, Counter(), frozenset())
    faults = Counter({str(kind): count for kind, count in played.faults.items()})
    return Result(
        seed,
        played.problem,
        played.virtual_s,
        sum(played.calls.values()),
        faults,
        frozenset(recorder.taken),
    )


if __name__ == "__main__":
    sys.exit(main())
