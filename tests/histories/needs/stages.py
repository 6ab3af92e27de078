"""Owners of gangs with stages: they create the workers when the leaders have come so far."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import ClassVar

from bindery.api.names import POD_GROUP_ANNOTATION, SUB_GROUP_LABEL
from bindery.kube.client import Client
from bindery.kube.objects.resources import POD_GROUPS
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.needs import bodies
from tests.histories.needs.controller import Controller
from tests.histories.needs.plans import StageNeed

CreateWorkers = Callable[[str], Awaitable[None]]
"""Creates the workers of a gang."""


class StageOwners(Controller):
    """Owners of all gangs with stages. `stages`: gang -> its number of leaders, and its stage."""

    watches: ClassVar[frozenset[str]] = frozenset(("pods",))

    def __init__(
        self,
        server: ModelApiServer,
        client: Client,
        chance: Random,
        stages: dict[str, tuple[int, StageNeed]],
        create_workers: CreateWorkers,
    ) -> None:
        super().__init__(server, client, chance)
        self._stages, self._create_workers = stages, create_workers
        self._begun: set[str] = set()
        """UIDs of PodGroups whose workers are, or will be, created."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Begin the stages whose leaders have come so far."""
        pods = self.pods()
        for group in self.all_of(POD_GROUPS):
            name, uid = group.metadata.name, group.metadata.uid
            if name not in self._stages or uid in self._begun:
                continue
            leaders, stage = self._stages[name]
            came = [pod for pod in pods if _is_leader(pod, name) and _is_so_far(pod, stage)]
            if len(came) >= leaders:
                self._begun.add(uid)
                task = asyncio.create_task(self._begin(name, uid, stage))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _begin(self, name: str, uid: str, stage: StageNeed) -> None:
        await asyncio.sleep(stage.delay_s)
        if any(group.metadata.uid == uid for group in self.all_of(POD_GROUPS)):
            await self._create_workers(name)


def _is_leader(pod: Pod, gang: str) -> bool:
    meta = pod.metadata
    is_in_gang = meta.annotations.get(POD_GROUP_ANNOTATION) == gang
    return is_in_gang and meta.labels.get(SUB_GROUP_LABEL) == bodies.LEADERS


def _is_so_far(pod: Pod, stage: StageNeed) -> bool:
    match stage.condition:
        case "Bound":
            return bool(pod.spec.node_name)
        case "Ready":
            return any(
                c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()
            )
        case _:
            return pod.status.phase == "Succeeded"
