"""The pods on each node with in-tree disks that exclude those of other pods, in one session."""

from collections import Counter, defaultdict
from typing import NamedTuple

from bindery.kube.objects.disks import Disk
from bindery.scheduler.model.jobs import NO_ROW, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.plugins.volumes.catalog import Catalog


class _User(NamedTuple):
    uid: Uid
    row: int
    is_read_only: bool


class DiskUsers:
    """The disks of pods on nodes, of the plan and at the binder."""

    def __init__(self, catalog: Catalog, nodes: NodeTable) -> None:
        self._users: defaultdict[str, Counter[_User]] = defaultdict(Counter)
        """Name of a disk -> how often a pod has it on a node: a plan may move it there again."""
        for uid, pod in catalog.disk_users.items():
            self.add(uid, nodes.rows.get(pod.node_name, NO_ROW), pod.disks)

    def add(self, uid: Uid, row: int, disks: tuple[Disk, ...]) -> None:
        """Enter `disks` of the pod `uid` on the node at `row`; `NO_ROW` enters nothing."""
        for disk in disks if row != NO_ROW else ():
            for name in disk.names:
                self._users[name][_User(uid, row, disk.is_read_only)] += 1

    def remove(self, uid: Uid, row: int, disks: tuple[Disk, ...]) -> None:
        """Undo `add`."""
        for disk in disks:
            for name in disk.names:
                self._users[name] -= Counter((_User(uid, row, disk.is_read_only),))

    def closed_rows(self, uid: Uid, disks: tuple[Disk, ...]) -> set[int]:
        """Return the rows where another pod has one of `disks` and one of both may write to it."""
        return {
            user.row
            for disk in disks
            for name in disk.names
            for user in self._users.get(name, ())
            if user.uid != uid and not (disk.is_read_only and user.is_read_only)
        }
