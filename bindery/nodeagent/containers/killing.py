"""Ends containers: pre-stop hooks, stop signals, grace periods, and the sidecars last.

Source: `killContainer` and `killPodWithSyncResult`, Kubernetes 1.36.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from bindery.nodeagent.containers import labels, rules
from bindery.nodeagent.containers.checks import Target
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.parts import NodeParts
from bindery.nodeagent.containers.podspec import Hook, RunContainer, RunPod
from bindery.nodeagent.containers.seen import own_id
from bindery.nodecore.podsync import ending
from bindery.nodecore.podsync.actions import Kill, KillReason
from bindery.nodecore.podsync.facts import RuntimePod

log = structlog.get_logger(__name__)


@dataclass
class _Order:
    """Which containers have ended, for containers that end after them."""

    ended: Mapping[str, asyncio.Event]

    async def wait(self, names: Sequence[str], at_most_s: float) -> None:
        """Wait until the containers `names` have ended."""
        waits = [self.ended[name].wait() for name in names]
        if waits:
            done = asyncio.gather(*waits)
            try:
                async with asyncio.timeout(at_most_s):
                    await done
            except TimeoutError:
                log.debug("containers did not end before others that wait for them", names=names)


class Killer:
    """Ends containers and sandboxes of pods."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    async def pod(self, pod: RunPod, seen: RuntimePod) -> None:
        """End all containers and sandboxes of a pod; raises RuntimeCallError."""
        kills = [Kill(one, f"Stopping container {one.name}") for one in seen.running]
        await self.containers(pod, kills, seen)
        for sandbox in seen.sandboxes:
            await self._parts.runtime.stop_sandbox(sandbox.id)

    async def containers(self, pod: RunPod, kills: Sequence[Kill], seen: RuntimePod) -> None:
        """End some containers at one time, in the order of a pod with sidecars if all end."""
        ending_all = {one.container.name for one in kills} == {one.name for one in seen.running}
        order = _Order({one.container.name: asyncio.Event() for one in kills})
        chosen = order if ending_all else None
        await _together(self._container(pod, kill, seen, chosen) for kill in kills)

    async def _container(
        self, pod: RunPod, kill: Kill, seen: RuntimePod, order: _Order | None
    ) -> None:
        name = kill.container.name
        spec = next((one for one in pod.spec.all_containers if one.name == name), None)
        grace_s = _grace_s(pod, spec, kill.reason)
        self._parts.report(pod, "Normal", "Killing", kill.message)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        hook = spec.lifecycle.pre_stop if spec is not None and spec.lifecycle is not None else None
        if spec is not None and hook is not None and grace_s > 0:
            address = next(iter(seen.addresses), "")
            if not await self._pre_stop(
                hook, Target(spec, own_id(kill.container.id), address), grace_s
            ):
                self._parts.report(pod, "Warning", "FailedPreStopHook", "PreStopHook failed")
        if order is not None:
            running = order.ended.keys()
            before = ending.ends_after(rules.of_pod(pod), name, running)
            await order.wait(before, max(0.0, grace_s - (clock() - began_s)))
        left_s = max(grace_s - int(clock() - began_s), ending.LEAST_GRACE_S)
        await self._parts.runtime.stop_container(own_id(kill.container.id), left_s)
        if order is not None:
            order.ended[name].set()

    async def _pre_stop(self, hook: Hook, target: Target, grace_s: int) -> bool:
        try:
            async with asyncio.timeout(grace_s):
                outcome = await self._parts.checks.hook(hook, target, float(grace_s))
        except TimeoutError:
            return True  # the grace period is over; the container gets its signal
        return outcome.success

    async def orphan(self, uid: str) -> None:
        """End and remove the containers of a pod that is no longer on this node.

        The hooks and grace periods are those in the annotations of its containers.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        runtime = self._parts.runtime
        found = await runtime.containers(uid)
        running = [one for one in found if one.state == cri.CONTAINER_RUNNING]
        sandboxes = await runtime.sandboxes(uid)
        log.info("ending a pod that is not on this node", uid=uid, containers=len(running))
        await _together(self._orphan(container) for container in running)
        for sandbox in sandboxes:
            await runtime.stop_sandbox(sandbox.id)
            await runtime.remove_sandbox(sandbox.id)

    async def _orphan(self, container: cri.Container) -> None:
        notes = dict(container.annotations)
        text = notes.get(labels.DELETION_GRACE) or notes.get(labels.GRACE) or ""
        grace_s = int(text) if text.isdigit() else ending.LEAST_GRACE_S
        hook = labels.pre_stop(notes)
        if hook is not None and grace_s > 0:
            spec = RunContainer(name=container.metadata.name)
            status = await self._parts.runtime.sandbox_status(container.pod_sandbox_id)
            await self._pre_stop(hook, Target(spec, container.id, status.network.ip), grace_s)
        try:
            await self._parts.runtime.stop_container(
                container.id, max(grace_s, ending.LEAST_GRACE_S)
            )
        except RuntimeCallError as error:
            log.warning("a container could not be ended", id=container.id, error=str(error))
            raise


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all works to their end; then raise the first error."""
    for found in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


def _grace_s(pod: RunPod, spec: RunContainer | None, reason: KillReason) -> int:
    probes: dict[KillReason, int] = {}
    for kind, probe in (
        (KillReason.STARTUP_PROBE, spec.startup_probe if spec is not None else None),
        (KillReason.LIVENESS_PROBE, spec.liveness_probe if spec is not None else None),
    ):
        if probe is not None and probe.termination_grace_period_seconds is not None:
            probes[kind] = probe.termination_grace_period_seconds
    return ending.grace_s(
        pod.metadata.deletion_grace_period_seconds,
        pod.spec.termination_grace_period_seconds,
        reason,
        probes,
    )
