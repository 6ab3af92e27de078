"""The owners of gangs and pods; events on them reach users who do not look at pods."""

from collections.abc import Iterable

from bindery.kube.events.recorder import ObjectReference
from bindery.kube.objects.watched import OwnerReference
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.model.jobs import JobKey


def owner_of(cluster: Cluster, key: JobKey) -> ObjectReference | None:
    """Return the object that owns the PodGroup of a job, else the controller of its waiting pods.

    None without such an object.
    """
    group, job = cluster.groups.get(key), cluster.state.jobs.get(key)
    owner = _first(group.metadata.owner_references) if group is not None else None
    for uid in job.pending if owner is None and job is not None else ():
        pod = cluster.pods.get(uid)
        owner = _first(pod.metadata.owner_references) if pod is not None else None
        break
    if owner is None:
        return None
    return ObjectReference(owner.api_version, owner.kind, key.namespace, owner.name, owner.uid)


def _first(references: Iterable[OwnerReference]) -> OwnerReference | None:
    """Return the controller among `references`, else the first of them."""
    return min(references, key=lambda each: not each.controller, default=None)
