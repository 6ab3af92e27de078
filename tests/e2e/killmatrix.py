"""The kill matrix: every write of a binder plugin by everything that can befall it.

A gang is first planned onto a node that is refused after the plugin has prepared it, so that the
plugin rolls back, and then onto another, and then it is deleted (`play`). `steps_of` lets that
happen undisturbed and notes the writes; `strike_all` lets it happen again and again, each time with
one blow in each of the three phases. Whatever befalls it, nothing may be held when it was refused,
it must be bound whole on the other node, and nothing may be left when it is gone.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from matrixarena import Strike, Volley
from matrixground import Corners
from matrixworld import OTHER, REFUSED, Blow, Phase, Step, wait_until_none
from support import Corner, Gang, Observer, wait_for

from bindery.api.names import HOSTNAME_LABEL
from bindery.kube.resources import NODES

Cell = tuple[Step, Blow]

_AT_ONCE = 8
"""Gangs under way together."""
_PATIENCE_S = 6.0
"""For the runs of a volley that are not so far yet; far below the binder's time for a request."""
_TRIES = 4
"""Pods of a gang race each other, so that a write may come in one run and not in another."""
NEVER_MET = "never met"


async def play(corners: Corners, corner: Corner) -> None:
    """Let a gang come, be refused, be bound and go.

    Raises AssertionError when it is not bound whole on the other node, or leaves something.
    """
    world, phases = corners.world, corners.ground.arena.phases
    gang = _kept_to(corner, world.gang(corner))
    await world.renew(corner)
    await _shut(corner, is_shut=True)
    phases[corner.namespace] = Phase.REFUSED
    try:
        async with Observer(corner).watch() as observer:
            await corner.submit(gang)
            await _refused(observer)
            await wait_until_none(lambda: world.held(corner), "held though it was refused")

            phases[corner.namespace] = Phase.BOUND
            await _shut(corner, is_shut=False)
            await _bound(corner, gang, observer)
            await wait_until_none(lambda: world.amiss(corner), "amiss while it is bound")

            phases[corner.namespace] = Phase.GONE
            await corner.delete_gang(gang)
            await wait_until_none(lambda: world.left_over(corner), "left")
            observer.check()
    finally:
        del phases[corner.namespace]


async def steps_of(corners: Corners) -> list[Step]:
    """Play undisturbed; return all writes of the plugin in order, equal ones numbered."""
    async with corners.lent() as corner:
        await play(corners, corner)
        writes = corners.ground.arena.writes[corner.namespace]
    seen = Counter[Step]()
    steps = []
    for write in writes:
        seen[write] += 1
        steps.append(replace(write, at=seen[write]))
    return steps


async def strike_all(corners: Corners, steps: Sequence[Step]) -> Mapping[Cell, str]:
    """Deal every blow at every step; return what came of each: "ok", or what was wrong."""
    outcomes: dict[Cell, str] = {(step, blow): NEVER_MET for step in steps for blow in Blow}
    for _ in range(_TRIES):
        left = [cell for cell, outcome in outcomes.items() if outcome == NEVER_MET]
        for runs in _lots(cell for cell in left if not cell[1].kills):
            await asyncio.gather(*(_run(corners, run, outcomes) for run in runs))
        for runs in _lots(cell for cell in left if cell[1].kills):
            await _volley(corners, runs, outcomes)
    return outcomes


def _lots(cells: Iterable[Cell]) -> Iterator[list[list[Strike]]]:
    """Yield runs that happen together; each has at most one of `cells` of each phase."""
    by_phase: dict[Phase, list[Strike]] = defaultdict(list)
    for step, blow in cells:
        by_phase[step.phase].append(Strike(step, blow))
    runs = [[each for each in run if each] for run in zip_longest(*by_phase.values())]
    for start in range(0, len(runs), _AT_ONCE):
        yield runs[start : start + _AT_ONCE]


async def _volley(corners: Corners, runs: list[list[Strike]], outcomes: dict[Cell, str]) -> None:
    """Let `runs` happen; kill the binder whenever all that still await a kill are at their step."""
    ground = corners.ground
    volley = ground.arena.volley = Volley(runs)
    async with asyncio.TaskGroup() as group:
        for run in runs:
            group.create_task(_run(corners, run, outcomes))
        while volley.awaited:
            await volley.gathered(_PATIENCE_S)
            if volley.held:
                ground.kill_binder()
                volley.deal()
                await ground.start_binder(corners.world)


async def _run(corners: Corners, strikes: list[Strike], outcomes: dict[Cell, str]) -> None:
    """Play once with blows; note in `outcomes` what came of those that were dealt."""
    arena, outcome = corners.ground.arena, "ok"
    try:
        async with corners.lent() as corner:
            for strike in strikes:
                strike.corner = corner.namespace
            arena.strikes += strikes
            await play(corners, corner)
    except (AssertionError, TimeoutError) as error:
        outcome = f"{type(error).__name__}: {error}"
    finally:
        arena.strikes = [strike for strike in arena.strikes if strike not in strikes]
        arena.volley.end(strikes)
    for strike in strikes:
        if strike.is_dealt:
            outcomes[strike.step, strike.blow] = outcome
    if outcome != "ok" and not any(strike.is_dealt for strike in strikes):
        raise AssertionError(f"a gang at which no blow was dealt: {outcome}")


def _kept_to(corner: Corner, gang: Gang) -> Gang:
    """Return `gang` with pods that keep to the corner's nodes: others' gangs run meanwhile."""
    nodes = [f"{corner.namespace}-{name}" for name in (REFUSED, OTHER)]
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": nodes}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return replace(gang, pod={**gang.pod, "affinity": affinity})


async def _shut(corner: Corner, *, is_shut: bool) -> None:
    """Keep gangs from the other node, or let them come."""
    taint = {"key": "matrix.bindery.dev/shut", "effect": "NoSchedule"}
    patch = {"spec": {"taints": [taint] if is_shut else None}}
    await corner.client.patch(NODES, f"{corner.namespace}-{OTHER}", patch)


async def _refused(observer: Observer) -> None:
    """Wait until the gang's first request has failed, which says that all was taken back."""

    async def refused() -> bool:
        return any(r.status.phase == "Failed" for r in observer.requests.values())

    await wait_for(refused, "the first request has failed")


async def _bound(corner: Corner, gang: Gang, observer: Observer) -> None:
    """Wait until all is bound where it should be, and no request is there any more."""

    async def bound() -> bool:
        nodes = [nodes for nodes in observer.nodes_of_pods.values() if nodes]
        return len(nodes) == gang.size and not observer.live_requests

    try:
        await wait_for(bound, "the gang is bound")
    except AssertionError as error:
        condition = await corner.condition(gang)
        said = [f"{r.status.phase}: {r.status.message}" for r in observer.requests.values()]
        why = condition.message if condition is not None else "no condition"
        raise AssertionError(f"{error}; {why}; requests: {said}") from error
    failed = [r.status.message for r in observer.requests.values() if r.status.phase == "Failed"]
    assert len(failed) == 1, f"what heals itself has cost a plan: {failed[1:]}"
    places = {node for nodes in observer.nodes_of_pods.values() for node in nodes}
    assert places == {f"{corner.namespace}-{OTHER}"}, f"bound to {places}"


def table(title: str, outcomes: Mapping[Cell, str]) -> str:
    """Return the outcomes as text: a line a step, a column a blow."""
    steps = list(dict.fromkeys(step for step, _ in outcomes))
    width = max(len(str(step)) for step in steps)
    lines = [f"{title}: {'':{width - len(title)}}" + "  ".join(f"{blow:17}" for blow in Blow)]
    for step in steps:
        cells = [outcomes.get((step, blow), "-").splitlines()[0][:17] for blow in Blow]
        lines.append(f"{step!s:{width}}  " + "  ".join(f"{cell:17}" for cell in cells))
    return "\n".join(lines)
