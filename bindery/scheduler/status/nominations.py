"""Nominates pods for their node while the binder prepares it for long.

Kubernetes' own scheduler does so when a step before the binding has work, so that autoscalers see
where pods will run (KEP-5278). A pod gets the write only if its devices or volumes keep the binder
busy for a while. The API server removes the nomination at the binding; if the binding fails, the
next condition of the pod removes it.
"""

from collections.abc import Iterator
from typing import Final

from bindery.api.times import seconds
from bindery.kube.objects import Condition, Pod
from bindery.scheduler.cache.cluster import Cluster

NOMINATED_AFTER_S: Final = 5.0
"""How long a BindRequest exists before its pods are nominated."""
POD_SCHEDULED: Final = "PodScheduled"
_PREPARING: Final = "Preparing"


def overdue(cluster: Cluster, now: float) -> Iterator[tuple[Pod, str, Condition]]:
    """Yield the pods to nominate, each with the node and its condition."""
    for uid, hold in cluster.holds.with_data():
        pod = cluster.pods.get(uid)
        if pod is None or hold.is_bound or pod.status.nominated_node_name == hold.node_name:
            continue
        created = seconds(cluster.holds.created(uid))
        if created is None or now - created < NOMINATED_AFTER_S:
            continue
        said = next((c for c in pod.status.conditions or () if c.type == POD_SCHEDULED), None)
        yield (
            pod,
            hold.node_name,
            said
            or Condition(
                type=POD_SCHEDULED,
                status="False",
                reason=_PREPARING,
                message=f"the binder prepares volumes or devices on node {hold.node_name}",
            ),
        )
