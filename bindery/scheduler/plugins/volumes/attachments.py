"""Counts the attached volumes of each CSI driver on each node, and checks the limits.

A volume counts once on a node, for any number of pods (kube-scheduler's `nodevolumelimits`). A
volume that is not made yet counts under the name of its claim.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from bindery.kube.storage import Claim, PersistentVolume
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import NO_ROW, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.plugins.volumes.catalog import Catalog

_FULL = "exceed max volume count"


class Attachment(NamedTuple):
    """One volume of a driver."""

    driver: str
    handle: str


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
        self._users: defaultdict[int, defaultdict[Attachment, set[Uid]]] = defaultdict(
            lambda: defaultdict(set)
        )
        """Row -> attached volume -> its users."""
        # Most clusters have no limits, and then nothing needs to be counted.
        for uid, pod in catalog.pods.items() if self._limits else ():
            row = nodes.rows.get(pod.node_name, NO_ROW)
            claims = (catalog.claims.get(key) for key in pod.claims if row != NO_ROW)
            for claim in claims:
                if claim is not None:
                    volume = catalog.volumes.get(claim.spec.volume_name)
                    attachment = self.of(claim, volume)
                    if attachment is not None:
                        self._users[row][attachment].add(uid)

    def of(self, claim: Claim, volume: PersistentVolume | None) -> Attachment | None:
        """Return the attachment for `claim` with `volume`; None without a limit of its driver.

        `volume` is None for a claim whose volume is not made yet.
        """
        if volume is not None:
            source = volume.spec.csi  # other kinds of volumes have no limits
            if source is None or source.driver not in self._limits:
                return None
            return Attachment(source.driver, source.volume_handle)
        found = self._catalog.storage_class(claim)
        if found is None or found.provisioner not in self._limits:
            return None
        meta = claim.metadata
        return Attachment(found.provisioner, f"{meta.namespace}/{meta.name}")

    def attach(self, uid: Uid, row: int, volumes: Iterable[Attachment]) -> None:
        """Add `volumes` of the pod `uid` to the node at `row`."""
        for volume in volumes:
            self._users[row][volume].add(uid)

    def detach(self, uid: Uid, row: int) -> None:
        """Undo `attach`."""
        attached: dict[Attachment, set[Uid]] = self._users.get(row, defaultdict(set))
        for volume in [each for each, users in attached.items() if uid in users]:
            attached[volume].discard(uid)
            if not attached[volume]:
                del attached[volume]

    def exceeds(self, row: int, volumes: frozenset[Attachment]) -> str | None:
        """Return why `volumes` cannot be added to the node at `row`; None if they can."""
        for driver, wanted in _by_driver(volumes).items():
            limit = self._limits[driver].get(row)
            if limit is not None and self._count(driver, row, wanted) > limit:
                return _FULL
        return None

    def against(self, volumes: frozenset[Attachment]) -> Iterable[NodeFailure]:
        """Yield the nodes to which `volumes` cannot be added."""
        full: BoolColumn = np.zeros(len(self._nodes.nodes), dtype=np.bool_)
        for driver, wanted in _by_driver(volumes).items():
            for row, limit in self._limits[driver].items():
                full[row] |= self._count(driver, row, wanted) > limit
        yield NodeFailure(_FULL, full)

    def _count(self, driver: str, row: int, wanted: frozenset[Attachment]) -> int:
        """Return the number of volumes of `driver` on the node with `wanted` added."""
        attached: Mapping[Attachment, set[Uid]] = self._users.get(row, {})
        there = sum(each.driver == driver and each not in wanted for each in attached)
        return there + len(wanted)


def _by_driver(volumes: frozenset[Attachment]) -> dict[str, frozenset[Attachment]]:
    drivers = {each.driver for each in volumes}
    return {name: frozenset(v for v in volumes if v.driver == name) for name in drivers}
