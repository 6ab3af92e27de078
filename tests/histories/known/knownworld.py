"""A world in which people do what a test writes down, and the history of it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import LEASES, POD_GROUPS, PODS
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.history import REST_WITHIN_S, History, Played
from tests.histories.known.objects import Body
from tests.histories.loop import Process, VirtualLoop
from tests.histories.network import Network
from tests.histories.plan import PROCESSES, Plan
from tests.histories.reading import all_of
from tests.histories.story import story
from tests.histories.world import NAMESPACE, World

_PATIENCE_S: Final = 60.0


def plan(seed: int, *, nodes: int, cores: int = 4, gpus: int = 0, limit_cores: int = 4) -> Plan:
    """Return a plan without faults, in which nothing is done by chance."""
    return Plan(seed, nodes, cores, gpus, limit_cores, (), (), (), (0.0,) * len(PROCESSES))


@dataclass(kw_only=True)
class KnownWorld(World):
    """What `people` of a test act through."""

    people: "People"
    network: Network
    loop: VirtualLoop
    processes: Mapping[str, Process] = field(default_factory=dict)
    stop: Callable[[str], None] = lambda _process: None
    """Let a process end in order; it is back when faults end."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each write."""
    error: BaseException | None = None
    """What stopped the people."""
    is_done: bool = False
    collects_pods: bool = True
    """Whether pods of nodes that are gone are deleted."""

    def see(self, change: Change) -> None:
        """Take note of a write."""
        super().see(change)
        self.written.set()

    async def live(self) -> None:
        """Let people act, beside the controllers."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().live())
            group.create_task(self._let_people_act())

    async def _let_people_act(self) -> None:
        try:
            await self.people(self)
        except Exception as error:  # told by `KnownHistory`, at the end
            self.error = error
        self.is_done = True

    async def _collect_pods(self) -> None:
        if self.collects_pods:
            await super()._collect_pods()

    async def submit(self, gang: Body, pods: Iterable[Body]) -> None:
        """Create a gang."""
        await self.client.create(POD_GROUPS, gang, NAMESPACE)
        for each in pods:
            await self.client.create(PODS, each, NAMESPACE)

    async def remove(self, *names: str) -> None:
        """Delete pods at once."""
        for name in names:
            with suppress(NotFoundError):
                await self.client.delete(PODS, name, NAMESPACE, grace_period_s=0)

    async def disband(self, gang: str) -> None:
        """Delete a PodGroup and its pods."""
        await self.remove(*(each.metadata.name for each in self.pods_of(gang)))
        await self.client.delete(POD_GROUPS, gang, NAMESPACE)

    def freeze(self, *processes: str) -> None:
        """Freeze processes until they are woken; at the latest when faults end."""
        for name in processes:
            self.processes[name].freeze()

    def wake(self, *processes: str) -> None:
        """Let processes go on."""
        for name in processes:
            self.loop.wake(self.processes[name])

    async def until(self, holds: Callable[[], bool], within_s: float = _PATIENCE_S) -> None:
        """Wait until something is stored."""
        async with asyncio.timeout(within_s):
            while not holds():
                self.written.clear()
                await self.written.wait()

    async def until_bound(self, gang: str, pods: int, within_s: float = _PATIENCE_S) -> None:
        """Wait until so many pods of a gang have a node."""
        await self.until(lambda: self.bound(gang) == pods, within_s)

    async def until_all(self, gang: str, phase: str) -> None:
        """Wait until all pods of a gang are in a phase."""
        await self.until(lambda: set(self.phases(gang)) == {phase})

    # -- what is stored --------------------------------------------------------------------------

    def pods_of(self, gang: str) -> list[Pod]:
        """Return the pods of a gang."""
        stored = self.server.store.of(self.server.kind("pods")).objects
        return [
            PODS.decode(stored[key].body)
            for key in sorted(stored)
            if (stored[key].object["metadata"].get("annotations") or {}).get(POD_GROUP_ANNOTATION)
            == gang
        ]

    def bound(self, gang: str) -> int:
        """Return how many pods of a gang have a node."""
        return sum(bool(each.spec.node_name) for each in self.pods_of(gang))

    def phases(self, gang: str) -> list[str]:
        """Return the phases of the pods of a gang."""
        return sorted(each.status.phase for each in self.pods_of(gang))

    def group(self, name: str) -> PodGroup:
        """Return a PodGroup."""
        return next(each for each in all_of(self.server, POD_GROUPS) if each.metadata.name == name)

    def leader(self, component: str) -> str:
        """Return the name of the process that holds a Lease: `binder-0` or `binder-1`."""
        lease = next(
            each for each in all_of(self.server, LEASES) if each.metadata.name.endswith(component)
        )
        return (lease.spec.holder_identity or "").rpartition("-")[0]


People = Callable[[KnownWorld], Coroutine[Any, Any, None]]


class KnownHistory(History):
    """Plays a world in which `people` act."""

    def __init__(self, plan: Plan, people: People) -> None:
        super().__init__(plan, REST_WITHIN_S)
        self.world = KnownWorld(
            plan,
            self._server,
            self._client,
            Random(f"world {plan.seed}"),
            people=people,
            network=self._network,
            loop=self._loop,
            processes=self._running,
            stop=self._stop,
        )
        self._world, self._judge.see = self.world, self.world.see

    def expect(self) -> Played:
        """Play it, and assert that every promise was kept, and that people could finish."""
        played = self.play()
        assert not played.problem, story(played)
        if self.world.error is not None:
            raise AssertionError(f"people: {self.world.error!r}\n{story(played)}")
        assert self.world.is_done, f"people still wait\n{story(played)}"
        return played


def taken_by(played: Played, component: str) -> list[str]:
    """Return the pods that processes of a component have deleted or evicted, in order.

    Pods of these worlds have no grace period.
    """
    return [
        change.key[1]
        for change in played.writes
        if change.kind.plural == "pods"
        and change.writer.caller.startswith(component)
        and change.type is ChangeType.DELETED
    ]
