"""The table of a comparison: one row for each feature of the worlds."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.exhaustive.compare import Comparison, Outcome
from tests.exhaustive.worlds import features

ALL = "all"
LEAST_FOUND = 0.995
MOST_EVICTED = 1.05


@dataclass
class Row:
    """The sums over some worlds."""

    worlds: int = 0
    plans: int = 0
    """Worlds in which a plan exists."""
    found: int = 0
    """Of these, worlds in which the scheduler has found one."""
    evicted: int = 0
    """Pods that the scheduler evicts where both have a plan."""
    fewest: int = 0
    """The fewest pods there."""
    at_all: int = 0
    """The fewest pods there, if the order of the actions did not count."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    def add(self, each: Comparison) -> None:
        """Count one world."""
        self.worlds += 1
        self.outcomes[each.outcome] += 1
        self.plans += each.has_plan
        if each.fewest is not None and each.is_found:
            self.found += 1
            self.evicted += len(each.played.evicted)
            self.fewest += each.fewest.evicted
            self.at_all += each.at_all or 0

    @property
    def found_part(self) -> float:
        """The part of the worlds with a plan in which the scheduler has found one."""
        return self.found / self.plans if self.plans else 1.0

    @property
    def excess(self) -> float:
        """What the scheduler evicts, relative to the fewest."""
        return self.evicted / self.fewest if self.fewest else 1.0


def rows(comparisons: Iterable[Comparison]) -> dict[str, Row]:
    """Return name of a feature -> its sums; the first row has all worlds."""
    found = {ALL: Row()}
    for each in comparisons:
        for name in (ALL, *features(each.world)):
            found.setdefault(name, Row()).add(each)
    return {ALL: found.pop(ALL)} | dict(sorted(found.items()))


def markdown(found: dict[str, Row]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| worlds with | worlds | plan exists | found | | evicted | fewest | | not allowed |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, row in found.items():
        yield (
            f"| {name} | {row.worlds:,} | {row.plans:,} | {row.found:,} | {row.found_part:.2%} "
            f"| {row.evicted:,} | {row.fewest:,} | {row.excess:.3f} "
            f"| {row.outcomes[Outcome.NOT_ALLOWED]} |"
        )
