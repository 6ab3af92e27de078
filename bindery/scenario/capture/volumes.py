"""Volumes and claims of a live cluster as the whole objects of a scenario.

Used by `cluster`; pure. The claim of an ephemeral volume is written under its own name: the
scenario's pod names it. UIDs are kept, as volumes refer to their claims by them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from bindery.kube.objects.storage import RESOURCES
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scenario.capture.claims import pruned
from bindery.scenario.capture.nodes import Entry
from bindery.scenario.jobs import InTreeDisk

_DISKS: Final = {field.alias for field in InTreeDisk.model_fields.values()}
_KINDS: Final = {resource.type: resource for resource in RESOURCES}


def capture_volumes(further: Sequence[KubeObject]) -> Entry:
    """Return the key of a scenario that holds `further`, as far as it is about volumes."""
    return {"volumes": [_entry(item) for item in further if type(item) in _KINDS]}


def volume_claims(pod: Pod) -> list[str]:
    """Return the names of the persistent volume claims of `pod`."""
    return [
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim is not None
        else f"{pod.metadata.name}-{volume.name}"
        for volume in pod.spec.volumes or ()
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    ]


def disks_of(pod: Pod) -> list[Entry]:
    """Return the in-tree disks of `pod`."""
    return [
        {
            key: value
            for key, value in msgspec.to_builtins(volume).items()
            if key in _DISKS and value
        }
        for volume in pod.spec.volumes or ()
        if any(getattr(volume, field) is not None for field in InTreeDisk.model_fields)
    ]


def _entry(item: KubeObject) -> Entry:
    resource, meta = _KINDS[type(item)], item.metadata
    metadata: Entry = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "labels": meta.labels,
        "annotations": meta.annotations,
        "deletionTimestamp": meta.deletion_timestamp,
    }
    body = pruned({**msgspec.to_builtins(item), "metadata": metadata})
    assert isinstance(body, dict), "objects are written as mappings"
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
