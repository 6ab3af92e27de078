"""Finds the volumes for a claim: existing volumes, and nodes for new volumes.

The ledger asks once per session for equal claims. The rules are those of kube-scheduler's
`volumebinding` and of the volume controller (Kubernetes 1.34, `FindMatchingVolume`): the smallest
fitting volume comes first, but after a volume with a reference to the claim.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.api.quantity import QuantityError, parse
from bindery.kube.objects.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from bindery.kube.watches.store import Key, key_of
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.volumes.catalog import (
    Catalog,
    class_name,
    class_of_volume,
    refers_to,
)
from bindery.scheduler.plugins.volumes.nodeindex import NodeIndex

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class CandidateVolume:
    """A volume for a claim."""

    name: str
    rows: Rows | None
    """The node rows with access to the volume; None for all."""
    is_promised: bool
    """Whether the volume has a reference to this claim."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Nodes with common storage of one class, from a CSIStorageCapacity."""

    key: Key
    nodes: BoolColumn
    capacity: int
    """Free storage, in bytes."""
    largest: int
    """Maximum size of one volume, in bytes."""


class Matching:
    """Cached matches for one session; catalog and nodes do not change during a session."""

    def __init__(self, catalog: Catalog, index: NodeIndex) -> None:
        self._catalog = catalog
        self._index = index
        self._by_class: defaultdict[str, list[tuple[int, str]]] | None = None
        self._candidates: dict[bytes, tuple[CandidateVolume, ...]] = {}
        self._segments: dict[str, tuple[Segment, ...] | None] = {}
        self._makers: dict[str, BoolColumn] = {}
        self._promised: dict[Key, list[PersistentVolume]] | None = None

    def candidates(self, claim: PersistentVolumeClaim) -> tuple[CandidateVolume, ...]:
        """Return the volumes for `claim`, best first; volumes taken in the session are included."""
        shared = self._shared(claim)
        # A reference to the claim is not part of its content, so these are not cached with equals.
        promised = [
            volume
            for volume in self._promises().get(key_of(claim.metadata), ())
            if refers_to(volume, claim) and fits(volume, claim)
        ]
        if not promised:
            return shared
        first = tuple(
            CandidateVolume(v.metadata.name, self._index.reach(v), True) for v in promised
        )
        return first + shared

    def makers(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Return a mask of the nodes for new volumes of `claim`, by its class alone."""
        name = class_name(claim)
        mask = self._makers.get(name)
        if mask is None:
            found = self._catalog.classes.get(name)
            if found is None or found.provisioner in ("", NO_PROVISIONER):
                mask = self._index.none()
            else:
                mask = self._index.topologies(found.allowed_topologies or ())
            self._makers[name] = mask
        return mask

    def segments(self, claim: PersistentVolumeClaim) -> tuple[Segment, ...] | None:
        """Return the storage segments for the class of `claim`; None without published capacity."""
        name = class_name(claim)
        if name not in self._segments:
            self._segments[name] = self._find_segments(name)
        return self._segments[name]

    # -- inside ----------------------------------------------------------------------------------

    def _shared(self, claim: PersistentVolumeClaim) -> tuple[CandidateVolume, ...]:
        """Return the volumes without a claim reference, the smallest first, cached by content."""
        spec = claim.spec
        likeness = content_key(
            (
                class_name(claim),
                requested_bytes(claim),
                sorted(spec.access_modes),
                spec.volume_mode,
                spec.selector,
                spec.volume_attributes_class_name,
            )
        )
        found = self._candidates.get(likeness)
        if found is None:
            volumes = self._catalog.volumes
            found = self._candidates[likeness] = tuple(
                CandidateVolume(name, self._index.reach(volumes[name]), False)
                for _, name in self._available()[class_name(claim)]
                if fits(volumes[name], claim) and _is_for(volumes[name], claim)
            )
        return found

    def _available(self) -> defaultdict[str, list[tuple[int, str]]]:
        """Return class -> free volumes as (bytes, name), the smallest first."""
        if self._by_class is None:
            self._by_class = defaultdict(list)
            for name, volume in self._catalog.volumes.items():
                # A new volume has no phase until the volume controller has seen it.
                if volume.spec.claim_ref is None and volume.status.phase in ("", "Available"):
                    self._by_class[class_of_volume(volume)].append((capacity_bytes(volume), name))
            for found in self._by_class.values():
                found.sort()
        return self._by_class

    def _promises(self) -> Mapping[Key, list[PersistentVolume]]:
        if self._promised is None:
            self._promised = {}
            for _, volume in sorted(self._catalog.volumes.items()):
                reference = volume.spec.claim_ref
                if reference is not None:
                    key = (reference.namespace, reference.name)
                    self._promised.setdefault(key, []).append(volume)
        return self._promised

    def _find_segments(self, name: str) -> tuple[Segment, ...] | None:
        """Return the segments of a class; None if its driver publishes no capacity.

        The CSIDriver has a flag for drivers that publish capacity. Without a CSIDriver, published
        capacity counts; kube-scheduler ignores it, and plans onto nodes without storage.
        """
        found = self._catalog.classes.get(name)
        driver = self._catalog.drivers.get(found.provisioner) if found is not None else None
        published = [
            c for _, c in sorted(self._catalog.capacities.items()) if c.storage_class_name == name
        ]
        if driver is None and not published:
            return None
        # As in kube-scheduler, such a driver's capacities are ignored.
        if driver is not None and not driver.spec.storage_capacity:
            return None
        segments = (self._segment(capacity) for capacity in published)
        return tuple(segment for segment in segments if segment is not None)

    def _segment(self, published: CSIStorageCapacity) -> Segment | None:
        # By the API, no topology means no node, and no amount means no storage.
        if published.node_topology is None:
            return None
        capacity, largest = _bytes(published.capacity), _bytes(published.maximum_volume_size)
        if capacity is None and largest is None:
            return None
        nodes = self._index.selected(published.node_topology)
        free = largest if capacity is None else capacity
        assert free is not None, "one of the two is given"
        largest = free if largest is None else largest
        return Segment(key_of(published.metadata), nodes, free, largest)


def fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether `volume` has size and mode for `claim`, and is not being deleted."""
    return (
        volume.metadata.deletion_timestamp is None
        and volume.spec.volume_mode == claim.spec.volume_mode
        and capacity_bytes(volume) >= requested_bytes(claim)
    )


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    """Return the requested size in bytes; 0 if it is missing or invalid."""
    return _bytes((claim.spec.resources.requests or {}).get("storage")) or 0


def capacity_bytes(volume: PersistentVolume) -> int:
    """Return the size in bytes; -1 if it is missing or invalid, so that no claim fits."""
    found = _bytes((volume.spec.capacity or {}).get("storage"))
    return -1 if found is None else found


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether access modes, attributes class and selector of `claim` allow `volume`.

    A volume with a reference to the claim needs no such check.
    """
    spec = claim.spec
    return (
        set(spec.access_modes) <= set(volume.spec.access_modes)
        and (spec.volume_attributes_class_name or "")
        == (volume.spec.volume_attributes_class_name or "")
        and (spec.selector is None or spec.selector.matches(volume.metadata.labels))
    )


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse(text, "storage")
    except QuantityError:
        return None
