"""Creates and deletes scaling pods in the background.

`loop` offers the demand after each cycle. The scaling pods are listed before every write, so that a
new leader continues with the existing ones, and leftovers of a crash are deleted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
import structlog

from bindery.api.names import SCALED_BY_LABEL
from bindery.kube.client import Client
from bindery.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
)
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Condition
from bindery.scheduler.status.conditions import UNSCHEDULABLE
from bindery.scheduler.status.gangs import dated
from bindery.scheduler.status.nominations import POD_SCHEDULED
from bindery.scheduler.status.scaling import (
    Changes,
    Existing,
    ScalingDemand,
    ScalingPod,
    changes,
    existing,
)

_LISTED_EVERY_S = 30.0
"""Time after which the scaling pods are listed again, because users may delete them."""

_REFUSED = "ScalingPodRefused"

_log = structlog.get_logger()


class ScalingWriter:
    """Creates and deletes scaling pods to fit the demand. `clock`: seconds since the epoch."""

    def __init__(self, client: Client, events: EventRecorder, clock: Callable[[], float]) -> None:
        self._client, self._events, self._clock = client, events, clock
        self._demand: ScalingDemand | None = None
        """The newest demand, if it has not been processed."""
        self._last: ScalingDemand | None = None
        self._known: dict[str, Existing] = {}
        """Name -> scaling pod."""
        self._list_at = 0.0
        """Time of the next list; 0 before the first list."""
        self._create_at = 0.0
        """Time from which scaling pods may be created."""
        self._wake = asyncio.Event()

    @property
    def covered(self) -> frozenset[str]:
        """UIDs of the pods with scaling pods."""
        return frozenset(uid for pod in self._known.values() for uid in pod.pods)

    def offer(self, demand: ScalingDemand) -> None:
        """Submit `demand`; it replaces an older one."""
        self._demand = self._last = demand
        self._wake.set()

    def let_go(self, uids: Iterable[str]) -> None:
        """Delete the scaling pods of the pods `uids`, which no longer wait."""
        gone = frozenset(uids)
        if gone and self._last is not None:
            left = self.covered - gone
            self.offer(replace(self._last, waiting=left, pods=(), only_less=True))

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading. The demand of an earlier term is dropped."""
        self._demand = self._last = None
        self._known, self._list_at = {}, 0.0
        while leadership.is_valid():
            self._wake.clear()
            demand, self._demand = self._demand, None
            if demand is None:
                await self._wake.wait()
                continue
            try:
                await self._settle(demand)
            except KubeError as error:
                log_failure(_log, "scaling pods not written", error)
                self._list_at = 0.0

    async def _settle(self, demand: ScalingDemand) -> None:
        now = self._clock()
        if not self._list_at:
            # This demand does not know the existing scaling pods; the next one does.
            demand = replace(demand, only_less=True)
        if now >= self._list_at or self._due(demand, now):
            await self._list(demand)
        due = self._due(demand, now)
        for name in due.delete:
            await self._delete(demand, name)
        for pod in due.create:
            self._create_at = now + demand.arguments.cooldown_seconds
            await self._create(demand, pod)
        texts = {pod.name: pod for pod in demand.pods}
        for name, known in list(self._known.items()):
            if not known.is_marked and name in texts:
                await self._mark(demand, texts[name])

    def _due(self, demand: ScalingDemand, now: float) -> Changes:
        return changes(self._known, demand, may_create=now >= self._create_at)

    async def _list(self, demand: ScalingDemand) -> None:
        found = await self._client.list(
            PODS,
            namespace=demand.arguments.namespace,
            label_selector=f"{SCALED_BY_LABEL}={demand.owner}",
        )
        self._known = {
            pod.metadata.name: existing(pod)
            for pod in found
            if pod.metadata.deletion_timestamp is None
        }
        self._list_at = self._clock() + _LISTED_EVERY_S

    async def _create(self, demand: ScalingDemand, pod: ScalingPod) -> None:
        body, namespace = pod.to_object(demand.owner), demand.arguments.namespace
        try:
            created = await self._client.create(PODS, body, namespace)
        except AlreadyExistsError:
            created = await self._client.get(PODS, pod.name, namespace)
        except (ForbiddenError, InvalidError) as error:
            # For example, a deleted PriorityClass. The other scaling pods are still written.
            meta = pod.metas[0]
            reference = ObjectReference("v1", "Pod", meta.namespace, meta.name, meta.uid)
            text = f"no autoscaler sees its share of a GPU: {error}"
            self._events.warning(reference, _REFUSED, text)
            log_failure(_log, "scaling pod refused", error, name=pod.name)
            return
        self._known[pod.name] = existing(created)
        await self._mark(demand, pod)

    async def _mark(self, demand: ScalingDemand, pod: ScalingPod) -> None:
        """Write the condition that autoscalers read."""
        undated = Condition(
            type=POD_SCHEDULED, status="False", reason=UNSCHEDULABLE, message=pod.message
        )
        condition = msgspec.to_builtins(dated(undated, None, self._clock()))
        patch = {"status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS,
                pod.name,
                patch,
                namespace=demand.arguments.namespace,
                subresource="status",
            )
        except NotFoundError:
            self._known.pop(pod.name, None)
            return
        self._known[pod.name] = replace(self._known[pod.name], is_marked=True)

    async def _delete(self, demand: ScalingDemand, name: str) -> None:
        with contextlib.suppress(NotFoundError, ConflictError):
            await self._client.delete(PODS, name, demand.arguments.namespace, grace_period_s=0)
        self._known.pop(name, None)
