"""The kill matrix: every write of a binder plugin by everything that can befall it.

A gang, or some that share a request, is first planned onto a node that is refused after the plugin
has prepared it, so that the plugin rolls back, and then onto another, and then it is deleted
(`play`). `steps_of` lets that
happen undisturbed and notes the writes; `strike_all` lets it happen again and again, each time with
blows at one write of each of the three phases. Whatever befalls it, nothing may be held when it was
refused, it must be bound whole on the other node, and nothing may be left when it is gone.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from bindery.api.names import HOSTNAME_LABEL
from bindery.kube.objects.resources import NODES
from tests.e2e.matrixarena import Strike, Volley
from tests.e2e.matrixground import Corners
from tests.e2e.matrixworld import OTHER, REFUSED, Blow, Phase, Step, wait_until_none
from tests.e2e.support import Corner, Gang, Observer, wait_for

Cell = tuple[Step, Blow]

_UNDISTURBED = 3
_PATIENCE_S = 1.5
"""For the next run of a volley to get so far; all together far below a request's time."""
_TRIES = 6
"""Pods of a gang race each other, so that a write may come in one run and not in another; and a
blow after which a write is not repeated leaves the next blows to another run."""
_GENTLE = (Blow.ERROR, Blow.CONFLICT, Blow.LOST)
_KILLS = (Blow.KILLED_BEFORE, Blow.KILLED_AFTER)
"""Each in the order of the blows at a step: blows that take effect are the last."""
NEVER_MET = "never met"


async def play(corners: Corners, corner: Corner) -> None:
    """Let a gang come, be refused, be bound and go.

    Raises AssertionError when it is not bound whole on the other node, or leaves something.
    """
    world, phases = corners.world, corners.ground.arena.phases
    gangs = [_kept_to(corner, gang) for gang in world.gangs(corner)]
    await world.renew(corner)
    await _shut(corner, is_shut=True)
    phases[corner.namespace] = Phase.REFUSED
    try:
        async with Observer(corner).watch() as observer:
            await corner.submit(*gangs)
            await _refused(corner, gangs, observer)
            await wait_until_none(lambda: world.held(corner), "held though it was refused")

            phases[corner.namespace] = Phase.BOUND
            await _shut(corner, is_shut=False)
            await _bound(corner, gangs, observer)
            await wait_until_none(lambda: world.amiss(corner), "amiss while it is bound")

            phases[corner.namespace] = Phase.GONE
            await asyncio.gather(*(corner.delete_gang(gang) for gang in gangs))
            await wait_until_none(lambda: world.left_over(corner), "left")
            observer.check()
    finally:
        del phases[corner.namespace]


async def steps_of(corners: Corners) -> list[Step]:
    """Play undisturbed; return all writes of the plugin in order, equal ones numbered.

    Writes of some runs only, which depend on the speed of other components, are left out.
    """
    runs = await asyncio.gather(*(_undisturbed(corners) for _ in range(_UNDISTURBED)))
    # How many writes of status several Statements take depends on when they end.
    regular = (step for step in runs[0] if "bindrequests" not in step.path or step.at == 1)
    return [step for step in regular if all(step in run for run in runs)]


async def _undisturbed(corners: Corners) -> list[Step]:
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
    at_once = corners.world.at_once
    places = asyncio.Semaphore(at_once)

    async def quietly(run: list[Strike]) -> None:
        async with places:
            await _run(corners, run, outcomes)

    for _ in range(_TRIES):
        left = [cell for cell, outcome in outcomes.items() if outcome == NEVER_MET]
        await asyncio.gather(*(quietly(run) for run in _runs(left, _GENTLE)))
        kills = _runs(left, _KILLS)
        for start in range(0, len(kills), at_once):
            await _volley(corners, kills[start : start + at_once], outcomes)
    return outcomes


def _runs(cells: Iterable[Cell], blows: Sequence[Blow]) -> list[list[Strike]]:
    """Distribute those of `cells` with one of `blows` over runs; each strikes once in a phase."""
    by_step: dict[Step, list[Blow]] = defaultdict(list)
    for step, blow in sorted(
        (cell for cell in cells if cell[1] in blows), key=lambda cell: blows.index(cell[1])
    ):
        by_step[step].append(blow)
    by_phase: dict[Phase, list[Strike]] = defaultdict(list)
    for step, of_step in by_step.items():
        by_phase[step.phase].append(Strike(step, of_step))
    return [[each for each in run if each] for run in zip_longest(*by_phase.values())]


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
    """Play once with blows; note the outcomes of the dealt blows in `outcomes`."""
    arena, outcome = corners.ground.arena, "ok"
    try:
        async with corners.lent() as corner:
            for strike in strikes:
                strike.corner = corner.namespace
            arena.strikes += strikes
            await play(corners, corner)
            await _unheld(corners, corner, strikes)
    except (AssertionError, TimeoutError) as error:
        outcome = f"{type(error).__name__}: {error}"
    finally:
        arena.strikes = [strike for strike in arena.strikes if strike not in strikes]
        arena.volley.end(strikes)
    dealt = [(strike.step, blow) for strike in strikes for blow in strike.dealt]
    outcomes.update(dict.fromkeys(dealt, outcome))
    if outcome != "ok" and not dealt:
        raise AssertionError(f"a gang at which no blow was dealt: {outcome}")


async def _unheld(corners: Corners, corner: Corner, strikes: list[Strike]) -> None:
    """Wait for a kill at the last write of all, which ends the run without a further sign."""
    volley = corners.ground.arena.volley

    async def dealt() -> bool:
        return not any(strike in volley.held for strike in strikes)

    await wait_for(dealt, "the kill has come")
    await wait_until_none(lambda: corners.world.left_over(corner), "left")


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


async def _refused(corner: Corner, gangs: Sequence[Gang], observer: Observer) -> None:
    """Wait until each gang's first Statement has failed: the binder has then undone its writes."""

    async def refused() -> bool:
        return len(_failed(observer)) >= len(gangs)

    await _come_to(refused, "the first request has failed", corner, gangs, observer)


async def _bound(corner: Corner, gangs: Sequence[Gang], observer: Observer) -> None:
    """Wait until all pods are bound on the right nodes, and no request exists any more."""
    size = sum(gang.size for gang in gangs)

    async def bound() -> bool:
        nodes = [nodes for nodes in observer.nodes_of_pods.values() if nodes]
        return len(nodes) == size and not observer.live_requests

    await _come_to(bound, "all is bound", corner, gangs, observer)
    failed = _failed(observer)
    assert len(failed) == len(gangs), f"what heals itself has cost a plan: {failed}"
    shared = {len(request.siblings) for request in observer.statements.values()}
    assert shared == {len(gangs)}, f"requests of {shared} Statements"
    places = {node for nodes in observer.nodes_of_pods.values() for node in nodes}
    assert places == {f"{corner.namespace}-{OTHER}"}, f"bound to {places}"


def _failed(observer: Observer) -> list[str]:
    """Return the messages of the Statements that have failed."""
    statements = observer.statements.values()
    return [each.status.message for each in statements if each.status.phase == "Failed"]


async def _come_to(
    probe: Callable[[], Awaitable[bool]],
    what: str,
    corner: Corner,
    gangs: Sequence[Gang],
    observer: Observer,
) -> None:
    """Wait until `probe` returns True; the error of a timeout describes the state of the gang."""
    try:
        await wait_for(probe, what)
    except AssertionError as error:
        conditions = [await corner.condition(gang) for gang in gangs]
        said = [f"{r.status.phase}: {r.status.message}" for r in observer.statements.values()]
        why = ", ".join(each.message if each is not None else "no condition" for each in conditions)
        raise AssertionError(f"{error}; {why}; requests: {said}") from error


def table(title: str, outcomes: Mapping[Cell, str]) -> str:
    """Return the outcomes as text: a line a step, a column a blow."""
    steps = list(dict.fromkeys(step for step, _ in outcomes))
    width = max(len(str(step)) for step in steps)
    lines = [f"{title}: {'':{width - len(title)}}" + "  ".join(f"{blow:17}" for blow in Blow)]
    for step in steps:
        cells = [outcomes.get((step, blow), "-").splitlines()[0][:17] for blow in Blow]
        lines.append(f"{step!s:{width}}  " + "  ".join(f"{cell:17}" for cell in cells))
    return "\n".join(lines)
