"""Run a scenario: the scheduler's engine on the in-memory cluster, cycle after cycle.

Called by `bindery scenario run` and the behaviour tests; `expect` judges what it observes.
Invariant: the engine is the scheduler process's own and learns and acts only as it does there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

from bindery.scenario.binding import bind_requests
from bindery.scenario.events import Faults
from bindery.scenario.expect import Observation, compare
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scenario.states import PodState
from bindery.scenario.topology import Domains


@dataclass(frozen=True)
class Result:
    """The result of a scenario."""

    name: str
    cycles: int
    seen: Observation
    """The cluster when the expectation was met, or at the end."""
    failures: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """A line about each object of the file that could not be read, or only in part."""

    @property
    def ok(self) -> bool:
        """Whether all expectations hold."""
        return not self.failures

    def to_wire(self, file: str) -> dict[str, object]:
        """Return the object that `--json` prints for the scenario of `file`."""
        pods = {
            name: {
                "state": pod.state.value,
                "node": pod.node,
                "gpus": pod.gpus,
                "reason": pod.reason,
            }
            for name, pod in self.seen.pods.items()
        }
        queues = {
            name: {
                "fairShare": dict(self.seen.fair_shares.get(name, {})),
                "allocated": dict(allocated),
            }
            for name, allocated in self.seen.allocated.items()
        }
        return {
            "file": file,
            "name": self.name,
            "ok": self.ok,
            "cycles": self.cycles,
            "pods": pods,
            "queues": queues,
            "failures": list(self.failures),
        }


def run(scenario: Scenario) -> Result:
    """Run `scenario` and compare the result with its expectation.

    Raises:
        ConfigurationError: the scheduler cannot use the scenario's `config`.
    """
    return _Run(scenario).play()


class _Run:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._faults = Faults(scenario.faults)
        self._planner = Planner(scenario, self._faults)
        self._cluster = self._planner.cluster
        self._cluster.populate()
        self._domains = Domains(self._cluster.everything())
        self._cycles = 0

    def play(self) -> Result:
        """Run the scenario and return its result."""
        moments = self._moments()
        last_event = max((event.before for event in self._scenario.events), default=1)
        cycles = last_event - 1 + self._scenario.rounds
        compared: list[tuple[list[str], Observation]] = []
        for seen in islice(moments, 2 * cycles):
            if self._cycles < last_event:
                continue
            failures = compare(self._scenario.expect, seen, self._domains)
            compared.append((failures, seen))
            if not failures:
                break
        failures, seen = min(compared[-2:], key=lambda item: len(item[0]))
        if not failures:
            failures = self._settle(moments, is_after_cycle=len(compared) % 2 == 1, matched=seen)
        left_out = self._cluster.given.left_out
        return Result(self._scenario.name, self._cycles, seen, tuple(failures), left_out)

    def _settle(
        self, moments: Iterator[Observation], *, is_after_cycle: bool, matched: Observation
    ) -> list[str]:
        """Run the cycles that must change nothing; return the first changes."""
        if not self._scenario.settle:
            return []
        before = next(moments) if is_after_cycle else matched
        for _ in range(self._scenario.settle):
            planned, after = next(moments), next(moments)
            changes = _changes(before, planned, after)
            if changes:
                return [f"cycle {self._cycles}, after the match: {text}" for text in changes]
        return []

    def _moments(self) -> Iterator[Observation]:
        """Yield the cluster right after each cycle and again after the step that follows."""
        for cycle in count(1):
            self._cycles = cycle
            for event in self._scenario.events:
                if event.before == cycle:
                    self._cluster.happen(event)
            self._planner.plan()
            yield self._planner.observe()
            self._step()
            yield self._planner.observe(pipelined_as=PodState.PENDING)
            self._cluster.clock.now += 1

    def _step(self) -> None:
        """Do the work of the binder and the nodes between two cycles."""
        self._cluster.release()
        self._cluster.start_pods()
        bind_requests(self._cluster, self._faults)
        self._cluster.numa.publish()


def _changes(before: Observation, planned: Observation, after: Observation) -> list[str]:
    """Return the changes of a cycle and its step."""
    changes = []
    if planned.actions != before.actions:
        changes.append(f"the scheduler acted {planned.actions - before.actions} times")
    for name in sorted(before.pods.keys() | after.pods.keys()):
        was, now = before.pods.get(name), after.pods.get(name)
        if was is None or now is None:
            changes.append(f"pod {name} {'came' if was is None else 'went'}")
        elif (was.state, was.node) != (now.state, now.node):
            changes.append(
                f"pod {name} was {was.state} on {was.node or 'no node'}, "
                f"is {now.state} on {now.node or 'no node'}"
            )
    return changes
