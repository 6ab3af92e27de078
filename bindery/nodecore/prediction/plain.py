"""The prediction for one node, in plain objects."""

from dataclasses import dataclass

from bindery.nodecore.prediction.requests import PodRequest
from bindery.nodecore.prediction.zones import NodeZones


@dataclass(frozen=True)
class Prediction:
    """What a node will decide about a pod.

    Attributes:
        admit: whether it admits the pod.
        reason: the kubelet's reason for refusing: TopologyAffinityError, UnexpectedAdmissionError
            or SMTAlignmentError; empty if the pod is admitted.
        zones: the mask of the zones that the pod gets something from; 0 if it gets nothing there
            or is refused.
        preferred: whether the topology manager's choice is a preferred one for every container.
        after: the zones after the pod is admitted; the zones before if it is refused.
    """

    admit: bool
    reason: str
    zones: int
    preferred: bool
    after: NodeZones


def predict(node: NodeZones, request: PodRequest) -> Prediction:
    """Return what the node will decide about a pod that asks for `request`."""
    raise NotImplementedError


def take(node: NodeZones, request: PodRequest, zones: int) -> NodeZones:
    """Return the zones after a pod has got `request` from the zones of the mask `zones`.

    For pods whose zones are known. What does not fit there is taken from the other zones, and
    what does not fit anywhere leaves nothing free; this never fails. A mask of 0 is any zone.
    """
    raise NotImplementedError
