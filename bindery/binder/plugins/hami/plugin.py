"""hami: HAMi's protocol in the steps of a binding.

`pre_bind` writes the devices onto the pod, in parallel for a whole gang. `before_bind` waits for
the node's lock, pod by pod, and refuses a pod whose devices were rewritten meanwhile. The binding
itself contains the devices again. The device plugin removes the lock after the pod has its devices,
and the next pod can take it. docs/decisions/ explains why the lock is not taken earlier. Pods
without devices from the scheduler's plugin are ignored.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import ClassVar, Final

import structlog
from pydantic import BaseModel, Field

from bindery.api.base import ApiModel
from bindery.api.bindrequest import BindFailureReason
from bindery.api.hami import assignment as assignments
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.vendor import Lock
from bindery.binder.plugins import visibledevices
from bindery.binder.plugins.hami import admission, holders, pods
from bindery.binder.plugins.hami.lock import LockWriter
from bindery.binder.plugins.hami.mirror import Mirror
from bindery.binder.plugins.hami.objects import HOLDER_PODS, HolderPod
from bindery.binder.plugins.hami.places import STALLED, LockPlace, Timing, default_expire_s
from bindery.binder.plugins.hami.queues import LockQueues
from bindery.binder.plugins.hami.sweep import LockSweep
from bindery.binder.plugins.interface import BindContext, PluginError, PodManifest
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.bindrequests import PodBinding

_log: Final = structlog.get_logger(__name__)

_VALUES: Final = "values"
"""Key in a context's state: lock -> the value with which the pod holds it."""


class HamiArguments(ApiModel):
    """The plugin's arguments: time limits for locks."""

    expire_seconds: float | None = Field(default=None, gt=0)
    """HAMi's expiry of locks, in seconds: for holders that are unknown or not bound, and for
    malformed locks. Default: the environment variable HAMI_NODELOCK_EXPIRE, else 300."""
    stall_seconds: float = Field(default=120.0, gt=0)
    """Seconds without progress after which the waiters of a queue fail and try again later."""
    allow_visible_devices: bool = False
    """Whether pods may choose GPUs themselves by NVIDIA_VISIBLE_DEVICES."""


class Hami:
    """The plugin. It lives as long as the process; `run` is called in each term."""

    name: ClassVar[str] = "hami"
    arguments: ClassVar[type[BaseModel]] = HamiArguments

    def __init__(self, arguments: HamiArguments) -> None:
        expire_s = arguments.expire_seconds or _default_expire_s()
        self._timing = Timing(expire_s, arguments.stall_seconds)
        self._allows_visible_devices = arguments.allow_visible_devices
        self._queues: LockQueues | None = None
        self._mirror: Mirror | None = None

    @property
    def expire_s(self) -> float:
        """Age in seconds after which a lock is taken over from a holder that may not need it."""
        return self._timing.expire_s

    async def run(self, client: Client) -> None:
        """Watch node locks and their holders while this binder leads; release abandoned locks."""
        mirror = self._mirror = Mirror(client)
        clock = client.environment.now_s
        writer = LockWriter(client)
        self._queues = LockQueues(mirror, writer, self._timing, clock)
        sweep = LockSweep(mirror, writer, self.expire_s, clock)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(mirror.run())
                group.create_task(sweep.run())
        finally:
            queues, self._queues, self._mirror = self._queues, None, None
            await queues.close()

    # ---- the steps ------------------------------------------------------------------------------

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether the BindRequest has data of the scheduler's plugin for the pod."""
        return self.name in binding.plugin_data

    async def pre_bind(self, context: BindContext) -> None:
        """Write the devices onto the pod."""
        assignment = _assignment(context)
        if assignment is None:
            return
        node = context.binding.selected_node
        queues = await self._ready_queues()
        for lock in assignment.locks:
            held_by = queues.stalled(LockPlace(node, lock))
            if held_by:
                raise PluginError(f"the lock of {node} is held by {held_by}", reason=STALLED)
        patch = pods.prepared(assignment, context.pod.uid, node, context.client.environment.now_s())
        await pods.write(context.client, context.pod, patch)

    async def before_bind(self, context: BindContext) -> None:
        """Wait for the node's locks, then check that the pod still has the written devices."""
        assignment = _assignment(context)
        if assignment is None:
            return
        pod = (context.pod.namespace, context.pod.name)
        for lock in assignment.locks:
            queues = await self._ready_queues()
            place = LockPlace(context.binding.selected_node, lock)
            context.waits_for = f"the lock of node {place.node}"
            value = await queues.take(place, pod, context.statement.spec.priority)
            _values(context)[lock] = value
        await self._demand_unchanged(context, assignment)

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        """Return the devices and their record again, against changes after the last check."""
        assignment = _assignment(context)
        if assignment is None:
            return {}
        node = context.binding.selected_node
        return assignments.written(
            assignment, context.pod.uid, node, context.client.environment.now_s()
        )

    async def not_bound(self, context: BindContext) -> None:
        """Release the locks that this process has taken for the pod.

        A node's lock has the name of its pod: a successor of that name may rely on it by now.
        """
        if Lock.NODE in _values(context) and await self._has_successor(context):
            del _values(context)[Lock.NODE]
        writer = LockWriter(context.client)
        for lock, value in reversed(_values(context).items()):
            await writer.remove(context.binding.selected_node, lock, value)
        _values(context).clear()

    async def rollback(self, context: BindContext) -> None:
        """Remove the devices from the pod, and release locks that an earlier process has taken."""
        assignment = _assignment(context)
        if assignment is None:
            return
        await self.not_bound(context)
        node = context.binding.selected_node

        def undone(found: HolderPod) -> list[dict[str, object]] | None:
            return pods.undone(found, assignment, node, context.client.environment.now_s())

        found = await pods.take_back(context.client, context.pod, undone)
        # A pod that no longer exists may have a successor of the same name, and the lock could be
        # the successor's. Then the queue removes dead locks.
        if found is not None and not found.spec.node_name and Lock.NODE in assignment.locks:
            await self._release(context, node)

    async def _has_successor(self, context: BindContext) -> bool:
        """Whether another pod has its name."""
        pod = context.pod
        try:
            found = await context.client.get(HOLDER_PODS, pod.name, pod.namespace)
        except NotFoundError:
            return False
        return found.metadata.uid != pod.uid

    async def _demand_unchanged(self, context: BindContext, assignment: Assignment) -> None:
        """Refuse a pod if an annotation of the protocol has been changed.

        The state from the watch is enough to proceed, because the binding contains all keys that
        the pod needs. Before a refusal, the pod is read from the API server, because the watch may
        be behind.
        """
        pod, node = context.pod, context.binding.selected_node
        seen = self._mirror.seen((pod.namespace, pod.name)) if self._mirror is not None else None
        if seen is not None and not _rewritten_key(seen, assignment, pod.uid, node):
            return
        try:
            found = await context.client.get(HOLDER_PODS, pod.name, pod.namespace)
        except NotFoundError as error:
            raise PluginError(
                "the pod is gone", reason=BindFailureReason.POD_GONE, permanent=True
            ) from error
        key = _rewritten_key(found, assignment, pod.uid, node)
        if key:
            message = f"annotation {key} was changed while the pod waited to be bound"
            raise PluginError(message, reason="DevicesChanged")

    async def _release(self, context: BindContext, node: str) -> None:
        """Remove the node's lock if this pod holds it."""
        writer = LockWriter(context.client)
        seen = await writer.read(node)
        value = seen.lock(Lock.NODE) if seen is not None else None
        lock = holders.read(value) if value is not None else None
        if value is not None and lock and lock.is_of(context.pod.namespace, context.pod.name):
            await writer.remove(node, Lock.NODE, value)

    # ---- admission ------------------------------------------------------------------------------

    def validate(self, pod: PodManifest) -> list[str]:
        """Return the problems of the pod's requests for HAMi's devices."""
        own = [] if self._allows_visible_devices else visibledevices.problems(pod)
        return [*admission.problems(pod), *own]

    def mutate(self, pod: PodManifest) -> PodManifest:
        """Return the pod with the defaults that HAMi's own webhook would set."""
        return admission.with_defaults(pod)

    async def _ready_queues(self) -> LockQueues:
        if self._mirror is None or self._queues is None:
            raise PluginError("the watches have not been started", reason="NotReady")
        queues = self._queues
        await self._mirror.ready.wait()
        return queues


def _default_expire_s() -> float:
    try:
        return default_expire_s(os.environ)
    except ValueError as error:  # HAMi's own components continue with their default, too
        expire_s = default_expire_s({})
        _log.warning("locks expire after the default", seconds=expire_s, error=str(error))
        return expire_s


def _assignment(context: BindContext) -> Assignment | None:
    if not context.data:
        return None
    try:
        assignment = assignments.from_data(context.data)
        assignments.annotations(assignment, context.binding.selected_node, 0)
    except (HamiFormatError, IndexError) as error:
        raise PluginError(str(error), reason="MalformedDevices", permanent=True) from error
    return assignment


def _rewritten_key(pod: HolderPod, assignment: Assignment, uid: str, node: str) -> str:
    return assignments.rewritten_key(pod.metadata.annotations, assignment, uid, node)


def _values(context: BindContext) -> dict[Lock, str]:
    values = context.state.setdefault(_VALUES, {})
    assert isinstance(values, dict), "nobody else writes this plugin's notes"
    return values
