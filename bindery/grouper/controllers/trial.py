"""The PodGroups that manifests would become, without a cluster. Used by `bindery grouper plan`.

Pods and owners of the manifests are used unchanged. For an owner without pods, the plan has the
pods that its controller would create.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bindery.grouper.controllers.expansion import expand
from bindery.grouper.table.facts import KubeObject, Reference, mapping, pod_facts, reference_of
from bindery.grouper.table.groups import GroupPlan
from bindery.grouper.table.loading import Table
from bindery.grouper.table.planning import plan

_FIRST_CREATED = "2000-01-01T00:00:00Z"


@dataclass(frozen=True)
class Trial:
    """What becomes of manifests."""

    plan: GroupPlan
    unknown: tuple[tuple[Reference, str], ...]
    """The objects whose pods are not known, with the reasons."""


def try_out(items: Sequence[KubeObject], table: Table) -> Trial:
    """Return the plan for `items`, pods and owners as manifests have them."""
    found = expand([_with_identity(item) for item in items], table)
    pods = [pod_facts(pod) for pod in found.pods]
    why_unknown = {**found.unknown, **found.refused}
    unknown = [(reference_of(found.owners[uid]), why) for uid, why in why_unknown.items()]
    return Trial(plan(found.owners, pods, table), tuple(unknown))


def _with_identity(item: KubeObject) -> dict[str, Any]:
    """Return `item` with a UID and a namespace; references by name get the same UID."""
    metadata = dict(mapping(item.get("metadata")))
    metadata.setdefault("namespace", "default")
    metadata.setdefault("name", metadata.get("generateName", ""))
    metadata.setdefault("creationTimestamp", _FIRST_CREATED)
    uid = _uid(str(item.get("kind")), metadata["name"])
    metadata.setdefault("uid", uid)
    references = [
        {"uid": _uid(str(each.get("kind")), str(each.get("name"))), **each}
        for each in metadata.get("ownerReferences") or ()
    ]
    return {**item, "metadata": {**metadata, "ownerReferences": references}}


def _uid(kind: str, name: str) -> str:
    return hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:32]
