"""Entries about gangs: plans, evictions and waits. Pure.

Equal entries within a short time are folded into one, and the number of entries is bounded: a
namespace with many entries loses its oldest before others lose any. Invariant: folding keeps the
sums of pods, times and seconds.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

FOLDED_WITHIN_S: Final = 600.0
"""Maximum time between two equal entries that are folded."""
MOST_ENTRIES: Final = 2_000
MOST_OF_GANG: Final = 50
"""Of each gang, the newest entries are kept."""
MOST_NODES: Final = 4
"""Maximum number of nodes that an entry names."""


class HistoryKind(StrEnum):
    """What happened."""

    PLANNED = "Planned"
    """Pods got nodes, and the plan was committed as BindRequests."""
    EVICTED = "Evicted"
    """Pods were evicted."""
    WAITED = "Waited"
    """A gang waited, and the reason has ended."""


class Gang(NamedTuple):
    """A gang, or a pod without one, by its names."""

    namespace: str
    name: str
    """The PodGroup or the pod."""
    queue: str
    is_group: bool
    """Whether it is a PodGroup."""


NO_GANG: Final = Gang("", "", "", False)


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that happened to a gang, or several equal ones in a row."""

    kind: HistoryKind
    gang: Gang
    since: float
    """Beginning of the first: seconds since the epoch."""
    until: float
    """End of the last: seconds since the epoch."""
    times: int = 1
    """How many plans, evicted pods of one plan, or waits were folded."""
    pods: int = 0
    """The number of planned or evicted pods."""
    seconds: float = 0.0
    """Planned: since the gang had begun to wait. Waited: for this reason."""
    reason: str = ""
    """Planned: the phase of the BindRequest, or Deleted. Evicted: the action. Waited: the reason;
    one CamelCase word."""
    message: str = ""
    """Waited: the last message of the reason."""
    claimant: Gang = NO_GANG
    """Evicted: the gang that got the room; empty if it was not for another gang."""
    moved: int = 0
    """Evicted: how many of the pods were promised other nodes."""
    nodes: tuple[str, ...] = ()
    """Planned: at most `MOST_NODES` of the nodes, sorted by name."""
    node_count: int = 0
    """Planned: how many nodes, at least."""

    @property
    def subject(self) -> Hashable:
        """What must be equal in entries that are folded."""
        return self.kind, self.gang, self.reason, self.claimant


def folded(earlier: HistoryEntry, later: HistoryEntry) -> HistoryEntry:
    """Return one entry for two with the same subject."""
    nodes = tuple(sorted({*earlier.nodes, *later.nodes}))
    return replace(
        later,
        since=min(earlier.since, later.since),
        until=max(earlier.until, later.until),
        times=earlier.times + later.times,
        pods=earlier.pods + later.pods,
        seconds=earlier.seconds + later.seconds,
        moved=earlier.moved + later.moved,
        nodes=nodes[:MOST_NODES],
        node_count=max(earlier.node_count, later.node_count, len(nodes)),
    )


def bounded(
    entries: Iterable[HistoryEntry], oldest_s: float, most: int = MOST_ENTRIES
) -> list[HistoryEntry]:
    """Return the entries that end after `oldest_s`, at most `most` of them, oldest first."""
    by_namespace: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
    of_gang: Counter[Gang] = Counter()
    ordered = sorted(entries, key=lambda each: each.until)
    for entry in reversed(ordered):
        of_gang[entry.gang] += 1
        if entry.until > oldest_s and of_gang[entry.gang] <= MOST_OF_GANG:
            by_namespace[entry.gang.namespace].append(entry)
    each = _share([len(found) for found in by_namespace.values()], most)
    kept = [entry for found in by_namespace.values() for entry in found[:each]]
    # With more namespaces than entries, each share is 0 or 1.
    kept.sort(key=lambda entry: entry.until, reverse=True)
    chosen = {id(entry) for entry in kept[:most]}
    return [entry for entry in ordered if id(entry) in chosen]


def _share(counts: Sequence[int], most: int) -> int:
    """Return how many each may keep so that all together keep at most `most`, at least 1."""
    left, share = most, 0
    ordered = sorted(counts)
    for index, count in enumerate(ordered):
        share = left // (len(ordered) - index)
        if count > share:
            return max(share, 1)
        left -= count
    return max(ordered, default=0)


class HistoryBook:
    """The entries of a term and before it, which are bounded from time to time."""

    def __init__(self, entries: Iterable[HistoryEntry] = ()) -> None:
        self._newest: dict[Hashable, HistoryEntry] = {}
        """Subject -> its newest entry, into which the next one may be folded."""
        self._older: list[HistoryEntry] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: HistoryEntry) -> None:
        """Add `entry`, folded into the newest one of its subject if that ended a short time ago."""
        known = self._newest.get(entry.subject)
        if known is not None and abs(entry.since - known.until) <= FOLDED_WITHIN_S:
            entry = folded(known, entry)
        elif known is not None:
            self._older.append(known)
        self._newest[entry.subject] = entry

    def bound(self, oldest_s: float) -> list[HistoryEntry]:
        """Drop what is too old or too much; return the rest, oldest first."""
        kept = bounded([*self._older, *self._newest.values()], oldest_s)
        self._newest = {entry.subject: entry for entry in kept}
        newest = set(map(id, self._newest.values()))
        self._older = [entry for entry in kept if id(entry) not in newest]
        return kept

    def __len__(self) -> int:
        return len(self._older) + len(self._newest)
