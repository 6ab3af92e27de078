"""What live pods state about other pods and ports, as a scenario writes it. Used by `pods`."""

from collections.abc import Iterable
from typing import Any

import msgspec

from bindery.api.names import NAMESPACE_NAME_LABEL
from bindery.kube.objects.podspec import Container
from bindery.kube.objects.watched import Namespace, Pod
from bindery.scenario.capture.nodes import Entry
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.label_references import LabelReferences
from bindery.scheduler.model.pod_rules import read_rules


def references_of(pods: Iterable[Pod]) -> LabelReferences:
    """Return the labels to which the rules of `pods` refer."""
    references = LabelReferences()
    for pod in pods:
        meta = pod.metadata
        uid = Uid(meta.uid)
        references.put(uid, meta.namespace, meta.labels, read_rules(pod), planned=False)
    return references


def namespaces_of(namespaces: Iterable[Namespace]) -> dict[str, dict[str, str]]:
    """Return the labels of `namespaces`, as rules select them."""
    found = {each.metadata.name: each.metadata.labels for each in namespaces}
    return {
        name: {key: value for key, value in labels.items() if key != NAMESPACE_NAME_LABEL}
        for name, labels in sorted(found.items())
    }


def labels_of(pod: Pod, references: LabelReferences) -> dict[str, str]:
    """Return the labels of `pod` with keys to which rules refer."""
    labels = pod.metadata.labels
    seen = references.of(pod.metadata.namespace, labels)
    return {key: labels[key] for key in (seen[1] if seen is not None else ())}


def rules_of(pod: Pod) -> Entry:
    """Return pod affinity and spread constraints of `pod`; keys without a value are left out."""
    found: Entry = {}
    affinity = pod.spec.affinity
    if affinity is not None:
        near, far = affinity.pod_affinity, affinity.pod_anti_affinity
        kinds = {"podAffinity": near, "podAntiAffinity": far}
        found["affinity"] = {key: written(kind) for key, kind in kinds.items() if kind is not None}
    constraints = pod.spec.topology_spread_constraints or ()
    found["topologySpreadConstraints"] = [written(each) for each in constraints]
    return found


def ports_of(containers: Iterable[Container]) -> list[Entry]:
    """Return the host ports of `containers`."""
    ports = [port for container in containers for port in container.ports or ()]
    return [
        {key: value for key, value in written(port).items() if value}
        for port in ports
        if port.host_port
    ]


def written(item: Any) -> Any:
    """Return `item` as YAML writes it. An empty selector stays: it selects everything."""
    return _without_none(msgspec.to_builtins(item))


def _without_none(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _without_none(value) for key, value in item.items() if value is not None}
    return [_without_none(part) for part in item] if isinstance(item, list) else item
