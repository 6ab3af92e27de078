"""What must hold when all is quiet: no gang in part, no wrong condition, nothing left over."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bindery.api import gpushare
from bindery.api.hami import names as hami_names
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import CONFIG_MAPS, NODES, POD_GROUPS, PODS
from bindery.kube.objects.watched import Pod
from tests.e2e.chaos.churn import Churn, Submitted
from tests.e2e.chaos.figures import Figures
from tests.e2e.chaos.ground import Ground
from tests.e2e.chaos.recount import Recount

PATIENCE_S = 150.0
"""Leases, backoffs and avoided nodes end within it, on a busy machine too."""
_GIVEN_BY_KUBERNETES = "kube-root-ca.crt"


@dataclass
class Rest:
    """Looks at the cluster once churn and blows have ended."""

    ground: Ground
    churn: Churn
    recount: Recount
    figures: Figures

    async def look(self) -> None:
        """Wait until nothing is wrong; what is still wrong after `PATIENCE_S` is a problem."""
        await self._settled(self._amiss, "at rest")
        self.figures.rests += 1

    async def look_empty(self) -> None:
        """The same once all gangs have been deleted: nothing may be left."""
        await self._settled(self._left_over, "after everything was deleted")

    async def _settled(self, find: Callable[[], Awaitable[list[str]]], when: str) -> None:
        deadline_s, clean = time.monotonic() + PATIENCE_S, 0
        while clean < 2:  # once may be a moment between two steps
            found = await find()
            clean = 0 if found else clean + 1
            if found and time.monotonic() > deadline_s:
                for text in found:
                    self.figures.problem(f"{when}: {text}")
                return
            await asyncio.sleep(1.5)

    async def _amiss(self) -> list[str]:
        pods = await self._pods()
        groups = await self.ground.client.list(POD_GROUPS, namespace=self.ground.corner.namespace)
        found = [text for group in groups for text in self._gang_problems(group, pods)]
        found += [
            f"{component.name} has ended"
            for component in self.ground.components.values()
            if not component.process.is_running
        ]
        return found + await self._held_by_nobody(pods)

    def _gang_problems(self, group: PodGroup, pods: list[Pod]) -> list[str]:
        name = group.metadata.name
        submitted = self.churn.gangs.get(name)
        if submitted is None:
            return []  # it is being deleted
        mine = [p for p in pods if p.metadata.annotations.get(POD_GROUP_ANNOTATION) == name]
        bound = sum(bool(pod.spec.node_name) for pod in mine)
        if submitted.is_disturbed:
            return []
        if 0 < bound < submitted.minimum:
            return [f"{bound} of {submitted.minimum} pods of {name} are bound"]
        return _condition_problems(group, submitted, bound)

    async def _held_by_nobody(self, pods: list[Pod]) -> list[str]:
        """Return what is held though no pod that is there can be using it."""
        used: Counter[str] = Counter()
        for pod in pods:
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
                used.update(gpushare.groups(pod.metadata.labels))
        found = [
            f"reservation {pod.metadata.name} of group {group} has no users"
            for pod in await self._reservations()
            for group in gpushare.groups(pod.metadata.labels)
            if group not in used
        ]
        uids = {pod.metadata.uid for pod in pods}
        for claim in await self.ground.driver.claims():
            strangers = {user.uid for user in claim.status.reserved_for} - uids
            if strangers:
                found.append(f"claim {claim.metadata.name} is reserved for pods that are gone")
        return found + await self._locks() + self._shared_twice(await self._devices())

    async def _left_over(self) -> list[str]:
        namespace, client = self.ground.corner.namespace, self.ground.client
        found = [f"pod {pod.metadata.name}" for pod in await self._pods()]
        found += [f"BindRequest {r.metadata.name}" for r in await self.ground.corner.requests()]
        found += [f"reservation {pod.metadata.name}" for pod in await self._reservations()]
        maps = await client.list(CONFIG_MAPS, namespace=namespace)
        found += [
            f"ConfigMap {each.metadata.name}"
            for each in maps
            if each.metadata.name != _GIVEN_BY_KUBERNETES
        ]
        found += [f"claim {claim.metadata.name}" for claim in await self.ground.driver.claims()]
        return found + await self._locks()

    async def _pods(self) -> list[Pod]:
        return await self.ground.client.list(PODS, namespace=self.ground.corner.namespace)

    async def _reservations(self) -> list[Pod]:
        prefix = f"{self.ground.corner.namespace}-"
        every = await self.ground.client.list(PODS, namespace=gpushare.RESERVATION_NAMESPACE)
        return [pod for pod in every if pod.spec.node_name.startswith(prefix)]

    async def _locks(self) -> list[str]:
        found = []
        for name in self.ground.hami:
            node = await self.ground.client.get(NODES, name)
            value = node.metadata.annotations.get(hami_names.NODE_LOCK)
            if value is not None:
                found.append(f"lock {value} on {name}")
        return found

    async def _devices(self) -> list[tuple[str, str]]:
        return [
            (result.pool, result.device)
            for claim in await self.ground.driver.claims()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        ]

    def _shared_twice(self, devices: list[tuple[str, str]]) -> list[str]:
        return [
            f"device {device} of {pool} is allocated to {count} claims"
            for (pool, device), count in Counter(devices).items()
            if count > 1
        ]


def _condition_problems(group: PodGroup, submitted: Submitted, bound: int) -> list[str]:
    name = group.metadata.name
    conditions = {c.type: c for c in group.status.conditions or ()}
    scheduled = conditions.get("Scheduled")
    if scheduled is None:
        return [f"{name} has no condition Scheduled, and {bound} of its pods are bound"]
    is_bound = bound >= max(1, submitted.minimum)
    if (scheduled.status == "True") != is_bound:
        text = f"Scheduled={scheduled.status} {scheduled.reason}"
        return [f"{name} has {text}, and {bound} of {submitted.minimum} pods are bound"]
    if scheduled.status == "False" and not scheduled.message:
        return [f"{name} waits and does not say why"]
    if is_bound and not submitted.can_fit:
        return [f"{name} is bound and cannot fit"]
    return []
