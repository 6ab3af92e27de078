"""Refusals of pods by their nodes, read from failed pods.

A kubelet that does not admit a pod sets its phase to Failed, with a reason and a message. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bindery.api.times import seconds
from bindery.kube.objects import Pod
from bindery.kube.podspec import Container
from bindery.scheduler.model.content_key import content_key

TOPOLOGY_REASONS: Final = frozenset(
    {
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "SMTAlignmentError",
        "EmptyPodSharedPoolError",
    }
)
"""The kubelet's reasons for which the zones of the node decide; see `nodecore.admission`."""
_OUT_OF: Final = "OutOf"
"""What the reasons of the kubelet begin with when a resource is used up, as in OutOfcpu."""
_FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """The refusal of a pod by its node."""

    node_name: str
    reason: str
    message: str
    at: float | None
    """When: seconds since the epoch; None if the pod does not have the time."""

    @property
    def is_about_zones(self) -> bool:
        """Whether the node could not align the pod to its zones."""
        return self.reason in TOPOLOGY_REASONS


def node_refusal(pod: Pod) -> NodeRefusal | None:
    """Return the refusal of `pod` by its node; None if its node did not refuse it."""
    status = pod.status
    if status.phase != _FAILED or not pod.spec.node_name:
        return None
    if status.reason not in TOPOLOGY_REASONS and not status.reason.startswith(_OUT_OF):
        return None
    return NodeRefusal(
        pod.spec.node_name, status.reason, status.message, seconds(status.start_time)
    )


def resource_key(containers: Iterable[Container], init_containers: Iterable[Container]) -> bytes:
    """Return a key that is equal for pods whose containers ask for the same resources."""
    return content_key(
        (
            [each.resources for each in containers],
            [(each.resources, each.restart_policy) for each in init_containers],
        )
    )
