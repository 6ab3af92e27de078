"""The kill matrix: every write of a binder plugin by everything that can befall it.

A `World` is what one plugin works on. Its gang is first planned onto a node that is refused after
the plugin has prepared it, so that the plugin rolls back, and then onto another. `steps_of` lets
that happen undisturbed and notes the writes; `strike` lets it happen again in a corner of its own
and deals one blow at one of them. Whatever the blow, the gang must be bound whole on the other
node, and nothing may be left when it is gone.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from aiohttp import web
from faultproxy import FaultProxy
from sabotage import Sabotage
from support import Corner, Gang, Observer, binder_configuration, wait_for
from traps import ready

from bindery.api.configuration import BinderConfiguration, PluginConfiguration
from bindery.api.names import HOSTNAME_LABEL
from bindery.controlplane.components import Component, Components
from bindery.kube.client import Client
from bindery.kube.resources import NAMESPACES

REFUSED, OTHER = "first", "second"
"""The nodes of a corner; the scheduler fills them in the order of their names."""

_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=/|$)")
"""What the API server appends to a `generateName`."""
_NOT_OF_PLUGINS = re.compile(r"/(events|leases|bindrequests)\b")


class Blow(StrEnum):
    """What befalls a write."""

    KILLED_BEFORE = "killed before it"
    KILLED_AFTER = "killed after it"
    ERROR = "answered 500"
    LOST = "done, answer lost"
    CONFLICT = "answered 409"

    @property
    def kills(self) -> bool:
        return self in (Blow.KILLED_BEFORE, Blow.KILLED_AFTER)


@dataclass(frozen=True, order=True)
class Step:
    """One write: its method, its path without names that are drawn, and which of its kind."""

    method: str
    path: str
    at: int = 1

    def __str__(self) -> str:
        return f"{self.method} {self.path} #{self.at}"


class World(Protocol):
    """What a plugin works on, in one corner of the cluster."""

    @property
    def plugin(self) -> PluginConfiguration:
        """The plugin that is looked at."""

    def gang(self, corner: Corner) -> Gang:
        """Return the gang, of two pods or more."""

    def prepared(self, corner: Corner) -> AbstractAsyncContextManager[None]:
        """Make the nodes `REFUSED` and `OTHER` and all else that the gang needs; be the world's
        other side, such as a device plugin, while the body runs."""

    async def left_over(self, corner: Corner) -> list[str]:
        """Return what is still there of what the plugin has written; the gang is gone."""


@dataclass
class Strike:
    """A blow to be dealt once, at one step in one corner."""

    corner: str
    """Its namespace, which is part of the names of all its objects."""
    step: Step
    blow: Blow
    kill: Callable[[], None] | None = None
    dealt: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0

    def meets(self, step: Step, corner: str) -> bool:
        """Return whether this is the write, and count it."""
        if corner != self.corner or replace_at(step) != replace_at(self.step):
            return False
        self.seen += 1
        return self.seen == self.step.at


def replace_at(step: Step) -> Step:
    return Step(step.method, step.path)


class Arena(FaultProxy):
    """Stands between the binder and the API server, notes every write and deals blows."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(kubeconfig, directory)
        self.corners: set[str] = set()
        self.strikes: list[Strike] = []
        self.writes: dict[str, list[Step]] = {}
        """Corner -> the writes concerning it, in order, not numbered."""

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        strike = await self._note(request) if request.method != "GET" else None
        if strike is None:
            return await super()._handle(request)
        if strike.blow is Blow.KILLED_BEFORE:
            return _dealt(strike, strike.kill, request)
        if strike.blow in (Blow.ERROR, Blow.CONFLICT):
            status = 500 if strike.blow is Blow.ERROR else 409
            strike.dealt.set()
            return web.Response(status=status, text="made up")
        await super()._handle(request)
        return _dealt(strike, strike.kill, request)

    async def _note(self, request: web.BaseRequest) -> Strike | None:
        if _NOT_OF_PLUGINS.search(request.path):
            return None
        text = request.path_qs + (await request.read()).decode(errors="replace")
        corner = next((corner for corner in self.corners if corner in text), None)
        if corner is None:
            return None
        step = Step(request.method, _without_names(request.path, corner))
        self.writes.setdefault(corner, []).append(step)
        return next((strike for strike in self.strikes if strike.meets(step, corner)), None)


def _dealt(
    strike: Strike, kill: Callable[[], None] | None, request: web.BaseRequest
) -> web.StreamResponse:
    if kill is not None:
        kill()
    strike.dealt.set()
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _without_names(path: str, corner: str) -> str:
    """Return `path` without what differs from run to run: group, version, and drawn names."""
    path = re.sub(r"^/apis?/([^/]+/)?v\w+/", "", path).replace(corner, "*")
    path = re.sub(r"namespaces/[^/]+/", "", path)
    path = _GENERATED.sub("-*", path)
    return re.sub(r"[0-9a-f]{5,}[0-9a-f-]*", "*", path)


@dataclass
class Ground:
    """What all cells share."""

    client: Client
    pool: str
    arena: Arena
    components: Components
    journal: Path

    def configuration(self, world: World) -> BinderConfiguration:
        refuser = Sabotage(self.journal, refuse_node=f"-{REFUSED}").configuration()
        return binder_configuration(world.plugin, refuser)

    async def start_binder(self, world: World) -> Component:
        return await ready(self.components.start_binder(self.configuration(world)))

    @asynccontextmanager
    async def corner(self) -> AsyncIterator[Corner]:
        """Yield a corner in a namespace of its own, of which the arena knows."""
        name = f"matrix-{secrets.token_hex(3)}x"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.client.create(NAMESPACES, body)
        corner = Corner(self.client, name, self.pool)
        self.arena.corners.add(name)
        try:
            yield corner
        finally:
            self.arena.corners.discard(name)
            await self.client.delete(NAMESPACES, name)


async def play(world: World, corner: Corner, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Let the gang come, be bound and go; `meanwhile` runs once it has come.

    Raises AssertionError when it is not bound whole on the other node, or leaves something.
    """
    gang = _kept_to(corner, world.gang(corner))
    async with world.prepared(corner), Observer(corner).watch() as observer:
        await corner.submit(gang)
        await meanwhile()
        await _bound(corner, gang)
        nodes = {pod.spec.node_name for pod in await corner.pods(gang)}
        assert nodes == {f"{corner.namespace}-{OTHER}"}, f"bound to {nodes}"
        observer.check()
        await corner.wait_nothing_left()
        await corner.delete_gang(gang)

        left: list[str] = []

        async def nothing() -> bool:
            left[:] = await world.left_over(corner)
            return not left

        try:
            await wait_for(nothing, "nothing is left")
        except AssertionError as error:
            raise AssertionError(f"left: {', '.join(left)}") from error
        finally:
            for name in (REFUSED, OTHER):
                await corner.remove_node(f"{corner.namespace}-{name}")


def _kept_to(corner: Corner, gang: Gang) -> Gang:
    """Return `gang` with pods that keep to the corner's nodes: others' cells run meanwhile."""
    nodes = [f"{corner.namespace}-{name}" for name in (REFUSED, OTHER)]
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": nodes}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return replace(gang, pod={**gang.pod, "affinity": affinity})


async def _bound(corner: Corner, gang: Gang) -> None:
    try:
        await corner.wait_bound(gang)
    except AssertionError as error:
        condition = await corner.condition(gang)
        said = [f"{r.status.phase}: {r.status.message}" for r in await corner.requests()]
        why = condition.message if condition is not None else "no condition"
        raise AssertionError(f"{error}; {why}; requests: {said}") from error


async def steps_of(world: World, ground: Ground) -> list[Step]:
    """Play undisturbed; return all writes of the plugin in order, equal ones numbered."""
    async with ground.corner() as corner:
        await play(world, corner, _nothing)
        writes = ground.arena.writes[corner.namespace]
    seen = Counter[Step]()
    steps = []
    for write in writes:
        seen[write] += 1
        steps.append(Step(write.method, write.path, seen[write]))
    return steps


async def _nothing() -> None:
    """Deal no blow."""


async def strike(
    world: World, ground: Ground, step: Step, blow: Blow, binder: Component
) -> Component:
    """Play with one blow; return the binder that runs in the end."""
    running = binder
    async with ground.corner() as corner:
        kill = binder.kill if blow.kills else None
        blow_to_deal = Strike(corner.namespace, step, blow, kill)
        ground.arena.strikes.append(blow_to_deal)

        async def meanwhile() -> None:
            nonlocal running
            async with asyncio.timeout(60):
                await blow_to_deal.dealt.wait()
            if blow.kills:
                running = await ground.start_binder(world)

        try:
            await play(world, corner, meanwhile)
        finally:
            ground.arena.strikes.remove(blow_to_deal)
    return running


def table(title: str, outcomes: Mapping[tuple[Step, Blow], str]) -> str:
    """Return the outcomes as text: a line a step, a column a blow."""
    steps = list(dict.fromkeys(step for step, _ in outcomes))
    width = max(len(str(step)) for step in steps)
    lines = [f"{title}: {'':{width - len(title)}}" + "  ".join(f"{blow:17}" for blow in Blow)]
    for step in steps:
        cells = [outcomes.get((step, blow), "-").splitlines()[0][:17] for blow in Blow]
        lines.append(f"{step!s:{width}}  " + "  ".join(f"{cell:17}" for cell in cells))
    return "\n".join(lines)
