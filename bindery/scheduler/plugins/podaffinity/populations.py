"""Pods of one kind, counted by domain. The counts follow the plan."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bindery.scheduler.model.label_domains import NO_DOMAIN, Domains, LabelDomains


class Pods(NamedTuple):
    """Numbers of pods."""

    held: int = 0
    """Pods that hold room, releasing pods included."""
    leaving: int = 0
    """The pods of `held` that are being released."""
    promised: int = 0
    """Pods that get room that is being released."""

    @property
    def staying(self) -> int:
        """The pods after all releasing pods have gone."""
        return self.held - self.leaving + self.promised

    @property
    def present(self) -> int:
        """All pods, those to come and those to go."""
        return self.held + self.promised

    def plus(self, other: "Pods", times: int) -> "Pods":
        """Return the sum with `times` the other numbers."""
        return Pods(
            self.held + times * other.held,
            self.leaving + times * other.leaving,
            self.promised + times * other.promised,
        )


NONE = Pods()
Listener = Callable[[int, Pods, Pods], None]
"""Gets a domain, and its numbers before and after a change."""


class DomainCounts:
    """The pods of a population by the domains of one label key."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.total = NONE
        self._pods: dict[int, Pods] = {}
        self._listeners: list[Listener] = []

    def items(self) -> Iterator[tuple[int, Pods]]:
        """Yield the domains with pods."""
        yield from self._pods.items()

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each change from now on."""
        self._listeners.append(listener)

    def add(self, domain: int, pods: Pods, times: int) -> None:
        """Add `times` the given numbers to a domain."""
        if domain == NO_DOMAIN:  # as in kube-scheduler, a pod without a domain counts nowhere
            return
        before = self._pods.get(domain, NONE)
        after = before.plus(pods, times)
        self.total = self.total.plus(pods, times)
        if after == NONE:
            self._pods.pop(domain, None)
        else:
            self._pods[domain] = after
        for listener in self._listeners:
            listener(domain, before, after)


class Population:
    """Pods of one kind, such as the pods that a term selects, by the domains of several keys."""

    def __init__(self, topology: LabelDomains) -> None:
        self._topology = topology
        self._places: Counter[tuple[int, str, Pods]] = Counter()
        """Node row, node name and numbers -> how often they were added."""
        self._counts: dict[str, DomainCounts] = {}

    def add(self, row: int, node_name: str, pods: Pods, times: int) -> None:
        """Add `times` the given numbers on a node, by its row or its name."""
        place = row, node_name, pods
        self._places[place] += times
        if not self._places[place]:
            del self._places[place]
        for key, counts in self._counts.items():
            counts.add(self._topology.domain(key, row, node_name), pods, times)

    def counts(self, key: str) -> DomainCounts:
        """Return the counts by the domains of `key`, which stay up to date."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = DomainCounts(self._topology.domains(key))
            for (row, node_name, pods), times in self._places.items():
                counts.add(self._topology.domain(key, row, node_name), pods, times)
        return counts
