"""The PodGroups that manifests would become, without a cluster.

Pods and owners that are in the manifests are taken as they are. For an owner without pods, one pod
of each part is made up, as its controller would make it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bindery.grouper.table.facts import KubeObject, PodFacts, mapping, pod_facts, reference_of
from bindery.grouper.table.groups import GroupPlan, Problem
from bindery.grouper.table.loading import Table
from bindery.grouper.table.parts import Filler, Observed
from bindery.grouper.table.planning import plan
from bindery.grouper.table.rows import Row
from bindery.grouper.table.targets import DEFAULT_ROW
from bindery.grouper.table.walk import link_of

_FIRST_CREATED = "2000-01-01T00:00:00Z"


def try_out(items: Sequence[KubeObject], table: Table) -> GroupPlan:
    """Return the plan for `items`, pods and owners as manifests have them."""
    owners, pods = _known(items)
    idle = list(_without_pods(owners, pods))
    # Beside a workload, kinds without a row are its settings and services.
    has_row = any(_row(item, table) is not DEFAULT_ROW for item in owners.values())
    makers = [item for item in idle if not has_row or _row(item, table) is not DEFAULT_ROW]
    pods += [pod for item in makers for pod in _expected(item, table)]
    return plan(owners, pods, table)


def left_to_children(items: Sequence[KubeObject], table: Table) -> Iterator[tuple[KubeObject, str]]:
    """Yield the owners of `items` that only wrap others which are not there, and what they wrap."""
    owners, pods = _known(items)
    for item in _without_pods(owners, pods):
        passing = _row(item, table).pass_to
        if passing is not None:
            yield item, f"each {passing.kind} of it" if passing.kind else "what it makes"


def _known(items: Sequence[KubeObject]) -> tuple[dict[str, dict[str, Any]], list[PodFacts]]:
    """Return the owners by UID, and the pods."""
    known = [_with_identity(item) for item in items]
    owners = {item["metadata"]["uid"]: item for item in known if item.get("kind") != "Pod"}
    return owners, [pod_facts(item) for item in known if item.get("kind") == "Pod"]


def _with_identity(item: KubeObject) -> dict[str, Any]:
    """Return `item` with a UID and a namespace; references by name get the same UID."""
    metadata = dict(mapping(item.get("metadata")))
    metadata.setdefault("namespace", "default")
    metadata.setdefault("name", metadata.get("generateName", ""))
    uid = _uid(str(item.get("kind")), metadata["name"])
    metadata.setdefault("uid", uid)
    references = [
        {"uid": _uid(str(each.get("kind")), str(each.get("name"))), **each}
        for each in metadata.get("ownerReferences") or ()
    ]
    return {**item, "metadata": {**metadata, "ownerReferences": references}}


def _uid(kind: str, name: str) -> str:
    return hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:32]


def _without_pods(
    owners: Mapping[str, KubeObject], pods: Sequence[PodFacts]
) -> Iterator[KubeObject]:
    """Yield the owners that control nothing."""
    controlled = {
        reference["uid"]
        for item in owners.values()
        for reference in item["metadata"]["ownerReferences"]
        if reference.get("controller")
    }
    controlled |= {pod.controller.uid for pod in pods if pod.controller is not None}
    yield from (item for uid, item in owners.items() if uid not in controlled)


def _row(item: KubeObject, table: Table) -> Row:
    at = reference_of(item)
    labels = mapping(mapping(item.get("metadata")).get("labels"))
    return table.row(at.group, at.version, at.kind, labels) or DEFAULT_ROW


def _expected(item: KubeObject, table: Table) -> Iterator[PodFacts]:
    """Yield a pod for each part of the gang of `item`."""
    at, row = reference_of(item), _row(item, table)
    if row.pass_to is not None:
        return
    told: set[Problem] = set()
    per = {row.per.label: "0"} if row.per is not None and row.per.label is not None else {}
    parts = Filler(row, link_of(item), Observed(()), told).parts()
    for index, part in enumerate(each for each in parts if not each.is_inner):
        if part.after:
            continue  # its pods come later
        metadata = mapping((part.template or {}).get("metadata"))
        name = f"{at.name}-{index}"
        yield PodFacts(
            uid=_uid("Pod", name),
            name=name,
            namespace=at.namespace,
            labels={**mapping(metadata.get("labels")), **part.labels, **per},
            annotations=dict(mapping(metadata.get("annotations"))),
            controller=at,
            created=_FIRST_CREATED,
        )
