"""From the objects of manifests down to the pods that their controllers would create at first.

Objects and pods that are given are taken as they are: what controls one of them is not followed.
Used by `trial`, and by `bindery.scenario.manifests` for `bindery whatif`.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.grouper.controllers.makers import MAKERS
from bindery.grouper.controllers.making import (
    Body,
    ExpansionError,
    NotKnownError,
    at,
    demanded,
    name_of,
)
from bindery.grouper.controllers.rowpods import row_pods
from bindery.grouper.table.facts import KubeObject, reference_of
from bindery.grouper.table.loading import Table
from bindery.grouper.table.paths import PathError
from bindery.grouper.table.rows import Row
from bindery.grouper.table.targets import DEFAULT_ROW
from bindery.grouper.table.walk import MOST_LINKS

_POD_GANG: Final = ("scheduler.grove.io", "PodGang")
"""Pods name it in a label; another object creates them."""


@dataclass
class Expansion:
    """The given objects, and the objects that controllers create."""

    owners: dict[str, Body] = field(default_factory=dict)
    """By UID."""
    pods: list[Body] = field(default_factory=list)
    """Their `spec` is None if nothing has their template."""
    roots: dict[str, str] = field(default_factory=dict)
    """UID of what was created -> UID of the object that was given."""
    unknown: dict[str, str] = field(default_factory=dict)
    """UID of a workload that was given -> why its pods are not known."""
    refused: dict[str, str] = field(default_factory=dict)
    """UID of a workload that was given -> which value of it its controller cannot use."""
    others: list[str] = field(default_factory=list)
    """UIDs of objects of kinds without a row, such as Services."""

    def root(self, uid: str) -> str:
        """Return the UID of the object that was given from which `uid` comes."""
        return self.roots.get(uid, uid)


def expand(items: Sequence[KubeObject], table: Table) -> Expansion:
    """Return `items`, which have UIDs and namespaces, with all that their controllers create."""
    found = Expansion()
    for item in items:
        if item.get("kind") == "Pod":
            found.pods.append(dict(item))
        else:
            found.owners[item["metadata"]["uid"]] = dict(item)
    expander = _Expander(found, table)
    # Beside a workload, kinds without a row are its settings and services.
    idle = _idle(found)
    has_known = any(expander.is_known(item) for item in idle)
    for item in idle:
        if expander.is_known(item) or not has_known:
            expander.follow_given(item)
        if not expander.is_known(item):
            found.others.append(item["metadata"]["uid"])
    found.others = [uid for uid in found.others if uid not in expander.used]
    return found


def _idle(found: Expansion) -> list[Body]:
    """Return the owners that control nothing, and may."""
    controlled = {
        reference.get("uid")
        for item in (*found.owners.values(), *found.pods)
        for reference in item["metadata"].get("ownerReferences") or ()
        if reference.get("controller")
    }
    idle = (item for uid, item in found.owners.items() if uid not in controlled)
    return [item for item in idle if _key(item) != _POD_GANG]


@dataclass(frozen=True)
class _Expander:
    found: Expansion
    table: Table
    used: set[str] = field(default_factory=set)
    """UIDs of objects that workloads refer to."""

    def is_known(self, item: KubeObject) -> bool:
        """Return whether anything is known of the kind of `item`."""
        return _key(item) in MAKERS or self._row(item) is not DEFAULT_ROW

    def follow_given(self, item: Body) -> None:
        """Add what the controller of `item` creates."""
        uid = item["metadata"]["uid"]
        made = Expansion()
        try:
            self._follow(item, made, 0)
        except NotKnownError as error:
            self.found.unknown[uid] = str(error)
            return
        except (PathError, ExpansionError) as error:
            self.found.refused[uid] = str(error)
            return
        if not made.pods:
            self.found.unknown[uid] = self._why_none(item)
        self.found.owners |= made.owners
        self.found.pods += made.pods
        self.found.roots |= dict.fromkeys(made.owners, uid)
        self.found.roots |= {pod["metadata"]["uid"]: uid for pod in made.pods}

    def _follow(self, item: Body, made: Expansion, level: int) -> None:
        if level == MOST_LINKS:
            raise NotKnownError("the objects in it are too deep")
        children = [_below(item, child) for child in self._children(item)]
        demanded(len(made.pods) + len(children), "the number of pods")
        for child in children:
            if child["kind"] == "Pod":
                made.pods.append(child)
                continue
            made.owners[child["metadata"]["uid"]] = child
            if _key(child) != _POD_GANG:
                self._follow(child, made, level + 1)

    def _children(self, item: Body) -> Iterator[Body]:
        if is_suspended(item):
            return iter(())
        maker, row = MAKERS.get(_key(item)), self._row(item)
        if maker is not None:
            return maker(item, self._named)
        if row.pass_to is not None:
            to = row.pass_to.kind
            raise NotKnownError(f"add each {to} of it" if to else "add what it creates")
        if row.per is not None and row.per.pod:
            raise NotKnownError("add its pods")
        return row_pods(item, row)

    def _named(self, kind: str, name: str) -> KubeObject | None:
        of_kind = [each for each in self.found.owners.values() if each.get("kind") == kind]
        named = [each for each in of_kind if name_of(each) == name]
        self.used.update(each["metadata"]["uid"] for each in named[:1])
        return named[0] if named else None

    def _row(self, item: KubeObject) -> Row:
        to, labels = reference_of(item), at(item, "metadata", "labels") or {}
        return self.table.row(to.group, to.version, to.kind, labels) or DEFAULT_ROW

    def _why_none(self, item: KubeObject) -> str:
        return "it is suspended" if is_suspended(item) else "it requests no pods"


def is_suspended(item: KubeObject) -> bool:
    """Return whether the user has suspended `item`, so that its controller creates nothing."""
    return bool(at(item, "spec", "suspend") or at(item, "spec", "runPolicy", "suspend"))


def _key(item: KubeObject) -> tuple[str, str]:
    return str(item.get("apiVersion", "")).rpartition("/")[0], str(item.get("kind", ""))


def _below(owner: Body, child: Body) -> Body:
    """Return `child` with its place in the cluster and `owner` as its controller."""
    above: Mapping[str, Any] = owner["metadata"]
    metadata = child["metadata"]
    reference = {
        "apiVersion": owner.get("apiVersion", ""),
        "kind": owner["kind"],
        "name": above.get("name", ""),
        "uid": above["uid"],
        "controller": True,
    }
    text = f"{above['uid']}/{child['kind']}/{metadata['name']}"
    return {
        **child,
        "metadata": {
            **metadata,
            "namespace": above.get("namespace", ""),
            "uid": hashlib.sha256(text.encode()).hexdigest()[:32],
            "creationTimestamp": above.get("creationTimestamp"),
            "ownerReferences": [reference],
        },
    }
