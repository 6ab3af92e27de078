"""Finds pods to nominate for a node, because room is being made or the binder prepares them.

The evictor nominates pods before it evicts others for them, so that a new leader can continue.

A pod with a long preparation by the binder is nominated, as by Kubernetes' own scheduler, so that
autoscalers see its node (KEP-5278). A pod gets the write only if its devices or volumes keep the
binder busy for a while. The API server removes the nomination at the binding; if the binding fails,
the next condition of the pod removes it.
"""

from collections.abc import Iterator
from typing import Final

from bindery.api.times import seconds
from bindery.kube.objects.watched import Condition, Pod
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.model.jobs import JobKey

NOMINATED_AFTER_S: Final = 5.0
"""Age of a BindRequest from which its pods are nominated."""
POD_SCHEDULED: Final = "PodScheduled"
_PREPARING: Final = "Preparing"


def promised(cluster: Cluster, job: JobKey) -> list[tuple[Pod, str]] | None:
    """Return the pods of `job` with a promised node for which they are not nominated yet.

    None if nothing is promised to `job`.
    """
    if not cluster.promises.holds(job):
        return None
    places = cluster.promises.places(job).items()
    pods = ((cluster.pods.get(uid), node) for uid, node in places)
    return [
        (pod, node)
        for pod, node in pods
        if pod is not None and pod.status.nominated_node_name != node
    ]


def overdue(cluster: Cluster, now: float) -> Iterator[tuple[Pod, str, Condition]]:
    """Yield the pods to nominate, each with the node and its condition."""
    for uid, hold in cluster.holds.with_data():
        pod = cluster.pods.get(uid)
        if pod is None or hold.is_bound or pod.status.nominated_node_name == hold.node_name:
            continue
        created = seconds(cluster.holds.created(uid))
        if created is None or now - created < NOMINATED_AFTER_S:
            continue
        condition = next((c for c in pod.status.conditions or () if c.type == POD_SCHEDULED), None)
        yield (
            pod,
            hold.node_name,
            condition
            or Condition(
                type=POD_SCHEDULED,
                status="False",
                reason=_PREPARING,
                message=f"the binder prepares volumes or devices on node {hold.node_name}",
            ),
        )
