"""Brings the pods of `nodecases` to a node and records what its kubelet wrote."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.reflector import Change, Reflector
from tests.e2e.realnode.nodepods import Case, Spec
from tests.e2e.support import WAIT_S, wait_for

FINALIZER = "bindery.dev/test"
_QUIET_S, _ALONE_S, _WAITING_S, _ENDED_S, _REFUSED_S = 2.5, 1.0, 6.0, 3.0, 0.3
"""How long nothing may change until a state is final: of pods that run, that run alone, that never
run, that have ended, and that are refused."""
_AT_ONCE = 10
"""Pods that start at the same time on one node."""
_ENDED = ("Succeeded", "Failed")

State = tuple[Any, ...]
Checkpoints = Mapping[str, Any]


@dataclass
class History:
    """The status of one pod, one entry for each change."""

    states: list[State] = field(default_factory=list)
    last: Pod = field(default_factory=Pod)
    changed_s: float = 0.0

    def take(self, pod: Pod, node: str, now_s: float) -> None:
        self.last = pod
        status = pod.status
        conditions = tuple(
            (each.type, each.status, each.reason or "") for each in status.conditions or ()
        )
        state = (status.phase, status.reason, status.message.replace(node, "NODE"), conditions)
        if self.states[-1:] != [state]:
            self.states.append(state)
            self.changed_s = now_s

    @property
    def name(self) -> str:
        """The name of the pod without that of its node."""
        return _short(self.last.metadata.name)

    @property
    def is_ready(self) -> bool:
        conditions = self.last.status.conditions or ()
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    @property
    def phases(self) -> list[str]:
        return [phase for phase, _ in groupby(state[0] for state in self.states)]

    @property
    def told(self) -> tuple[list[str], State]:
        """The phases in their order and the final state.

        A real kubelet also writes conditions before the containers run. A hollow node does not: it
        would double its writes, and nothing waits for them.
        """
        return self.phases, self.states[-1]


@dataclass(frozen=True)
class Played:
    """What became of the pods of one case on one node."""

    histories: list[History]
    checkpoints: Checkpoints
    seen: list[Any] = field(default_factory=list)
    """What `Stage.look` returned for each pod that was there in the end."""


@dataclass(frozen=True)
class Stage:
    """One node and what is known of the pods on it."""

    client: Client
    namespace: str
    node: str
    read: Callable[[], Checkpoints]
    """Returns the contents of the checkpoints of its kubelet."""
    is_hollow: bool = False
    look: Callable[[str], Awaitable[Any]] | None = None
    """Looks at a pod before it is removed; its name is given."""
    longest_s: float = 25.0
    """How long a pod may take to its final phase."""
    patience_s: float = 0.0
    """How long nothing may change at least, of pods that wait, are not ready, or have ended."""
    histories: dict[str, History] = field(default_factory=lambda: defaultdict(History))
    seen: dict[str, Any] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def play(self, cases: Sequence[Case], *, alone: bool) -> list[Played]:
        """Return what became of the pods of each case; `alone`: one case after the other."""
        watch = Reflector(self.client, PODS, self._take, namespace=self.namespace)
        task = asyncio.create_task(watch.run())
        try:
            await watch.synced.wait()
            numbered = enumerate(cases)
            if alone:
                return [await self._play(number, case, alone=True) for number, case in numbered]
            return await asyncio.gather(
                *(self._play(number, case, alone=False) for number, case in numbered)
            )
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _take(self, change: Change[Pod]) -> None:
        pod = change.object
        if pod.spec.node_name != self.node:
            return
        if change.type == "DELETED":
            self.gone.add(pod.metadata.name)
        else:
            now_s = asyncio.get_running_loop().time()
            self.histories[pod.metadata.name].take(pod, self.node, now_s)

    async def _play(self, number: int, case: Case, *, alone: bool) -> Played:
        async with self.slots:
            names: list[str] = []
            found: list[History] = []
            quiet_s = (_ALONE_S if alone else _QUIET_S) if case.until != "Pending" else _WAITING_S
            for index, spec in enumerate(case.pods):
                names.append(f"{self.node}-{'a' if alone else 't'}{number}-{index}")
                await self._create(names[-1], spec, case)
                await self._settled(names[-1], case, quiet_s)
                if case.releases and index + 1 < len(case.pods):
                    found.append(self._taken(names[-1]))
                    await self._remove(names[-1])
            if case.is_deleted:
                await self._stop(names[-1])
            read = self.read() if alone else {}
            uids = {self.histories[name].last.metadata.uid: name for name in names}
            left = names[len(found) :]
            found += [self._taken(name) for name in left]
            for name in left:
                await self._look(name)
            played = Played(found, _named(read, uids), [self.seen.get(name) for name in left])
            await asyncio.gather(*(self._remove(name) for name in names))
            return played

    def _taken(self, name: str) -> History:
        history = self.histories[name]
        return replace(history, states=[*history.states])

    async def _create(self, name: str, spec: Spec, case: Case) -> None:
        metadata: dict[str, Any] = {"name": name, "annotations": dict(case.annotations)}
        if case.is_deleted:
            metadata["finalizers"] = [FINALIZER]
        body = {"metadata": metadata, "spec": {**spec, "nodeName": self.node}}
        try:
            await self.client.create(PODS, body, self.namespace)
        except Exception as error:
            raise AssertionError(f"{name}: {spec}") from error

    async def _settled(self, name: str, case: Case, quiet_s: float) -> None:
        loop, history = asyncio.get_running_loop(), self.histories[name]

        given_up_s = loop.time() + self.longest_s

        async def is_settled() -> bool:
            if loop.time() > given_up_s:
                return True  # the comparison shows where it is
            phase = history.last.status.phase
            if phase in _ENDED and not history.last.status.reason:
                return loop.time() - history.changed_s > max(_ENDED_S, self.patience_s)
            if history.last.status.reason and phase == "Failed" and len(history.states) > 1:
                return loop.time() - history.changed_s > max(_REFUSED_S, self.patience_s / 4)
            differs = self.is_hollow and case.differs
            final = bool(phase) if differs else phase in (case.until, *_ENDED)
            # What is not ready may become so: probes take their time on a busy machine.
            is_waiting = not history.is_ready
            long_s = max(_WAITING_S, self.patience_s) if is_waiting else quiet_s
            return final and loop.time() - history.changed_s > long_s

        await wait_for(is_settled, f"{name} is settled: {case.until}", 2 * WAIT_S)

    async def _stop(self, name: str) -> None:
        history = self.histories[name]
        await self.client.delete(PODS, name, self.namespace)

        async def has_ended() -> bool:
            return history.last.status.phase in _ENDED

        await wait_for(has_ended, f"{name} has ended")
        await asyncio.sleep(1)
        await self._look(name)
        patch = {"metadata": {"finalizers": None}}
        await self.client.patch(PODS, name, patch, namespace=self.namespace)

    async def _look(self, name: str) -> None:
        if self.look is not None and name not in self.seen:
            self.seen[name] = await self.look(name)

    async def _remove(self, name: str) -> None:
        """Delete a pod and wait until its kubelet has let go of it."""
        try:
            await self.client.delete(PODS, name, self.namespace, grace_period_s=1)
        except NotFoundError:
            return

        async def is_gone() -> bool:
            return name in self.gone

        await wait_for(is_gone, f"{name} is gone")


def _named(checkpoints: Checkpoints, uids: Mapping[str, str]) -> Checkpoints:
    """Return checkpoints with names of pods instead of UIDs."""
    text = json.dumps(checkpoints)
    for uid, name in uids.items():
        text = text.replace(uid, _short(name))
    found: Checkpoints = json.loads(text)
    return found


def _short(name: str) -> str:
    """Return the name of a pod without that of its node."""
    return "-".join(name.split("-")[-2:])
