"""scalingpods: reports the scaling pods that stand for the waiting shares of a job.

`status/scaling` decides about scaling pods. The plugin belongs to no default configuration.
"""

from collections.abc import Sequence
from typing import Any

from bindery.api.names import SCALES_FOR_ANNOTATION
from bindery.api.scaling import PLUGIN, ScalingArguments
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.verdicts import RoomNote
from bindery.scheduler.plugins.view import SessionView


class ScalingPods:
    """Knows the scaling pods of the cluster."""

    name = PLUGIN
    arguments = ScalingArguments

    def __init__(self, arguments: ScalingArguments) -> None:
        self._namespace = arguments.namespace
        self._pods: dict[str, frozenset[str]] = {}
        """Scaling pod -> the UIDs of the pods for which it stands."""

    def watched_resources(self) -> Sequence[Resource[Any]]:
        """Return the kind of scaling pods."""
        return (PODS,)

    def observe(self, change: Change[KubeObject]) -> bool:
        """Process a change; return False, because this plugin has no `node_failures`."""
        pod = change.object
        if isinstance(pod, Pod) and pod.metadata.namespace == self._namespace:
            uids = pod.metadata.annotations.get(SCALES_FOR_ANNOTATION, "").split()
            if change.type is EventType.DELETED or not uids:
                self._pods.pop(pod.metadata.name, None)
            else:
                self._pods[pod.metadata.name] = frozenset(uids)
        return False

    def explain_room(self, session: SessionView, job: Job) -> RoomNote | None:  # noqa: ARG002
        """Return which scaling pods stand for the shares of `job`; None without one."""
        if not any(task.shares_gpu for task in job.pending.values()):
            return None
        names = sorted(name for name, uids in self._pods.items() if uids & job.pending.keys())
        if not names:
            return None
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return RoomNote(f"scaling pod {self._namespace}/{names[0]}{more} shows it to autoscalers")
