"""Why pods failed that did not end by themselves: refused by their nodes, disrupted, deleted.

A kubelet that does not admit a pod sets its phase to Failed, with a reason and a message. Whoever
evicts a pod sets its condition DisruptionTarget. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bindery.api.times import seconds
from bindery.kube.objects.podspec import Container
from bindery.kube.objects.watched import Node, Pod
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
_FEATURE: Final = "PodFeatureUnsupported"
"""The kubelet's reason if the pod needs a feature that it does not declare."""
_OUT_OF: Final = "OutOf"
"""What the reasons of the kubelet begin with when a resource is used up, as in OutOfcpu."""
_FAILED: Final = "Failed"
_REJECTED: Final = "Pod was rejected"
"""What the kubelet's message about a pod that it does not admit begins with."""
_DISRUPTION_TARGET: Final = "DisruptionTarget"


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """The refusal of a pod by its node."""

    node_name: str
    reason: str
    message: str
    at: float | None
    """When: seconds since the epoch; None if the pod does not have the time."""


def node_refusal(pod: Pod) -> NodeRefusal | None:
    """Return the refusal of `pod` by its node; None if its node did not refuse it."""
    status = pod.status
    if status.phase != _FAILED or not pod.spec.node_name:
        return None
    is_known = status.reason in TOPOLOGY_REASONS or status.reason == _FEATURE
    if not is_known and not status.reason.startswith(_OUT_OF):
        return None
    return NodeRefusal(
        pod.spec.node_name, status.reason, status.message, seconds(status.start_time)
    )


def loss_text(pod: Pod) -> str:
    """Return why `pod` failed without an end of its own; "" if it has not, or ended by itself.

    Its controller is expected to replace it.
    """
    status = pod.status
    if status.phase != _FAILED:
        return ""
    name = pod.metadata.name
    if node_refusal(pod) is not None or status.message.startswith(_REJECTED):
        why = _because(status.reason, status.message)
        return f"node {pod.spec.node_name} refused {name}{why}"
    for condition in status.conditions or ():
        if (condition.type, condition.status) == (_DISRUPTION_TARGET, "True"):
            return f"{name} was disrupted{_because(condition.reason, condition.message)}"
    return f"{name} was deleted" if pod.metadata.deletion_timestamp is not None else ""


def _because(reason: str, message: str) -> str:
    text = f"{reason}: {message}" if reason and message else reason or message
    return f" ({text})" if text else ""


def resource_key(containers: Iterable[Container], init_containers: Iterable[Container]) -> bytes:
    """Return a key that is equal for pods whose containers ask for the same resources."""
    return content_key(
        (
            [each.resources for each in containers],
            [(each.resources, each.restart_policy) for each in init_containers],
        )
    )


def offer(node: Node) -> tuple[object, object]:
    """Return what a kubelet refuses pods by: a change of it ends a cooldown of the node."""
    return node.status.allocatable, node.status.declared_features
