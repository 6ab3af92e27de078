"""The volumes, claims and storage classes of the cluster, and the pods with claims or disks.

The plugin writes it between cycles, the ledger reads it. The rules about bound claims and binding
modes are those of kube-scheduler's `volumebinding` (Kubernetes 1.34).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, TypeVar

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.disks import CsiVolume, Disk, disks, migrated
from bindery.kube.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType, Key, key_of
from bindery.scheduler.model.jobs import Uid

KeyT = TypeVar("KeyT")
ItemT = TypeVar("ItemT")

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """A pod, its claims and its in-tree disks."""

    uid: Uid
    namespace: str
    name: str
    node_name: str
    claims: tuple[Key, ...]
    """Each once, in the order of the pod."""
    own: frozenset[Key]
    """The claims of generic ephemeral volumes; the pod must be their owner."""
    disks: tuple[Disk, ...] = ()
    """Its own disks that exclude those of other pods."""
    migrated: tuple[CsiVolume, ...] = ()
    """Its own in-tree volumes that CSI drivers serve."""


class Catalog:
    """All objects, by their keys."""

    def __init__(self) -> None:
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.capacities: dict[Key, CSIStorageCapacity] = {}
        self.nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self.pods: dict[Uid, PodVolumes] = {}
        """Unfinished pods with claims or in-tree disks."""
        self.disk_users: dict[Uid, PodVolumes] = {}
        """Those of `pods` with disks that exclude others."""
        self.users: defaultdict[Key, set[Uid]] = defaultdict(set)
        """Claim -> its users in `pods`."""

    def observe(self, change: Change[KubeObject]) -> None:
        """Process a change of an object."""
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            self._observe_pod(item, gone)
        elif isinstance(item, PersistentVolumeClaim):
            _put(self.claims, key_of(item.metadata), item, gone)
        elif isinstance(item, PersistentVolume):
            _put(self.volumes, item.metadata.name, item, gone)
        elif isinstance(item, StorageClass):
            _put(self.classes, item.metadata.name, item, gone)
        elif isinstance(item, CSIStorageCapacity):
            _put(self.capacities, key_of(item.metadata), item, gone)
        elif isinstance(item, CSINode):
            _put(self.nodes, item.metadata.name, item, gone)
        elif isinstance(item, CSIDriver):
            _put(self.drivers, item.metadata.name, item, gone)
        elif isinstance(item, VolumeAttachment):
            _put(self.attachments, item.metadata.name, item, gone)

    def storage_class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Return the class of `claim`; None if it has none, or the class does not exist."""
        return self.classes.get(class_name(claim))

    def waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether `claim` is bound only after a pod with the claim has a node."""
        found = self.storage_class(claim)
        return (
            found is not None
            and found.volume_binding_mode == "WaitForFirstConsumer"
            and not claim.spec.volume_name
        )

    def _observe_pod(self, pod: Pod, gone: bool) -> None:
        uid = Uid(pod.metadata.uid)
        former = self.pods.pop(uid, None)
        self.disk_users.pop(uid, None)
        for key in former.claims if former is not None else ():
            self.users[key].discard(uid)
            if not self.users[key]:  # claims come and go, so empty sets would pile up
                del self.users[key]
        if gone or not pod.spec.volumes or pod.status.phase in ENDED_POD_PHASES:
            return
        found = read_pod(pod)
        if not (found.claims or found.disks or found.migrated):
            return
        self.pods[uid] = found
        if found.disks:
            self.disk_users[uid] = found
        for key in found.claims:
            self.users[key].add(uid)


def read_pod(pod: Pod) -> PodVolumes:
    """Return the claims and disks of `pod`."""
    meta = pod.metadata
    claims: list[Key] = []
    own: set[Key] = set()
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.append((meta.namespace, volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:  # Kubernetes fixes the name of its claim
            own.add((meta.namespace, f"{meta.name}-{volume.name}"))
            claims.append((meta.namespace, f"{meta.name}-{volume.name}"))
    return PodVolumes(
        uid=Uid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        node_name=pod.spec.node_name,
        claims=tuple(dict.fromkeys(claims)),
        own=frozenset(own),
        disks=disks(pod.spec.volumes or ()),
        migrated=tuple(
            found
            for volume in pod.spec.volumes or ()
            if (found := migrated(volume, {})) is not None
        ),
    )


def class_name(claim: PersistentVolumeClaim) -> str:
    """Return the name of the claim's storage class; empty for none."""
    # As in Kubernetes, the old annotation goes before the field.
    old = claim.metadata.annotations.get(OLD_CLASS)
    return old if old is not None else claim.spec.storage_class_name or ""


def class_of_volume(volume: PersistentVolume) -> str:
    """Return the name of the volume's storage class; empty for none."""
    return volume.metadata.annotations.get(OLD_CLASS) or volume.spec.storage_class_name


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the binding of `claim` to a volume is complete."""
    completed = BIND_COMPLETED in claim.metadata.annotations or claim.status.phase == "Bound"
    return bool(claim.spec.volume_name) and completed


def refers_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether `volume` has a reference to `claim`; a reference without UID is valid too."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.namespace, reference.name) == (meta.namespace, meta.name)
        and reference.uid in ("", meta.uid)
    )


def _put(table: dict[KeyT, ItemT], key: KeyT, item: ItemT, gone: bool) -> None:
    if gone:
        table.pop(key, None)
    else:
        table[key] = item
