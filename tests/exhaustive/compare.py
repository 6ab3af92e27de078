"""Plays worlds through the scheduler and compares its plans with the exhaustive search."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bindery.scenario.binding import bind_requests
from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner
from bindery.scenario.states import PodState
from tests.exhaustive import rules
from tests.exhaustive.files import scenario_of
from tests.exhaustive.rules import Action, Placing, Unit
from tests.exhaustive.search import (
    Clock,
    OutOfTimeError,
    Plan,
    best_plan,
    fewest_at_all,
    find_places,
)
from tests.exhaustive.worlds import Pod, World

CYCLES = 2
_HAS_PLACE = frozenset({PodState.BINDING, PodState.PIPELINED})


class Outcome(Enum):
    """How the scheduler compares with the search."""

    EQUAL = "equal"
    NO_PLAN = "no plan"
    MISSED = "missed"
    MORE = "more evictions"
    FEWER = "fewer evictions"
    """Kubernetes allows an order of pods that the search does not ask for."""
    NOT_ALLOWED = "not allowed"
    OUT_OF_TIME = "out of time"


@dataclass(frozen=True)
class Played:
    """The plan of the scheduler for the claimant."""

    places: Mapping[str, str]
    """Name of each pod with a place -> its node."""
    evicted: frozenset[str]
    action: str


@dataclass(frozen=True)
class Comparison:
    """One world in both."""

    world: World
    outcome: Outcome
    fewest: Plan | None
    played: Played
    at_all: int | None = None
    """The fewest evicted pods if the order of the actions did not count."""
    why: str = ""
    """The rule that the scheduler's plan breaks."""

    @property
    def has_plan(self) -> bool:
        """Whether the search has found a plan."""
        return self.fewest is not None

    @property
    def is_found(self) -> bool:
        """Whether the scheduler has found an allowed plan."""
        return self.outcome in (Outcome.EQUAL, Outcome.MORE, Outcome.FEWER)


def play(world: World) -> Played:
    """Run cycles until the claimant has its minimum, or pods are evicted for it."""
    planner, faults = Planner(Scenario.model_validate(scenario_of(world)), Faults(())), Faults(())
    cluster, claimant = planner.cluster, world.claimant
    waiting = rules.waiting_of(claimant)
    cluster.populate()
    for _ in range(CYCLES):
        planner.plan()
        seen = planner.observe().pods
        places = {n: seen[n].node for n in waiting if seen[n].state in _HAS_PLACE}
        bound = {n: node for n, node in places.items() if seen[n].state is PodState.BINDING}
        # Evictions in the same cycle are for extra pods then.
        if rules.has_minimum(claimant, [waiting[name] for name in bound]):
            return Played(bound, frozenset(), "allocate")
        evictions = planner.engine.report.evictions
        if evictions or rules.has_minimum(claimant, [waiting[name] for name in places]):
            names = frozenset(each.task.name for each in evictions)
            return Played(places, names, next((e.action for e in evictions), ""))
        cluster.release()
        bind_requests(cluster, faults)
        cluster.clock.now += 1
    return Played({}, frozenset(), "")


def compare(world: World) -> Comparison:
    """Play `world` in both."""
    played = play(world)
    try:
        fewest, at_all = best_plan(world, Clock()), fewest_at_all(world, Clock())
        why = _refusal(world, played)
    except OutOfTimeError:
        return Comparison(world, Outcome.OUT_OF_TIME, None, played)
    return Comparison(world, _outcome(played, fewest, why), fewest, played, at_all, why)


def _outcome(played: Played, fewest: Plan | None, why: str) -> Outcome:
    if why:
        return Outcome.NOT_ALLOWED
    is_found = bool(played.places or played.evicted)
    if fewest is None:
        return Outcome.FEWER if is_found else Outcome.NO_PLAN
    if not is_found:
        return Outcome.MISSED
    if len(played.evicted) == fewest.evicted:
        return Outcome.EQUAL
    return Outcome.MORE if len(played.evicted) > fewest.evicted else Outcome.FEWER


def _refusal(world: World, played: Played) -> str:
    """Return the rule that the scheduler's plan breaks; empty for none."""
    if not played.places and not played.evicted:
        return ""
    units = _units(world, played.evicted)
    if units is None:
        return "pods are evicted that do not go together"
    waiting = rules.waiting_of(world.claimant)
    pods = {name: waiting[name] for name in played.places}
    actions = [action for action in Action if action.value.startswith(played.action)]
    later = rules.later_of(world.claimant)
    places = {**played.places, **_later_places(world, units, pods, played.places, later)}
    if len(places) < len(pods) + len(later):
        return "a later stage has no room"
    refusals = [rules.refusal(world, a, units, places, {**pods, **later}) for a in actions]
    return "" if "" in refusals else refusals[-1]


def _units(world: World, evicted: frozenset[str]) -> list[Unit] | None:
    """Return the units whose pods are `evicted`; None if other pods are, too."""
    units = [unit for job in world.running for unit in rules.units_of(job)]
    gone = [unit for unit in units if all(each.name in evicted for each in unit.pods)]
    names = {each.name for unit in gone for each in unit.pods}
    return gone if names == evicted else None


def _later_places(
    world: World,
    units: list[Unit],
    pods: Mapping[str, Pod],
    places: Mapping[str, str],
    later: Mapping[str, Pod],
) -> Mapping[str, str]:
    """Return places for the pods of later stages beside `places`; empty if there are none."""
    if not later:
        return {}
    gone = frozenset(each.name for unit in units for each in unit.pods)
    placing = Placing(world, gone, rules.domain_in(world, places.values()))
    placed = [(pods[name], world.node_of[node]) for name, node in places.items()]
    return find_places(world, placing, later, Clock(), placed, is_asked=False) or {}
