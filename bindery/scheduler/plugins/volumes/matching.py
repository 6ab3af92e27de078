"""Which volumes a claim could get: those that are there, and those that could be made for it.

Asked by the ledger, once a session for equal claims. The rules are those of kube-scheduler's
`volumebinding` and of the controller that binds (Kubernetes 1.34, `FindMatchingVolume`): the
smallest volume that fits wins, one that refers to the claim wins over all.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.api.quantity import QuantityError, parse
from bindery.kube.labels import meets
from bindery.kube.podspec import NodeSelectorRequirement
from bindery.kube.storage import Claim, CSIStorageCapacity, LabelSelector, PersistentVolume
from bindery.kube.store import Key, key_of
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
class Candidate:
    """A volume that a claim could get."""

    name: str
    rows: Rows | None
    """From where it can be used; None: from everywhere."""
    is_promised: bool
    """Whether it refers to this very claim."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A set of nodes that share storage of one class, as a CSIStorageCapacity tells."""

    key: Key
    nodes: BoolColumn
    capacity: int
    """Bytes in all."""
    largest: int
    """Bytes of the largest volume."""


class Matching:
    """Answers for one session: the catalog and the nodes do not change meanwhile."""

    def __init__(self, catalog: Catalog, index: NodeIndex) -> None:
        self._catalog = catalog
        self._index = index
        self._by_class: defaultdict[str, list[tuple[int, str]]] | None = None
        self._candidates: dict[bytes, tuple[Candidate, ...]] = {}
        self._segments: dict[str, tuple[Segment, ...] | None] = {}
        self._makers: dict[str, BoolColumn] = {}
        self._promised: dict[Key, list[PersistentVolume]] | None = None

    def candidates(self, claim: Claim) -> tuple[Candidate, ...]:
        """Return the volumes that `claim` could get, the best first; taken by nobody yet."""
        shared = self._shared(claim)
        promised = [
            volume
            for volume in self._promises().get(key_of(claim.metadata), ())
            if refers_to(volume, claim) and fits(volume, claim)
        ]
        if not promised:
            return shared
        first = tuple(Candidate(v.metadata.name, self._index.reach(v), True) for v in promised)
        return first + shared

    def makers(self, claim: Claim) -> BoolColumn:
        """Return for which nodes a volume could be made for `claim`, by its class alone."""
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

    def segments(self, claim: Claim) -> tuple[Segment, ...] | None:
        """Return where there is storage for the class of `claim`; None: nobody tells."""
        name = class_name(claim)
        if name not in self._segments:
            self._segments[name] = self._find_segments(name)
        return self._segments[name]

    # -- inside ----------------------------------------------------------------------------------

    def _shared(self, claim: Claim) -> tuple[Candidate, ...]:
        """Return the volumes that nobody is promised, the smallest first; made once for equals."""
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
                Candidate(name, self._index.reach(volumes[name]), False)
                for _, name in self._available()[class_name(claim)]
                if fits(volumes[name], claim) and _is_for(volumes[name], claim)
            )
        return found

    def _available(self) -> defaultdict[str, list[tuple[int, str]]]:
        """Return by class the volumes that are free: (bytes, name), the smallest first."""
        if self._by_class is None:
            self._by_class = defaultdict(list)
            for name, volume in self._catalog.volumes.items():
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
        """Return the segments of a class; None if capacity is not told.

        A driver says in its CSIDriver whether it tells. Where there is no CSIDriver, what is told
        counts: kube-scheduler ignores it then, and plans where nothing can be made.
        """
        found = self._catalog.classes.get(name)
        driver = self._catalog.drivers.get(found.provisioner) if found is not None else None
        told = [
            c for _, c in sorted(self._catalog.capacities.items()) if c.storage_class_name == name
        ]
        if driver is None and not told:
            return None
        if driver is not None and not driver.spec.storage_capacity:
            return None
        segments = (self._segment(capacity) for capacity in told)
        return tuple(segment for segment in segments if segment is not None)

    def _segment(self, told: CSIStorageCapacity) -> Segment | None:
        if told.node_topology is None:
            return None
        capacity, largest = _bytes(told.capacity), _bytes(told.maximum_volume_size)
        if capacity is None and largest is None:
            return None
        nodes = self._index.selected(told.node_topology)
        whole = largest if capacity is None else capacity
        assert whole is not None, "one of the two is said"
        return Segment(key_of(told.metadata), nodes, whole, whole if largest is None else largest)


def fits(volume: PersistentVolume, claim: Claim) -> bool:
    """Return whether `volume` is large enough for `claim`, of its mode, and stays."""
    return (
        volume.metadata.deletion_timestamp is None
        and volume.spec.volume_mode == claim.spec.volume_mode
        and capacity_bytes(volume) >= requested_bytes(claim)
    )


def requested_bytes(claim: Claim) -> int:
    """Return how large a volume `claim` asks for; 0 if it does not say, or cannot be read."""
    return _bytes((claim.spec.resources.requests or {}).get("storage")) or 0


def capacity_bytes(volume: PersistentVolume) -> int:
    """Return how large `volume` is; -1 if it does not say, or cannot be read."""
    found = _bytes((volume.spec.capacity or {}).get("storage"))
    return -1 if found is None else found


def _is_for(volume: PersistentVolume, claim: Claim) -> bool:
    """Return whether a volume that fits may be given to `claim`, which does not ask for it."""
    spec = claim.spec
    return (
        set(spec.access_modes) <= set(volume.spec.access_modes)
        and (spec.volume_attributes_class_name or "")
        == (volume.spec.volume_attributes_class_name or "")
        and (spec.selector is None or _selects(spec.selector, volume.metadata.labels))
    )


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether `selector` (`metav1.LabelSelector`) selects something with `labels`."""
    wanted = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        meets(NodeSelectorRequirement(key=i.key, operator=i.operator, values=i.values), labels)
        for i in selector.match_expressions or ()
    )


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse(text, "storage")
    except QuantityError:
        return None
