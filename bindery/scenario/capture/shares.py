"""Live pods' shares of GPUs as a scenario's keys. Used by `pods`; pure.

A scenario needs to know which pods share a device, not which device of the node it is: groups of a
node are numbered in the order of their names.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bindery.api import gpushare
from bindery.api.gpushare import WHOLE
from bindery.api.names import SPREAD_DEVICES_ANNOTATION
from bindery.kube.objects.watched import Pod
from bindery.scenario.capture.nodes import Entry
from bindery.scheduler.cache.grants import Grants
from bindery.scheduler.cache.holds import Holds

Indexes = Mapping[tuple[str, str], str]
"""(node, GPU group) -> the device's index in the scenario."""


def as_granted(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return `pods` with the shares that a scheduler believes, whatever their owners write."""
    grants = Grants(Holds(), trusts_records=True)
    for pod in pods:
        if gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels):
            grants.reservation_seen(pod)
    return tuple(grants.as_granted(pod) for pod in pods)


def device_indexes(pods: Iterable[Pod]) -> Indexes:
    """Return the index of each group that some of `pods` belong to."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for pod in pods:
        if pod.spec.node_name:
            groups[pod.spec.node_name].update(gpushare.groups(pod.metadata.labels))
    return {
        (node, group): str(index)
        for node, names in groups.items()
        for index, group in enumerate(sorted(names))
    }


def share_keys(pod: Pod, indexes: Indexes) -> Entry:
    """Return what `pod` asks for of single devices, and which it holds."""
    share = gpushare.read(pod.metadata.annotations)
    if share is None:
        return {}
    node = pod.spec.node_name
    held = [indexes[node, group] for group in gpushare.groups(pod.metadata.labels) if node]
    return {
        "gpuFraction": share.portion / WHOLE or None,
        "gpuMemory": share.memory_mib or None,
        "gpuDevices": share.devices if share.devices > 1 else None,
        "gpu": held,
    }


def spreads_devices(pods: Iterable[Pod]) -> bool:
    """Return whether the job of `pods` wants no two of them on one device."""
    return any(pod.metadata.annotations.get(SPREAD_DEVICES_ANNOTATION) == "true" for pod in pods)
