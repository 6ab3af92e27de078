"""The exhaustive search: the fewest evicted pods first, then every choice of pods and places.

A branch is left only where no completion is allowed, so the answer is exact.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from tests.exhaustive import rules
from tests.exhaustive.rules import Action, Eviction, Placing, Unit
from tests.exhaustive.worlds import Node, Pod, World

MOST_CPU_S = 2.0
"""The processor time for one world."""


class OutOfTimeError(Exception):
    """The search has used up its processor time."""


@dataclass(frozen=True)
class Plan:
    """A plan that the rules allow."""

    action: Action
    units: tuple[Unit, ...]
    places: Mapping[str, str]

    @property
    def evicted(self) -> int:
        """The number of evicted pods."""
        return sum(len(unit.pods) for unit in self.units)


@dataclass
class Clock:
    """Measures the processor time of one search."""

    most_s: float = MOST_CPU_S
    _start: float = field(default_factory=time.process_time)

    def check(self) -> None:
        """Raise OutOfTimeError if the time is used up."""
        if time.process_time() - self._start > self.most_s:
            raise OutOfTimeError


def best_plan(world: World, clock: Clock) -> Plan | None:
    """Return the plan with the fewest evicted pods, of the first action that has one.

    Raises:
        OutOfTimeError: the search takes too long.
    """
    for action in Action:
        plan = best_of_action(world, action, clock)
        if plan is not None:
            return plan
    return None


def fewest_at_all(world: World, clock: Clock) -> int | None:
    """Return the fewest evicted pods of the plans of all actions; None if there is no plan.

    Raises:
        OutOfTimeError: the search takes too long.
    """
    plans = (best_of_action(world, action, clock) for action in Action)
    return min((plan.evicted for plan in plans if plan is not None), default=None)


def best_of_action(world: World, action: Action, clock: Clock) -> Plan | None:
    """Return the plan of `action` with the fewest evicted pods; None if there is none."""
    claims = [rules.claim_pods(world.claimant, names) for names in rules.choices(world.claimant)]
    for units in _victims(world, action):
        gone = frozenset(each.name for unit in units for each in unit.pods)
        for pods, domain in product(claims, rules.domains(world)):
            clock.check()
            request = rules.request_of(world, list(pods.values()), domain)
            if not Eviction(world, request).allows(action, units):
                continue
            places = find_places(world, Placing(world, gone, domain), pods, clock)
            if places is not None:
                return Plan(action, units, places)
    return None


def _victims(world: World, action: Action) -> Iterator[tuple[Unit, ...]]:
    """Yield all sets of units, those with the fewest pods first."""
    if action is Action.ALLOCATE:
        yield ()
        return
    units = [unit for job in world.running for unit in rules.units_of(job)]
    sets = [chosen for size in range(1, len(units) + 1) for chosen in combinations(units, size)]
    sets.sort(key=lambda chosen: sum(len(unit.pods) for unit in chosen))
    yield from sets


def find_places(
    world: World,
    placing: Placing,
    pods: Mapping[str, Pod],
    clock: Clock,
    before: Sequence[tuple[Pod, Node]] = (),
    *,
    is_asked: bool = True,
) -> Mapping[str, str] | None:
    """Return a place that the rules allow for each of `pods`; None if there is none.

    `before`: pods that have their places already. `is_asked`: only plans that the documentation
    asks of the scheduler; else all that it allows.
    """
    if not placing.within_limits([*pods.values(), *(pod for pod, _ in before)]):
        return None
    names = sorted(pods, key=lambda name: (-pods[name].gpus, -pods[name].cores))
    order = [pods[name] for name in names]
    placed = _place(world, placing, order, list(before), clock, is_asked=is_asked)
    if placed is None:
        return None
    found = placed[len(before) :]
    return {name: node.name for name, (_, node) in zip(names, found, strict=True)}


def _place(
    world: World,
    placing: Placing,
    left: Sequence[Pod],
    placed: list[tuple[Pod, Node]],
    clock: Clock,
    *,
    is_asked: bool,
) -> list[tuple[Pod, Node]] | None:
    clock.check()
    if not left:
        if not is_asked:
            return placed if placing.affinity_holds(placed) else None
        is_good = placing.affinity_holds(placed, in_any_order=False) and placing.is_reached(placed)
        return placed if is_good else None
    for node in world.nodes:
        if placing.may_add(left[0], node, placed):
            with_it = [*placed, (left[0], node)]
            found = _place(world, placing, left[1:], with_it, clock, is_asked=is_asked)
            if found is not None:
                return found
    return None
