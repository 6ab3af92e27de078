"""A fake API: pods, nodes and BindRequests in dictionaries, and a binder that can be killed.

`World` outlives the binders. Each `Binder` has its own door to it, which obeys a script of
troubles that meet some of the calls: an error, an answer lost before or after the effect, or death.
Used by the tests of what happens when things go wrong; nothing here is used outside of them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import msgspec

from bindery.binder.bindingmetadata import BindingMetadata
from bindery.binder.dependencies import RunDependencies
from bindery.binder.fencing import Fence
from bindery.binder.intake import Intake
from bindery.binder.manager import Malformed, Manager
from bindery.binder.outcome import Outcome
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.plugins.interface import BindContext, BinderPlugin, PluginError
from bindery.binder.ports import PodView, RequestChangedError, RequestGoneError
from bindery.binder.retention import Finished
from bindery.kube.bindrequests import (
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    PodBinding,
    StatementReference,
    StoredBindRequest,
)
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, NotFoundError, OutcomeUnknownError, ServerError
from bindery.kube.objects import Meta

NAMESPACE = "here"
Key = tuple[str, str]


class Trouble(StrEnum):
    """What befalls one call."""

    ERROR = "error"
    LOST_BEFORE = "lost before"
    LOST_AFTER = "lost after"
    CONFLICT = "conflict"
    DEATH_BEFORE = "death before"
    DEATH_AFTER = "death after"


class Death(BaseException):
    """kill -9: nothing of the process runs any more."""


@dataclass
class FakePod:
    uid: str
    node: str = ""
    ending: bool = False
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass
class World:
    """What outlives every binder."""

    pods: dict[str, FakePod] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    requests: dict[Key, BindRequest] = field(default_factory=dict)
    prepared: set[tuple[str, str]] = field(default_factory=set)  # plugin, pod UID
    finished: set[tuple[str, str]] = field(default_factory=set)  # plugin, pod UID
    log: list[tuple[str, ...]] = field(default_factory=list)
    now: float = 1_000_000.0
    version: int = 0

    def put(self, request: BindRequest, **status: Any) -> BindRequest:
        """Store a request as the API server does; return it as it is now."""
        self.version += 1
        meta = msgspec.structs.replace(request.metadata, resource_version=str(self.version))
        if status:
            merged = {**msgspec.to_builtins(request.status), **status}
            new_status = msgspec.convert(merged, BindRequestStatus)
            request = msgspec.structs.replace(request, status=new_status)
        request = msgspec.structs.replace(request, metadata=meta)
        self.requests[meta.namespace, meta.name] = request
        return request

    def bound(self) -> dict[str, str]:
        """Return the bound pods: UID -> node."""
        return {pod.uid: pod.node for pod in self.pods.values() if pod.node}


def gang(
    world: World,
    size: int,
    *,
    name: str = "gang",
    parts: int = 1,
    min_bound: int | None = None,
    backoff_limit: int = 3,
    token: int = 0,
    after: str | None = None,
) -> list[BindRequest]:
    """Add pods, nodes and the request (or its parts) that binds pod i to node i."""
    bindings = []
    for number in range(size):
        world.pods[f"{name}-{number}"] = FakePod(uid=f"uid-{name}-{number}")
        world.nodes.add(f"node-{number}")
        bindings.append(
            PodBinding(
                pod_name=f"{name}-{number}",
                pod_uid=f"uid-{name}-{number}",
                selected_node=f"node-{number}",
            )
        )
    return [
        world.put(
            BindRequest(
                metadata=Meta(
                    name=f"{name}-{part}",
                    namespace=NAMESPACE,
                    uid=f"br-{name}-{part}",
                    generation=1,
                ),
                spec=BindRequestSpec(
                    pods=bindings[part * size // parts : (part + 1) * size // parts],
                    statement=StatementReference(id=name, part=part, parts=parts, after=after),
                    min_bound=min_bound,
                    backoff_limit=backoff_limit,
                    fencing_token=token,
                ),
            )
        )
        for part in range(parts)
    ]


@dataclass
class Script:
    """Which of the calls, counted over all binders, meet which trouble."""

    troubles: Mapping[int, Trouble] = field(default_factory=dict)
    calls: int = 0

    def next(self) -> Trouble | None:
        self.calls += 1
        return self.troubles.get(self.calls - 1)


class Door:
    """A binder's calls, each with its trouble; also the rights of its plugins."""

    def __init__(self, world: World, script: "Script") -> None:
        self.world = world
        self.script = script
        self.dead = False
        self.calls: list[str] = []
        self.before_call: Callable[[str], None] = lambda _call: None

    async def call(self, name: str, effect: Callable[[], Any]) -> Any:
        """Do `effect` the way the script has it."""
        await self._live()
        self.calls.append(name)
        self.before_call(name)
        trouble = self.script.next()
        if trouble is Trouble.DEATH_BEFORE:
            self._die()
        if trouble is Trouble.ERROR:
            raise ServerError(500, "InternalError", "trouble")
        if trouble is Trouble.LOST_BEFORE:
            raise OutcomeUnknownError("lost before")
        if trouble is Trouble.CONFLICT and name == "bind":
            raise ConflictError(409, "Conflict", "trouble")
        result = effect()
        if trouble is Trouble.DEATH_AFTER:
            self._die()
        if trouble is Trouble.LOST_AFTER:
            raise OutcomeUnknownError("lost after")
        await self._live()
        return result

    async def pause(self, seconds: float) -> bool:
        await self._live()
        self.world.now += seconds
        return True

    async def _live(self) -> None:
        if self.dead:
            raise Death
        await asyncio.sleep(0)
        if self.dead:
            raise Death

    def _die(self) -> None:
        self.dead = True
        raise Death

    # ---- BindingPort ----

    async def find_pod(self, namespace: str, name: str, uid: str) -> PodView | None:
        del uid
        return await self.read_pod(namespace, name)

    async def read_pod(self, namespace: str, name: str) -> PodView | None:
        def look() -> PodView | None:
            pod = self.world.pods.get(name)
            return pod and PodView(namespace, name, pod.uid, pod.node, pod.ending)

        return cast("PodView | None", await self.call("read pod", look))

    async def node_exists(self, name: str) -> bool:
        return cast("bool", await self.call("read node", lambda: name in self.world.nodes))

    async def bind(
        self, pod: PodView, node: str, metadata: BindingMetadata, *, priority: int = 0
    ) -> None:
        del priority

        def bind() -> None:
            found = self.world.pods.get(pod.name)
            if found is None:
                raise NotFoundError(404, "NotFound", pod.name)
            if found.uid != pod.uid or found.node or found.ending:
                raise ConflictError(409, "Conflict", pod.name)
            found.node, found.annotations = node, {**found.annotations, **metadata.annotations}
            self.world.log.append(("bind", pod.uid, node))

        await self.call("bind", bind)

    # ---- RequestStore ----

    async def write_status(self, request: BindRequest, status: Mapping[str, object]) -> BindRequest:
        def write() -> BindRequest:
            current = self._current(request)
            plain = {key: value for key, value in status.items() if value is not None}
            self.world.log.append(("status", request.metadata.name, str(status["phase"])))
            plain.pop("boundCount", None)
            return self.world.put(current, **plain)

        while True:
            try:
                return cast("BindRequest", await self.call("write status", write))
            except (ServerError, OutcomeUnknownError):
                continue

    async def find_statement(self, namespace: str, statement_id: str) -> list[BindRequest]:
        def find() -> list[BindRequest]:
            found = self.world.requests.items()
            here = [request for (place, _), request in found if place == namespace]
            return [request for request in here if request.spec.statement.id == statement_id]

        return cast("list[BindRequest]", await self.call("find statement", find))

    async def confirm(self, request: BindRequest) -> BindRequest:
        found = await self.call("confirm", lambda: self._current(request))
        return cast("BindRequest", found)

    def _current(self, request: BindRequest) -> BindRequest:
        current = self.world.requests.get((request.metadata.namespace, request.metadata.name))
        if current is None or current.metadata.uid != request.metadata.uid:
            raise RequestGoneError
        if current.metadata.generation != request.metadata.generation:
            raise RequestChangedError
        return current


class Claims:
    """A plugin that claims something of the world for each pod, and gives it back."""

    def __init__(self, door: Door, name: str, refuses: Mapping[str, PluginError]) -> None:
        self.door, self.name, self.refuses = door, name, refuses

    async def pre_bind(self, context: BindContext) -> None:
        uid = context.pod.uid
        if uid in self.refuses:
            raise self.refuses[uid]
        await self.door.call("pre_bind", lambda: self.door.world.prepared.add((self.name, uid)))
        self.door.world.log.append(("pre_bind", uid, self.name))
        context.state["claimed"] = True

    async def post_bind(self, context: BindContext) -> None:
        uid = context.pod.uid
        await self.door.call("post_bind", lambda: self.door.world.finished.add((self.name, uid)))

    async def rollback(self, context: BindContext) -> None:
        uid = context.pod.uid
        await self.door.call("rollback", lambda: self.door.world.prepared.discard((self.name, uid)))
        self.door.world.log.append(("rollback", uid, self.name))


@dataclass
class Notes:
    """A reporter, retention and malformed sink that only remember."""

    failed: list[Outcome] = field(default_factory=list)
    concluded_: list[Outcome] = field(default_factory=list)
    kept: list[Finished] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)

    def attempt_failed(self, _requests: object, outcome: Outcome) -> None:
        self.failed.append(outcome)

    def concluded(self, _requests: object, outcome: Outcome) -> None:
        self.concluded_.append(outcome)

    def add(self, request: Finished) -> None:
        self.kept.append(request)

    async def refuse(self, request: Malformed, _status: Mapping[str, object]) -> None:
        self.malformed.append(request)

    def note(self, stored: StoredBindRequest) -> None:
        """Keep nothing: no Statements share a request."""

    def drop(self, uid: str) -> None:
        """Keep nothing."""


class Binder:
    """A manager with a door of its own."""

    def __init__(
        self,
        world: World,
        script: Script | None = None,
        *,
        plugins: int = 2,
        refuses: Mapping[str, PluginError] | None = None,
        more_plugins: Sequence[BinderPlugin] = (),
    ) -> None:
        self.world, self.notes = world, Notes()
        self.door = Door(world, script or Script())
        claims = [Claims(self.door, f"claims-{n}", refuses or {}) for n in range(plugins)]
        chain = PluginChain(
            [*claims, *more_plugins],
            lambda _namespace, _priority: cast("Client", None),
            lambda _plugin, _step, _outcome, _seconds: None,
        )
        dependencies = RunDependencies(
            port=self.door,
            store=self.door,
            plugins=chain,
            reporter=self.notes,
            clock=lambda: world.now,
            pause=self.door.pause,
            draw=lambda: 0.5,
            max_backoff_s=300.0,
        )
        self.manager = Manager(dependencies, Fence(), self.notes, self.notes)
        self.intake = Intake(self.manager, self.notes)

    def list_requests(self) -> None:
        """See all requests, as at a start."""
        for request in self.world.requests.values():
            self.manager.note_token(request.metadata.labels, request.spec.fencing_token)
        for request in list(self.world.requests.values()):
            self.manager.observe(request, adopted=True)

    async def settle(self) -> None:
        """Wait until nothing goes on any more, or the binder is dead."""
        while self.manager._tasks and not self.door.dead:
            await asyncio.wait(self.manager._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def bury(self) -> None:
        """End the tasks of a dead binder."""
        await self.manager.drain(0)


def play(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new event loop, without the noise that dead binders make."""

    async def quiet() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        async with asyncio.timeout(20):
            await main

    asyncio.run(quiet())


async def carry_through(
    world: World,
    script: Script | None = None,
    *,
    plugins: int = 2,
    refuses: Mapping[str, PluginError] | None = None,
    before_call: Callable[[str], None] = lambda _call: None,
) -> list[Binder]:
    """Run binders one after the other, a new one after each death, until one finds rest."""
    script = script or Script()
    binders: list[Binder] = []
    while True:
        binder = Binder(world, script, plugins=plugins, refuses=refuses)
        binder.door.before_call = before_call
        binders.append(binder)
        binder.list_requests()
        await binder.settle()
        await binder.bury()
        if not binder.door.dead:
            return binders
