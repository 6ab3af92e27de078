"""The prediction for one node, in plain objects."""

from dataclasses import dataclass, replace

from bindery.nodecore.admission.result import refused
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.masks import nodes_of
from bindery.nodecore.prediction.account import Account
from bindery.nodecore.prediction.requests import PodRequest, Wanted
from bindery.nodecore.prediction.zones import NodeZones
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import NO_LOCALITY, POD_SCOPE, TopologyAffinityError
from bindery.nodecore.topology.numa import NumaInfo
from bindery.nodecore.topology.options import TopologyOptions
from bindery.nodecore.topology.policies import Merged


@dataclass(frozen=True)
class Prediction:
    """What a node will decide about a pod.

    Attributes:
        admit: whether it admits the pod.
        reason: the kubelet's reason for refusing: TopologyAffinityError, UnexpectedAdmissionError
            or SMTAlignmentError; empty if the pod is admitted.
        zones: the mask of the zones that the pod gets something from; 0 if it gets nothing there
            or is refused.
        preferred: whether the topology manager's choice is a preferred one for every container;
            False with the policy none, which chooses nothing.
        after: the zones after the pod is admitted; the zones before if it is refused.
    """

    admit: bool
    reason: str
    zones: int
    preferred: bool
    after: NodeZones


def predict(node: NodeZones, request: PodRequest) -> Prediction:
    """Return what the node will decide about a pod that asks for `request`."""
    account = Account(node)
    zones, preferred = 0, True
    try:
        whole = _decide(node, account, request.whole) if node.scope == POD_SCOPE else None
        for wanted in request.containers:
            decided = whole or _decide(node, account, wanted)
            preferred = preferred and decided.hint.preferred
            zones |= account.allocate(wanted, decided.hint)
    except AllocationError as error:
        return Prediction(False, refused(error).reason, 0, preferred=False, after=node)
    return Prediction(True, "", zones, preferred, _after(node, account))


def take(node: NodeZones, request: PodRequest, zones: int) -> NodeZones:
    """Return the zones after a pod has got `request` from the zones of the mask `zones`.

    For pods whose zones are known. What does not fit there is taken from the other zones, and
    what does not fit anywhere leaves nothing free; this never fails. A mask of 0 is any zone.
    """
    predicted = predict(node, request)
    if predicted.admit and zones in (0, predicted.zones):
        return predicted.after
    account = Account(node)
    for wanted in request.containers:
        account.take(wanted, zones)
    return _after(node, account)


def _decide(node: NodeZones, account: Account, wanted: Wanted) -> Merged:
    """Return the topology manager's choice; raises TopologyAffinityError if it refuses."""
    everything = (1 << len(node.free)) - 1
    numa = NumaInfo(nodes_of(everything), dict(enumerate(node.distances)))
    options = TopologyOptions(prefer_closest=node.prefer_closest)
    merged = policies.merge_hints(node.policy, numa, account.hints(wanted), options)
    if not merged.admit:
        raise TopologyAffinityError(NO_LOCALITY)
    return merged


def _after(node: NodeZones, account: Account) -> NodeZones:
    free, split, groups = account.after()
    return replace(node, free=free, split=split, groups=groups)
