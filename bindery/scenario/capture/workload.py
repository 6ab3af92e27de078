"""The typical workload of a live cluster, as arguments of the plugin `fragmentation`.

The times of creation, which the workload depends on, are not in a scenario. Used by `cluster`.
"""

import msgspec

from bindery.api import quantity
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.gpushare import WHOLE
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.watches.store import Change, EventType
from bindery.scenario.capture.nodes import Entry
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.feed import statement_changes
from bindery.scheduler.plugins.fragmentation.workload import Kinds, PodKind, learn


def capture_workload(snapshot: ClusterSnapshot, node_pool: str) -> list[Entry]:
    """Return the kinds of pods that the scheduler of `node_pool` has learned, with its defaults."""
    configuration = SchedulerConfiguration(node_pool=node_pool, tenancy_policy_enforced=True)
    cluster, kinds = Cluster(configuration, lambda: 0.0), Kinds()
    for item in snapshot.everything():
        for change in statement_changes(Change(EventType.ADDED, item, None)):
            cluster.apply(change)
    state = cluster.state
    learned = learn(state.pod_counts.by_day, state.axis, kinds)
    return [{"weight": weight, **_entry(kind, kinds)} for kind, weight in learned.weights]


def _entry(kind: PodKind, kinds: Kinds) -> Entry:
    if not kind.devices:
        return {}
    entry: Entry = {"cpu": quantity.canonical(kind.cpu, "cpu")}
    if kind.portion == WHOLE:
        entry["gpus"] = kind.devices
    else:
        entry |= {"gpus": kind.portion / WHOLE, "devices": kind.devices}
    constraint = kinds.constraint(kind.constraint)
    if constraint.node_selector:
        entry["nodeSelector"] = constraint.node_selector
    affinity = constraint.node_affinity
    if affinity is not None and affinity.required is not None:
        entry["requiredAffinity"] = _plain(affinity.required)
    if constraint.tolerations:
        entry["tolerations"] = [_plain(each) for each in constraint.tolerations]
    return entry


def _plain(item: msgspec.Struct) -> Entry:
    """Return `item` as Kubernetes writes it, without empty fields."""
    return _without_nothing(msgspec.to_builtins(item))


def _without_nothing(value: Entry) -> Entry:
    return {
        key: [_without_nothing(i) if isinstance(i, dict) else i for i in v]
        if isinstance(v, list)
        else v
        for key, v in value.items()
        if v not in (None, "", [])
    }
