"""Bound pods that do not start: what they wait for on their nodes. Pure.

`cache/reading.py` reads the obstacle of each pod into its task. `status/gangs.py` and
`insight/waiting.py` report the late pods of a gang.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bindery.api.bindrequest import few_names
from bindery.api.shown import MOST_QUOTED, shown
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.jobs import NO_ROW, Job, Obstacle, Task, TaskStatus
from bindery.scheduler.model.nodereading import not_ready_text
from bindery.scheduler.model.nodes import NodeTable

START_WITHIN_S: Final = 60.0
"""Time from the binding in which most containers are created; later a pod counts as late."""
_MOST_CAUSES: Final = 3
"""Maximum number of causes in one text."""
_BEING_CREATED: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_OF_IMAGES: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""The kubelet's reasons (`pkg/kubelet/images/types.go`)."""


class StartReason(StrEnum):
    """Why a bound pod does not run."""

    NODE_NOT_READY = "NodeNotReady"
    IMAGE_NOT_PULLED = "ImageNotPulled"
    CONTAINER_NOT_STARTED = "ContainerNotStarted"
    """Its container cannot be created, or crashes."""
    BEING_PREPARED = "BeingPrepared"
    """Its volumes, network or containers are not ready for longer than usual."""
    NOT_ACCEPTED = "NotAccepted"
    """Its node has not reported about it."""


_UNKNOWN: Final = Obstacle(StartReason.NOT_ACCEPTED, "its node has not accepted it", is_sure=False)
_SANDBOX: Final = Obstacle(
    StartReason.BEING_PREPARED,
    "its volumes or its network are not ready (kubectl describe pod)",
    is_sure=False,
)
_CONTAINERS: Final = Obstacle(
    StartReason.BEING_PREPARED,
    "its containers are being created, or its images pulled (kubectl describe pod)",
    is_sure=False,
)


@dataclass(frozen=True, slots=True)
class LateStart:
    """The bound pods of a gang that do not run for one cause."""

    reason: StartReason
    text: str
    pods: tuple[str, ...]
    """Their names, in the order of the gang."""


def obstacle(pod: Pod) -> Obstacle | None:
    """Return what keeps the containers of the bound `pod` from running; None if nothing does."""
    status = pod.status
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting if container.state is not None else None
        if waiting is None or waiting.reason in _BEING_CREATED:
            continue
        is_image = waiting.reason in _OF_IMAGES
        reason = StartReason.IMAGE_NOT_PULLED if is_image else StartReason.CONTAINER_NOT_STARTED
        why = f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
        return Obstacle(reason, f"container {container.name}: {shown(why, MOST_QUOTED)}")
    if status.phase != "Pending":
        return None
    if status.start_time is None:
        return _UNKNOWN
    for condition in status.conditions or ():
        if (condition.type, condition.status) == ("PodReadyToStartContainers", "False"):
            return _SANDBOX
    return _CONTAINERS


def late_starts(job: Job, nodes: NodeTable, now: float) -> Sequence[LateStart]:
    """Return the bound pods of `job` that do not run, by cause, most pods first."""
    causes: dict[tuple[StartReason, str], list[Task]] = {}
    for task in job.tasks.values():
        cause = _cause(task, nodes, now)
        if cause is not None:
            causes.setdefault(cause, []).append(task)
    found = [
        LateStart(reason, text, tuple(t.name for t in sorted(tasks, key=lambda t: t.order)))
        for (reason, text), tasks in causes.items()
    ]
    return sorted(found, key=lambda each: (-len(each.pods), each.pods))


def late_text(late: Sequence[LateStart], job: Job) -> str:
    """Return `late` as one sentence."""
    bound = sum(task.pod_status is TaskStatus.RUNNING for task in job.tasks.values())
    count = sum(len(each.pods) for each in late)
    causes = [f"{few_names(each.pods)}: {each.text}" for each in late[:_MOST_CAUSES]]
    more = [f"{len(late) - _MOST_CAUSES} more causes"] if len(late) > _MOST_CAUSES else []
    verb = "is" if count == 1 else "are"
    return f"{count} of {bound} bound pods {verb} not known to run: {'; '.join([*causes, *more])}"


def is_due(task: Task, now: float) -> bool:
    """Return whether `task` counts as late if it has not started by `now`."""
    return task.bound_at is not None and now - task.bound_at >= START_WITHIN_S


def _cause(task: Task, nodes: NodeTable, now: float) -> tuple[StartReason, str] | None:
    if task.pod_status is not TaskStatus.RUNNING:
        return None
    node = nodes.nodes[task.row] if task.row != NO_ROW else None
    if node is None:
        # A node of another pool is not known here; the pod garbage collector deletes the others.
        return None
    not_ready = not_ready_text(node)
    if not_ready:
        return StartReason.NODE_NOT_READY, f"node {node.metadata.name} {not_ready}"
    known = task.obstacle
    if known is None or not (known.is_sure or is_due(task, now)):
        return None
    return StartReason(known.reason), known.text
