"""A binder over the fake API server of `binderworld`, which can be killed.

`World` outlives the binders. Each `Binder` has its own door to it, which obeys a script of
troubles that meet some of the calls: an error, an answer lost before or after the effect, or death.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import msgspec

from bindery.binder.api_server.shared_status import SharedStatuses
from bindery.binder.api_server.waits import Waits
from bindery.binder.outcome.bindingmetadata import BindingMetadata
from bindery.binder.outcome.fencing import Fence
from bindery.binder.outcome.outcome import Outcome
from bindery.binder.outcome.ports import PodView, RequestChangedError, RequestGoneError
from bindery.binder.outcome.retention import Finished
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.plugins.interface import BindContext, BinderPlugin, PluginError
from bindery.binder.run.dependencies import RunDependencies
from bindery.binder.statements.intake import Intake
from bindery.binder.statements.manager import Malformed, Manager
from bindery.kube.client import Client
from bindery.kube.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    OutcomeUnknownError,
    ServerError,
)
from bindery.kube.objects.bindrequests import BindRequest, BindRequestStatus, CommittedStatement
from bindery.kube.objects.watched import Meta
from tests.binder.binderworld import World


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
class Script:
    """Which of the calls, counted over all binders, meet which trouble."""

    troubles: Mapping[int, Trouble] = field(default_factory=dict)
    calls: int = 0

    def next(self) -> Trouble | None:
        self.calls += 1
        return self.troubles.get(self.calls - 1)


class Door:
    """A binder's calls, each with its trouble; also the rights of its plugins."""

    def __init__(
        self, world: World, script: "Script", is_waited_for: Callable[[str, str], bool]
    ) -> None:
        self.world = world
        self.shared = SharedStatuses(self, is_waited_for)
        self.script = script
        self.dead = False
        self.calls: list[str] = []
        self.before_call: Callable[[str], object] = lambda _call: None

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
        if trouble is Trouble.CONFLICT and name in ("bind", "patch status"):
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
        if self.world.keeps_time:
            await asyncio.sleep(seconds)
            await self._live()
        else:
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
            if pod is None:
                return None
            return PodView(namespace, name, pod.uid, pod.node, pod.ending, str(pod.version))

        return cast("PodView | None", await self.call("read pod", look))

    async def void_bindings(self, namespace: str, name: str, uid: str) -> PodView | None:
        def write() -> None:
            pod = self.world.pods.get(name)
            if pod is not None and pod.uid == uid:
                pod.version += 1

        await self.call("void bindings", write)
        return await self.read_pod(namespace, name)

    async def left_writes_ended(self) -> None: ...

    async def node_exists(self, name: str) -> bool:
        return cast("bool", await self.call("read node", lambda: name in self.world.nodes))

    async def bind(
        self, pod: PodView, node: str, metadata: BindingMetadata, *, version: str, priority: int = 0
    ) -> None:
        del priority

        def bind() -> None:
            found = self.world.pods.get(pod.name)
            if found is None:
                raise NotFoundError(404, "NotFound", pod.name)
            is_other = found.uid != pod.uid or str(found.version) != version
            if is_other or found.node or found.ending:
                raise ConflictError(409, "Conflict", pod.name)
            found.version += 1
            found.node, found.annotations = node, {**found.annotations, **metadata.annotations}
            self.world.log.append(("bind", pod.uid, node))

        await self.call("bind", bind)

    # ---- RequestStore ----

    async def write_status(
        self, request: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement:
        return await self.shared.write(request, status)

    async def try_to_write(
        self, request: CommittedStatement, status: Mapping[str, object]
    ) -> CommittedStatement | None:
        try:
            return await self.shared.try_to_write(request, status)
        except (KubeError, RequestGoneError):
            return None

    async def acknowledge(self, request: BindRequest, status: Mapping[str, object]) -> None:
        raise NotImplementedError("no test of the fake has an announcement")

    async def release(self, request: Meta) -> None:
        def release() -> None:
            self.world.requests.pop((request.namespace, request.name), None)
            self.world.log.append(("release", request.name))

        await self.call("release", release)

    async def find_statement(self, namespace: str, statement_id: str) -> list[CommittedStatement]:
        def find() -> list[CommittedStatement]:
            here = [r for r in self.world.statements() if r.metadata.namespace == namespace]
            return [request for request in here if request.spec.id == statement_id]

        return cast("list[CommittedStatement]", await self.call("find statement", find))

    async def confirm(self, request: CommittedStatement) -> CommittedStatement:
        found = await self.call("confirm", lambda: self._current(request))
        return cast("CommittedStatement", found)

    def _current(self, request: CommittedStatement) -> CommittedStatement:
        stored = self.world.requests.get((request.metadata.namespace, request.metadata.name))
        if stored is None or stored.metadata.uid != request.metadata.uid:
            raise RequestGoneError
        each = next((each for each in stored.each() if each.key == request.key), None)
        if each is None:
            raise RequestGoneError
        if request.is_changed_in(each):
            raise RequestChangedError
        return each

    # ---- StoredRequests ----

    async def read(self, namespace: str, name: str) -> BindRequest:
        found = await self.call("read request", lambda: self._stored(namespace, name))
        return cast("BindRequest", found)

    async def patch_status(self, stored: BindRequest, status: Mapping[str, object]) -> BindRequest:
        meta, change = stored.metadata, msgspec.to_builtins(status)

        def patch() -> BindRequest:
            current = self._stored(meta.namespace, meta.name)
            theirs = current.metadata
            if (theirs.uid, theirs.resource_version) != (meta.uid, meta.resource_version):
                raise ConflictError(409, "Conflict", meta.name)
            merged = msgspec.to_builtins(current.status) | change
            plain = {key: value for key, value in merged.items() if value is not None}
            self.world.log.append(("status", meta.name, change["phase"]))
            self.world.bound_counts[meta.name] = change["boundCount"]
            written = msgspec.convert(plain, BindRequestStatus)
            return self.world.store(msgspec.structs.replace(current, status=written))

        return cast("BindRequest", await self.call("patch status", patch))

    async def back_off(self, stored: object, error: object, failures: int) -> None:
        del stored, error, failures
        await asyncio.sleep(0.1)

    def _stored(self, namespace: str, name: str) -> BindRequest:
        found = self.world.requests.get((namespace, name))
        if found is None:
            raise NotFoundError(404, "NotFound", name)
        return found


REFUSALS = 40
"""How often a claim is refused that is not refused for good: more often than a binder attempts.

A Statement that lost a bound pod needs the refused one in its place, and tries until it has it.
"""


class Claims:
    """A plugin that claims something of the world for each pod, and gives it back."""

    def __init__(
        self,
        door: Door,
        name: str,
        refuses: Mapping[str, PluginError],
        slow: Mapping[str, float],
    ) -> None:
        self.door, self.name, self.refuses, self.slow = door, name, refuses, slow
        self._refused: Counter[str] = Counter()

    async def pre_bind(self, context: BindContext) -> None:
        uid = context.pod.uid
        refusal = self.refuses.get(uid)
        if refusal is not None and (refusal.permanent or self._refused[uid] < REFUSALS):
            self._refused[uid] += 1
            raise refusal
        if uid in self.slow:
            await self.door.pause(self.slow[uid])
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
    store: Door | None = None
    """Gets the statuses of malformed Statements."""

    def attempt_failed(self, _requests: object, outcome: Outcome) -> None:
        self.failed.append(outcome)

    def concluded(self, _requests: object, outcome: Outcome) -> None:
        self.concluded_.append(outcome)

    def add(self, request: Finished) -> None:
        self.kept.append(request)

    async def refuse(self, request: Malformed, status: Mapping[str, object]) -> None:
        self.malformed.append(request)
        if self.store is not None and request.statement is not None:
            with suppress(RequestGoneError, RequestChangedError):
                await self.store.write_status(request.statement, status)


class Binder:
    """A manager with a door of its own."""

    def __init__(
        self,
        world: World,
        script: Script | None = None,
        *,
        plugins: int = 2,
        refuses: Mapping[str, PluginError] | None = None,
        slow: Mapping[str, float] | None = None,
        more_plugins: Sequence[BinderPlugin] = (),
    ) -> None:
        """Make a binder.

        Args:
            world: the API server.
            script: the troubles.
            plugins: how many claim something for each pod.
            refuses: pod UID -> why none of them prepares the pod, for good or `REFUSALS` times.
            slow: pod UID -> for how many seconds the first of them waits before.
            more_plugins: plugins of the test.
        """
        self.world = world
        self.door = Door(world, script or Script(), self._is_waited_for)
        self.notes = Notes(store=self.door)
        claims = [
            Claims(self.door, f"claims-{n}", refuses or {}, slow or {} if n == 0 else {})
            for n in range(plugins)
        ]
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
            clock=world.time,
            pause=self.door.pause,
            draw=lambda: 0.5,
            max_backoff_s=300.0,
        )
        self.manager = Manager(dependencies, Fence(), self.notes, self.notes)
        self.intake = Intake(self.manager, self.door.shared)
        self._unseen: deque[BindRequest] = deque()

    def _is_waited_for(self, namespace: str, statement_id: str) -> bool:
        return self.manager.is_waited_for(namespace, statement_id)

    def open_statements(self) -> list[str]:
        """Return the ids of the Statements with a part that has no outcome."""
        return [entry.id for entry in self.manager.entries.values() if entry.is_open]

    def list_requests(self) -> None:
        """See all requests, as at a start."""
        for request in self.world.statements():
            self.manager.note_token(request.metadata.labels, request.fencing_token)
        for stored in list(self.world.requests.values()):
            self.intake.observe(stored, adopted=True)

    def say_waits(self) -> asyncio.Task[None]:
        """Write what requests wait for, until the task is cancelled."""
        return asyncio.create_task(Waits(self.manager, self.door, self.door.pause).run())

    def watch(self, lag_s: float = 0.0) -> None:
        """See the changes of stored requests from now on, so much later."""
        loop = asyncio.get_running_loop()

        def show() -> None:
            stored = self._unseen.popleft()  # in order, even if two are due at once
            if not self.door.dead:
                self.intake.observe(stored, adopted=False)

        def show_later(stored: BindRequest) -> None:
            self._unseen.append(stored)
            loop.call_later(lag_s, show)

        self.world.watch = show_later

    async def settle(self) -> None:
        """Wait until nothing goes on any more, or the binder is dead."""
        while (self.manager._tasks or self._unseen) and not self.door.dead:
            if self.manager._tasks:
                await asyncio.wait(self.manager._tasks, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # those that have ended are forgotten only now
            else:
                await asyncio.sleep(0.01)

    async def bury(self) -> None:
        """End the tasks of a dead binder."""
        self.world.watch = lambda _: None
        await self.manager.drain(0)


async def carry_through(
    world: World,
    script: Script | None = None,
    *,
    plugins: int = 2,
    refuses: Mapping[str, PluginError] | None = None,
    slow: Mapping[str, float] | None = None,
    before_call: Callable[[str], object] = lambda _call: None,
    lag_s: float = 0.0,
) -> list[Binder]:
    """Run binders one after the other, a new one after each death, until one finds rest."""
    script = script or Script()
    binders: list[Binder] = []
    while True:
        binder = Binder(world, script, plugins=plugins, refuses=refuses, slow=slow)
        binder.door.before_call = before_call
        binders.append(binder)
        binder.watch(lag_s)
        binder.list_requests()
        # Where pauses end at once, nobody waits for long enough.
        saying = binder.say_waits() if world.keeps_time else None
        await binder.settle()
        if saying is not None:
            saying.cancel()
            await asyncio.gather(saying, return_exceptions=True)
        await binder.bury()
        if not binder.door.dead:
            return binders
