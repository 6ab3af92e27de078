"""Plays many histories, in several processes, and adds up what they came to."""

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from tests.histories.branches import AREAS, Recorder, Way
from tests.histories.drawing import draw
from tests.histories.history import play

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


@contextmanager
def results(seeds: range, jobs: int, *, records: bool) -> Iterator[Iterable[Result]]:
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
