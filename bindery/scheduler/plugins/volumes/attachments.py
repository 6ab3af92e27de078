"""Counts the attached volumes of each CSI driver on each node, and checks the limits.

A volume counts once on a node, for any number of pods (kube-scheduler's `nodevolumelimits`). A
volume that is not made yet counts under the name of its claim, and one that is attached counts
without a pod, until it is detached. In-tree disks count as volumes of
the CSI driver that serves them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from bindery.kube.objects.disks import MIGRATED_PROVISIONERS, CsiVolume, migrated
from bindery.kube.objects.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import NO_ROW, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.plugins.volumes.catalog import Catalog, PodVolumes

_ATTACHED: Final = Uid("")
"""Takes the place of a user while Kubernetes has a volume attached."""
_FULL = "exceed max volume count"


class Attachments:
    """The attached volumes of all nodes in one session."""

    def __init__(self, catalog: Catalog, nodes: NodeTable) -> None:
        self._catalog, self._nodes = catalog, nodes
        self._limits: dict[str, dict[int, int]] = {}
        """Driver -> row -> maximum number of volumes."""
        for name, node in catalog.nodes.items():
            row = nodes.rows.get(name, NO_ROW)
            # A driver without a count has no limit.
            for driver in node.spec.drivers if row != NO_ROW else ():
                if driver.allocatable is not None and driver.allocatable.count is not None:
                    self._limits.setdefault(driver.name, {})[row] = driver.allocatable.count
        self._users: defaultdict[int, defaultdict[CsiVolume, set[Uid]]] = defaultdict(
            lambda: defaultdict(set)
        )
        """Row -> attached volume -> its users."""
        # Most clusters have no limits, and then nothing needs to be counted.
        for held in catalog.attachments.values() if self._limits else ():
            self._add_held(held)
        for uid, pod in catalog.pods.items() if self._limits else ():
            row = nodes.rows.get(pod.node_name, NO_ROW)
            if row == NO_ROW:
                continue
            self.attach(uid, row, self.own(pod))
            for claim in filter(None, map(catalog.claims.get, pod.claims)):
                attachment = self.of(claim, catalog.volumes.get(claim.spec.volume_name))
                if attachment is not None:
                    self._users[row][attachment].add(uid)

    def _add_held(self, held: VolumeAttachment) -> None:
        """Count a volume that is attached to a node, also while no pod uses it."""
        row = self._nodes.rows.get(held.spec.node_name, NO_ROW)
        volume = self._catalog.volumes.get(held.spec.source.persistent_volume_name or "")
        if row == NO_ROW or volume is None or volume.spec.csi is None:
            return
        if held.spec.attacher in self._limits:
            handle = volume.spec.csi.volume_handle
            self._users[row][CsiVolume(held.spec.attacher, handle)].add(_ATTACHED)

    def of(self, claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> CsiVolume | None:
        """Return the attachment for `claim` with `volume`; None without a limit of its driver.

        `volume` is None for a claim whose volume is not made yet.
        """
        if volume is not None:
            csi = volume.spec.csi
            source = (
                CsiVolume(csi.driver, csi.volume_handle)
                if csi is not None
                else migrated(volume.spec, volume.metadata.labels)
            )
            # Other kinds of volumes have no limits.
            return source if source is not None and source.driver in self._limits else None
        found = self._catalog.storage_class(claim)
        if found is None:
            return None
        driver = MIGRATED_PROVISIONERS.get(found.provisioner, found.provisioner)
        if driver not in self._limits:
            return None
        return CsiVolume(driver, f"{claim.metadata.namespace}/{claim.metadata.name}")

    def own(self, pod: PodVolumes) -> Iterable[CsiVolume]:
        """Return the attachments of the in-tree disks of `pod` whose drivers have a limit."""
        return (each for each in pod.migrated if each.driver in self._limits)

    def attach(self, uid: Uid, row: int, volumes: Iterable[CsiVolume]) -> None:
        """Add `volumes` of the pod `uid` to the node at `row`."""
        for volume in volumes:
            self._users[row][volume].add(uid)

    def detach(self, uid: Uid, row: int) -> None:
        """Undo `attach`."""
        attached: dict[CsiVolume, set[Uid]] = self._users.get(row, defaultdict(set))
        for volume in [each for each, users in attached.items() if uid in users]:
            attached[volume].discard(uid)
            if not attached[volume]:
                del attached[volume]

    def exceeds(self, row: int, volumes: frozenset[CsiVolume]) -> str | None:
        """Return why `volumes` cannot be added to the node at `row`; None if they can."""
        for driver, wanted in _by_driver(volumes).items():
            limit = self._limits[driver].get(row)
            if limit is not None and self._is_above(limit, driver, row, wanted):
                return _FULL
        return None

    def against(self, volumes: frozenset[CsiVolume]) -> Iterable[NodeFailure]:
        """Yield the nodes to which `volumes` cannot be added."""
        full: BoolColumn = np.zeros(len(self._nodes.nodes), dtype=np.bool_)
        for driver, wanted in _by_driver(volumes).items():
            for row, limit in self._limits[driver].items():
                full[row] |= self._is_above(limit, driver, row, wanted)
        yield NodeFailure(_FULL, full)

    def _is_above(self, limit: int, driver: str, row: int, wanted: frozenset[CsiVolume]) -> bool:
        """Return whether the node has more than `limit` volumes of `driver` with `wanted` added."""
        attached: Mapping[CsiVolume, set[Uid]] = self._users.get(row, {})
        added = sum(each not in attached for each in wanted)
        # What is attached already may be used above the limit, which the driver may have lowered.
        return added > 0 and added + sum(each.driver == driver for each in attached) > limit


def _by_driver(volumes: frozenset[CsiVolume]) -> dict[str, frozenset[CsiVolume]]:
    drivers = {each.driver for each in volumes}
    return {name: frozenset(v for v in volumes if v.driver == name) for name in drivers}
