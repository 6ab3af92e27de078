"""The cluster on which planning with rules about other pods is measured.

Used by `room`. It follows from the number of nodes alone, and says what a right cycle does in it.
"""

from typing import Final

import msgspec

from benchmarks.roomworlds import GPUS, Outcome, World, node, node_name, pod, queue
from bindery.api.names import HOSTNAME_LABEL
from bindery.kube.objects.podspec import (
    Affinity,
    Container,
    PodAffinity,
    PodAffinityTerm,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from bindery.kube.objects.selectors import LabelSelector
from bindery.kube.objects.watched import Pod

_ZONE: Final = "topology.kubernetes.io/zone"
_ZONES: Final = 10
_SERVICES: Final = 100


def apart_and_spread(nodes: int) -> World:
    """Let two pods a node wait, of a hundred services whose pods are apart and spread evenly."""
    labels = [{HOSTNAME_LABEL: node_name(at), _ZONE: f"z{at % _ZONES}"} for at in range(nodes)]
    objects = [
        *(node(at, labels[at]) for at in range(nodes)),
        queue("all", nodes * GPUS),
        *(_of_service(at) for at in range(2 * nodes)),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=2 * nodes))


def _of_service(number: int) -> Pod:
    """Return a small pod that is alone of its service on its node, in a zone with few of them."""
    service = {"service": f"s{number % _SERVICES}"}
    selector = LabelSelector(match_labels=service)
    term = PodAffinityTerm(topology_key=HOSTNAME_LABEL, label_selector=selector)
    spread = TopologySpreadConstraint(topology_key=_ZONE, label_selector=selector)
    item = pod(f"p{number:05}", 1, queue="all")
    return msgspec.structs.replace(
        item,
        metadata=msgspec.structs.replace(item.metadata, labels={**item.metadata.labels, **service}),
        spec=msgspec.structs.replace(
            item.spec,
            containers=[Container(resources=ResourceRequirements(requests={"cpu": "1"}))],
            affinity=Affinity(pod_anti_affinity=PodAffinity(required=[term])),
            topology_spread_constraints=[spread],
        ),
    )
