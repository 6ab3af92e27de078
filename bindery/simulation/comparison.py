"""The changes by a second configuration: two simulations of one trace, job by job. Pure."""

from dataclasses import dataclass
from typing import Final

from bindery.simulation.record import JobRecord, Record

_SAME_S: Final = 1.0
"""Two starts that are no further apart count as the same."""
_MOST_JOBS: Final = 10


@dataclass(frozen=True)
class JobChange:
    """One job under both configurations. Times are seconds after the start of the trace."""

    job: str
    queue: str
    gpus: float
    started_s: float | None
    """None: it never started."""
    started_against_s: float | None
    earlier_s: float
    """How much earlier it starts with the second configuration; negative: later."""


@dataclass(frozen=True)
class Comparison:
    """The differences that the second configuration makes."""

    same: int
    """Jobs that start at the same time."""
    earlier: int
    later: int
    only_first: int
    """Jobs that start only with the first configuration."""
    only_second: int
    other_nodes: int
    """Pods that both place, on different nodes."""
    placed_in_both: int
    """Pods that both place."""
    evictions: int
    """Evictions with the second configuration minus evictions with the first."""
    changes: tuple[JobChange, ...]
    """The jobs with the largest changes."""


def compare(first: Record, second: Record) -> Comparison:
    """Return the changes by `second`; both must be of the same trace."""
    changes, counts = [], dict.fromkeys(("same", "earlier", "later", "first", "second"), 0)
    other_nodes = placed = 0
    for key, one in first.jobs.items():
        two = second.jobs[key]
        kind, earlier_s = _change(one, two, max(first.end_s, second.end_s))
        counts[kind] += 1
        if kind != "same":
            changes.append(
                JobChange(str(key), one.queue, one.gpus, one.started_s, two.started_s, earlier_s)
            )
        both = one.nodes.keys() & two.nodes.keys()
        placed += len(both)
        other_nodes += sum(one.nodes[pod] != two.nodes[pod] for pod in both)
    changes.sort(key=lambda change: (-abs(change.earlier_s), change.job))
    return Comparison(
        same=counts["same"],
        earlier=counts["earlier"],
        later=counts["later"],
        only_first=counts["first"],
        only_second=counts["second"],
        other_nodes=other_nodes,
        placed_in_both=placed,
        evictions=len(second.evictions) - len(first.evictions),
        changes=tuple(changes[:_MOST_JOBS]),
    )


def _change(one: JobRecord, two: JobRecord, end_s: float) -> tuple[str, float]:
    """Return the kind of change, and how much earlier `two` starts; at `end_s` if it never does."""
    if one.started_s is None and two.started_s is None:
        return "same", 0.0
    if one.started_s is None:
        assert two.started_s is not None
        return "second", end_s - two.started_s
    if two.started_s is None:
        return "first", one.started_s - end_s
    earlier_s = one.started_s - two.started_s
    if abs(earlier_s) <= _SAME_S:
        return "same", 0.0
    return ("earlier" if earlier_s > 0 else "later"), earlier_s
