"""Pods of other schedulers in a snapshot: those that decide more than how much room is left.

Used by `cluster`; pure. The room of all others is taken off their nodes, which keeps snapshots of
large clusters small.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from bindery.api.names import NAMESPACE_NAME_LABEL, SCHEDULER_NAME
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.host_ports import host_ports
from bindery.scheduler.model.label_references import LabelReferences
from bindery.scheduler.model.pod_catalog import NamespaceLabels
from bindery.scheduler.model.pod_rules import PodSet, Term, read_rules


def others_by_job(
    snapshot: ClusterSnapshot, references: LabelReferences
) -> dict[tuple[str, int], list[Pod]]:
    """Return the pods of other schedulers to capture, by namespace and priority.

    `references`: the labels to which rules of pods refer.
    """
    ours, others = [], []
    nodes = {node.metadata.name for node in snapshot.nodes}
    for pod in snapshot.pods:
        if pod.status.phase in ENDED_POD_PHASES:
            continue
        if pod.spec.scheduler_name == SCHEDULER_NAME:
            ours.append(pod)
        elif (pod.spec.node_name or pod.status.nominated_node_name) in nodes:
            others.append(pod)
    matters = _judge(ours, _namespaces(snapshot), references)
    found: defaultdict[tuple[str, int], list[Pod]] = defaultdict(list)
    for pod in others:
        if not pod.spec.node_name or matters(pod):
            found[pod.metadata.namespace, pod.spec.priority or 0].append(pod)
    return dict(sorted(found.items()))


def _judge(
    ours: Iterable[Pod],
    namespaces: Mapping[str, Mapping[str, str]],
    references: LabelReferences,
) -> Callable[[Pod], bool]:
    """Return a function: whether a pod on a node decides where pods of `ours` may or should go."""
    sets: dict[PodSet, None] = {}
    labelled: dict[tuple[str, frozenset[tuple[str, str]]], Mapping[str, str]] = {}
    have_ports = False
    for pod in ours:
        sets |= dict.fromkeys(read_rules(pod).pod_sets)
        have_ports = have_ports or bool(host_ports(pod.spec))
        seen = references.of(pod.metadata.namespace, pod.metadata.labels)
        if seen is not None:  # else no rule selects it
            labelled[seen[0], frozenset(seen[1].items())] = seen[1]
    attracted: dict[Term, bool] = {}

    def selects_ours(term: Term) -> bool:
        if term not in attracted:
            attracted[term] = any(
                term.pods.includes(namespace, labels, namespaces[namespace])
                for (namespace, _), labels in labelled.items()
            )
        return attracted[term]

    def matters(pod: Pod) -> bool:
        if have_ports and host_ports(pod.spec):
            return True
        rules, meta = read_rules(pod), pod.metadata
        terms = (*rules.affinity, *rules.anti_affinity, *(term for _, term in rules.preferred))
        return any(map(selects_ours, terms)) or any(
            each.includes(meta.namespace, meta.labels, namespaces[meta.namespace]) for each in sets
        )

    return matters


def _namespaces(snapshot: ClusterSnapshot) -> NamespaceLabels:
    found = NamespaceLabels()
    for item in snapshot.namespaces:
        own = {NAMESPACE_NAME_LABEL: item.metadata.name}
        found[item.metadata.name] = {**item.metadata.labels, **own}
    return found
