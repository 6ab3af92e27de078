"""Gangs whose GPUs are idle, and devices that are unhealthy, as the nodes report them. Pure.

The agent beside a kubelet writes since when a pod uses none of its GPUs; the kubelet itself writes
the health of a pod's devices (KEP-4680). `cache/idlegpus.py` keeps the gangs that count as idle.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bindery.api.shown import MOST_QUOTED, shown
from bindery.api.times import timestamp
from bindery.kube.objects.watched import ContainerStatus
from bindery.scheduler.model.jobs import Job, Task, TaskStatus
from bindery.scheduler.model.queues import QueueTable

_UNHEALTHY: Final = "Unhealthy"
_MOST_DEVICES: Final = 5
"""Maximum number of devices in one text."""


@dataclass(frozen=True, slots=True)
class Idleness:
    """A gang whose GPUs have all been unused for longer than its queue allows."""

    since: float
    """Seconds since the epoch."""
    timeout_s: float
    """When it is evicted, in seconds after `since`; infinite if it is not."""

    def text(self) -> str:
        """Return a sentence without a full stop."""
        text = f"no pod has used its GPUs since {timestamp(self.since)}"
        if self.timeout_s < math.inf:
            return f"{text}; the gang is evicted after {timestamp(self.since + self.timeout_s)}"
        return f"{text}; the gang goes first if other gangs need its room"


def idle_since(job: Job) -> float:
    """Return since when no GPU of `job` is used: seconds since the epoch.

    Infinite if a pod uses one, or no running pod has one.
    """
    times = [
        task.idle_since
        for task in job.tasks.values()
        if task.status is TaskStatus.RUNNING and _has_gpu(task)
    ]
    return max(times, default=math.inf)


def idleness(job: Job, queues: QueueTable, now: float) -> Idleness | None:
    """Return the idleness of `job`; None if it does not count as idle."""
    since, rule = idle_since(job), queues.idle_rule(queues.row(job.queue))
    return Idleness(since, rule.timeout_s) if now - since >= rule.after_s else None


def _has_gpu(task: Task) -> bool:
    return task.shape.wants_gpu or task.shape.request.share is not None


def sick_devices(statuses: Iterable[ContainerStatus]) -> tuple[str, ...]:
    """Return the unhealthy devices of containers, each with the node's message."""
    return tuple(dict.fromkeys(_sick_devices(statuses)))


def _sick_devices(statuses: Iterable[ContainerStatus]) -> Iterator[str]:
    for status in statuses:
        for resource in status.allocated_resources_status or ():
            for device in resource.resources or ():
                if device.health == _UNHEALTHY:
                    name = shown(device.resource_id, MOST_QUOTED)
                    message = shown(device.message, MOST_QUOTED)
                    yield f"{name} ({message})" if message else name


def sick_text(job: Job) -> str:
    """Return a sentence about the unhealthy devices of running pods; "" if there are none."""
    found = [
        f"{device} of pod {task.name}"
        for task in sorted(job.tasks.values(), key=lambda each: each.order)
        if task.status is TaskStatus.RUNNING
        for device in task.sick_devices
    ]
    more = f" and {len(found) - _MOST_DEVICES} more" if len(found) > _MOST_DEVICES else ""
    return f"unhealthy: {', '.join(found[:_MOST_DEVICES])}{more}" if found else ""
