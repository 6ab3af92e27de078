"""What the grouper knows of the cluster: pods, owners, namespaces, priority classes, its PodGroups.

Wires the watches to the forest. `loop` asks it which workloads have changed and what there is to
know about one of them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bindery.api import names
from bindery.grouper.forest import Forest
from bindery.grouper.groups import Groups
from bindery.grouper.named import KINDS, NamedGangs, Planned, bound_under, is_named
from bindery.grouper.objects import (
    GROUPED_PODS,
    WRITTEN_GROUPS,
    GroupedPod,
    WrittenGroup,
    as_mapping,
    facts_of,
)
from bindery.grouper.owners import KindKey, Missing, Owners
from bindery.grouper.table.asked import Surroundings
from bindery.grouper.table.facts import PodFacts
from bindery.grouper.table.groups import WantedObject
from bindery.grouper.table.loading import Table
from bindery.kube.client import Client
from bindery.kube.objects.resources import NAMESPACES, PRIORITY_CLASSES, metadata_only
from bindery.kube.objects.watched import KubeObject, Namespace
from bindery.kube.watches.reflector import Change, EventType, Reflector

_WHY: Final = {
    Missing.FORBIDDEN: (
        "the grouper may not read objects of this kind (grouper.kinds in the chart's values gives "
        "it the right)"
    ),
    Missing.NOT_INSTALLED: "the cluster does not have this kind",
}


@dataclass(frozen=True)
class Workload:
    """A tree of owners and pods, as far as it lies in one namespace."""

    namespace: str
    owners: Mapping[str, Mapping[str, Any]]
    """By UID, as JSON has them."""
    pods: Sequence[PodFacts]
    surroundings: Surroundings
    uids: Sequence[str]
    """Of everything in the tree: the PodGroups of the workload have one of them as owner."""
    bound_under: frozenset[str]
    """UIDs of PodGroups under which pods are bound."""


class View:
    """Mirrors of everything that PodGroups follow from."""

    def __init__(self, client: Client, table: Table, scheduler_names: Sequence[str]) -> None:
        self._table = table
        self.changed = asyncio.Event()
        """Set when a workload may have changed."""
        self._owners = Owners(client, self._is_whole, self._see_owner)
        self._forest = Forest(self._owners.find, self._owners.forget)
        self.groups = Groups(self._see_group_of)
        self._left: dict[str, None] = {}
        """UIDs without pods whose PodGroups have changed."""
        self._named = NamedGangs(self._owners, self.find_named)
        self._pods = [
            Reflector(
                client, GROUPED_PODS, self._take_pod, field_selector=f"spec.schedulerName={name}"
            )
            for name in scheduler_names
        ]
        others = ",".join(f"spec.schedulerName!={name}" for name in scheduler_names)
        self._strangers = Reflector(
            client, GROUPED_PODS, self._take_stranger, field_selector=others
        )
        """Pods of other schedulers, looked at once pods of ours are in upstream's groups."""
        self._meets_strangers = asyncio.Event()
        label = f"{names.MADE_BY_LABEL}={names.MADE_BY_GROUPER}"
        self._written = Reflector(client, WRITTEN_GROUPS, self._take_group, label_selector=label)
        self._namespaces: Reflector[Namespace] = Reflector(client, NAMESPACES, self._take_namespace)
        self._classes = Reflector(client, metadata_only(PRIORITY_CLASSES), self._take_class)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._owners.run())
            group.create_task(self._watch_strangers())
            for mirror in self._mirrors():
                group.create_task(mirror.run())

    async def wait_filled(self) -> None:
        """Wait until all pods and all of our PodGroups are known."""
        await asyncio.gather(*(mirror.synced.wait() for mirror in self._mirrors()))

    def is_filled(self) -> bool:
        """Whether all pods and PodGroups are known, and each kind of owners was looked at."""
        return all(each.synced.is_set() for each in self._mirrors()) and self._owners.is_settled()

    def is_up_to_date(self) -> bool:
        """Whether no watch has been silent for too long."""
        return all(each.healthy() for each in self._mirrors()) and self._owners.healthy()

    @property
    def kinds(self) -> int:
        """How many kinds of owners are watched."""
        return self._owners.watched

    # ---- workloads ------------------------------------------------------------------------------

    def all_workloads(self) -> list[str]:
        """Return the UIDs of the roots of all workloads."""
        return [*self._forest.roots(), *self._named.roots(), *self.groups.without_owner()]

    def take_changed(self) -> list[str]:
        """Return the UIDs of the roots that have changed since the last call."""
        self.changed.clear()
        left, self._left = list(self._left), {}
        return [*self._forest.take_changed(), *self._named.take_changed(), *left]

    def discard_changes(self) -> None:
        """Forget what has changed, because no plan follows."""
        self.take_changed()

    def is_there(self, root: str) -> bool:
        """Whether a workload has this root."""
        return self._forest.root(root) is not None or self._named.has(root)

    def workloads(self, root: str) -> list[Workload]:
        """Return the workload with this root, by namespace; none while an owner is looked up.

        None either when the owner is gone: what it leaves is for the garbage collector.
        """
        top = self._forest.root(root)
        if top is None or top.missing in (Missing.PENDING, Missing.GONE):
            return []
        nodes = list(top.walk())
        owners = {
            node.reference.uid: as_mapping(
                node.reference.api_version, node.reference.kind, node.owner
            )
            for node in nodes
            if node.owner is not None
        }
        unreadable = {
            node.reference.uid: _WHY[node.missing] for node in nodes if node.missing in _WHY
        }
        pods: dict[str, list[PodFacts]] = {}
        for node in nodes:
            if node.pod is not None:
                pods.setdefault(node.pod.namespace, []).append(node.pod)
        uids = [node.reference.uid for node in nodes]
        return [
            self._workload(namespace, owners, of_namespace, unreadable, uids)
            for namespace, of_namespace in sorted(pods.items())
        ]

    async def leftovers(self, root: str) -> list[WrittenGroup]:
        """Return the PodGroups of a root without pods that only the grouper can delete.

        The garbage collector does not know objects of kinds that are not installed, and leaves
        PodGroups without an owner.

        Raises:
            KubeError: the kinds of the API server cannot be read.
        """
        found = self.groups.of_owners([root])
        kinds = {
            KindKey(each.api_version, each.kind)
            for group in found
            for each in group.metadata.owner_references
        }
        return [] if any([await self._owners.is_served(kind) for kind in kinds]) else found

    def _workload(
        self,
        namespace: str,
        owners: Mapping[str, Mapping[str, Any]],
        pods: Sequence[PodFacts],
        unreadable: Mapping[str, str],
        uids: Sequence[str],
    ) -> Workload:
        known = self._namespaces.objects.get(("", namespace))
        surroundings = Surroundings(
            namespace_labels=known.metadata.labels if known is not None else {},
            priority_classes=frozenset(name for _, name in self._classes.objects),
            unreadable=unreadable,
        )
        return Workload(namespace, owners, pods, surroundings, uids, bound_under(pods))

    def plan_named(self, root: str) -> Planned:
        """Return the plan of a gang that pods name."""
        return self._named.plan(root)

    def find_named(self, wanted: WantedObject, root: str) -> Mapping[str, Any] | Missing:
        """Return the object that a plan of the workload `root` names, or why it is missing."""
        version = wanted.versions[0]
        api_version = f"{wanted.group}/{version}" if wanted.group else version
        key = KindKey(api_version, wanted.kind)
        return self._owners.find_named(key, wanted.namespace, wanted.name, root)

    # ---- changes --------------------------------------------------------------------------------

    def _is_whole(self, key: KindKey) -> bool:
        group, _, version = key.api_version.rpartition("/")
        return key in KINDS or self._table.row(group, version, key.kind) is not None

    def _take_pod(self, change: Change[GroupedPod]) -> None:
        uid = change.object.metadata.uid
        if change.type is EventType.DELETED:
            self._forest.lose_pod(uid)
            self._named.lose_pod(uid)
        else:
            pod = facts_of(change.object)
            if self._named.take_pod(pod):
                self._forest.lose_pod(uid)
            else:
                self._forest.see_pod(pod, pod.controller)
            if self._named.uses_upstream():
                self._meets_strangers.set()
        self.changed.set()

    def _take_stranger(self, change: Change[GroupedPod]) -> None:
        gone = change.type is EventType.DELETED
        self._named.take_stranger(facts_of(change.object), gone=gone)
        self.changed.set()

    async def _watch_strangers(self) -> None:
        await self._meets_strangers.wait()
        await self._strangers.run()

    def _take_group(self, change: Change[WrittenGroup]) -> None:
        self.groups.take(change)

    def _take_namespace(self, change: Change[Namespace]) -> None:
        labels = change.previous.metadata.labels if change.previous is not None else {}
        if change.type is EventType.MODIFIED and labels != change.object.metadata.labels:
            self._mark_all(change.object.metadata.name)

    def _take_class(self, change: Change[KubeObject]) -> None:
        if change.type is not EventType.MODIFIED:
            self._mark_all()

    def _mark_all(self, namespace: str = "") -> None:
        """Mark all workloads with pods in `namespace`; "": in any."""
        if not self._namespaces.synced.is_set() or not self._classes.synced.is_set():
            return  # every workload is planned for the first time after that
        self._named.mark_all(namespace)
        for root in self._forest.roots():
            top = self._forest.root(root)
            if top is not None and namespace in ("", top.reference.namespace):
                self._forest.mark(root)
        self.changed.set()

    def _see_owner(self, uid: str) -> None:
        if is_named(uid):
            self._named.mark(uid)
        else:
            self._forest.see_owner(uid)
            self._forest.mark(uid)
        self.changed.set()

    def _see_group_of(self, uid: str) -> None:
        if not self._named.mark_owned(uid) and not self._forest.mark(uid):
            self._left[uid] = None
        self.changed.set()

    def _mirrors(self) -> "list[Reflector[Any]]":
        return [*self._pods, self._written, self._namespaces, self._classes]
