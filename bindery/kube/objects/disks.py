"""In-tree disks: finds disks that exclude each other on a node, and volumes of CSI drivers.

Used by the scheduler's plugin `volumes`. The rules are those of kube-scheduler's VolumeRestrictions
and NodeVolumeLimits, and of Kubernetes' CSI migration (1.36). Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from bindery.kube.objects.podspec import MigratedSources, Volume

_GCE: Final = "pd.csi.storage.gke.io"
_AWS: Final = "ebs.csi.aws.com"
_AZURE: Final = "disk.csi.azure.com"
_CINDER: Final = "cinder.csi.openstack.org"
_PORTWORX: Final = "pxd.portworx.com"

MIGRATED_PROVISIONERS: Final[Mapping[str, str]] = {
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/aws-ebs": _AWS,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": _CINDER,
    "kubernetes.io/portworx-volume": _PORTWORX,
}
"""Provisioner of a StorageClass -> its CSI driver."""
_ZONES: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_ZONE_SEPARATOR: Final = "__"


class CsiVolume(NamedTuple):
    """A volume of a CSI driver."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that pods on one node share only if all of them mount it read-only."""

    names: frozenset[str]
    """Two disks are equal if the disks share a name."""
    is_read_only: bool


def disks(volumes: Iterable[Volume]) -> tuple[Disk, ...]:
    """Return the disks among the volumes of a pod that exclude each other."""
    return tuple(disk for volume in volumes for disk in _disks(volume))


def _disks(volume: Volume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Disk(frozenset((f"gce/{gce.pd_name}",)), gce.read_only)
    if (aws := volume.aws_elastic_block_store) is not None:  # not even read-only twice
        yield Disk(frozenset((f"aws/{aws.volume_id}",)), is_read_only=False)
    if (iscsi := volume.iscsi) is not None:
        yield Disk(frozenset((f"iscsi/{iscsi.iqn}",)), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        names = frozenset(f"rbd/{one}/{rbd.pool}/{rbd.image}" for one in rbd.monitors)
        yield Disk(names, rbd.read_only)


def migrated(source: MigratedSources, labels: Mapping[str, str]) -> CsiVolume | None:
    """Return the CSI volume to which Kubernetes migrates `source`; None for other kinds of volumes.

    `labels`: the labels of the PersistentVolume; empty for a volume of a pod.
    """
    if (gce := source.gce_persistent_disk) is not None:
        return CsiVolume(_GCE, f"projects/UNSPECIFIED/{_gce_place(labels)}/disks/{gce.pd_name}")
    if (aws := source.aws_elastic_block_store) is not None:  # also written as aws://ZONE/ID
        return CsiVolume(_AWS, aws.volume_id.rpartition("/")[2])
    if (azure := source.azure_disk) is not None:
        return CsiVolume(_AZURE, azure.disk_uri)
    if (cinder := source.cinder) is not None:
        return CsiVolume(_CINDER, cinder.volume_id)
    if (portworx := source.portworx_volume) is not None:
        return CsiVolume(_PORTWORX, portworx.volume_id)
    return None


def _gce_place(labels: Mapping[str, str]) -> str:
    zones = next((labels[key] for key in _ZONES if labels.get(key)), "UNSPECIFIED")
    several = zones.split(_ZONE_SEPARATOR)
    if len(several) == 1:
        return f"zones/{zones}"
    return f"regions/{several[0].rpartition('-')[0]}"
