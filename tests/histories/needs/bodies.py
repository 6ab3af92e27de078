"""Writes needs into the bodies of pods and PodGroups, and makes the objects that pods name."""

from collections.abc import Mapping
from typing import Any, Final

from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import HOLLOW_RUN_SECONDS_ANNOTATION, RACK_LABEL, SUB_GROUP_LABEL
from tests.histories.needs.plans import DeviceNeed, DeviceSource, Needs, VolumeNeed, VolumeSource

DRIVER: Final = "devices.example.com"
DEVICE_CLASS: Final = "card"
EXTENDED_RESOURCE: Final = f"{DRIVER}/card"
PROVISIONER: Final = "csi.example.com"
LEADERS: Final = "leaders"
WORKERS: Final = "workers"
_CLAIM: Final = "claim"
_DATA: Final = "data"
_CLASSES: Final = {VolumeSource.PROVISIONED: "late", VolumeSource.LOCAL: "local"}


def classes() -> dict[str, str]:
    """Return the storage classes, each with its provisioner."""
    none = "kubernetes.io/no-provisioner"
    return {_CLASSES[VolumeSource.PROVISIONED]: PROVISIONER, _CLASSES[VolumeSource.LOCAL]: none}


def add_to_pod(body: dict[str, Any], gang: str, needs: Needs, sub_group: str = LEADERS) -> None:
    """Write what `needs` asks for into the body of a pod of `gang`."""
    meta, spec = body["metadata"], body["spec"]
    limits = spec["containers"][0]["resources"]["limits"]
    if needs.volume is not None:
        spec["volumes"] = [_volume(needs.volume, gang, meta["name"])]
    if needs.device is not None:
        _add_devices(spec, limits, gang, needs.device)
    if needs.card is not None:
        limits[NVIDIA.count_resource] = "1"
        limits[NVIDIA.memory_resource] = str(needs.card.memory_mib)
    if needs.stage is not None:
        meta["labels"] = {**meta.get("labels", {}), SUB_GROUP_LABEL: sub_group}
        if needs.stage.condition == "Complete" and sub_group == LEADERS:
            meta["annotations"][HOLLOW_RUN_SECONDS_ANNOTATION] = "5.000"


def _volume(need: VolumeNeed, gang: str, pod: str) -> dict[str, Any]:
    if need.is_ephemeral:
        template = {"spec": claim_spec(need.source)}
        return {"name": _DATA, "ephemeral": {"volumeClaimTemplate": template}}
    source = {"claimName": volume_claim_name(need, gang, pod)}
    return {"name": _DATA, "persistentVolumeClaim": source}


def volume_claim_name(need: VolumeNeed, gang: str, pod: str) -> str:
    """Return the name of the claim that people make for a pod."""
    return f"{gang if need.is_shared else pod}-{_DATA}"


def claim_spec(source: VolumeSource) -> dict[str, Any]:
    """Return the spec of a claim for a volume."""
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": _CLASSES[source],
        "resources": {"requests": {"storage": "1Gi"}},
    }


def _add_devices(spec: dict[str, Any], limits: dict[str, str], gang: str, need: DeviceNeed) -> None:
    match need.source:
        case DeviceSource.EXTENDED:
            limits[EXTENDED_RESOURCE] = str(need.count)
        case DeviceSource.SHARED:
            spec["resourceClaims"] = [
                {"name": _CLAIM, "resourceClaimName": device_claim_name(gang)}
            ]
        case DeviceSource.TEMPLATE:
            name = template_name(need.count)
            spec["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": name}]


def device_claim_name(gang: str) -> str:
    """Return the name of the claim that the pods of a gang share."""
    return f"{gang}-{_CLAIM}"


def template_name(count: int) -> str:
    """Return the name of the template of claims for so many devices."""
    return f"devices-{count}"


def device_claim_spec(count: int) -> dict[str, Any]:
    """Return the spec of a claim for devices."""
    exactly = {"deviceClassName": DEVICE_CLASS, "count": count}
    return {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}


def add_to_group(spec: dict[str, Any], needs: Needs, worker: Mapping[str, Any]) -> None:
    """Write what `needs` asks for into the spec of a PodGroup; `worker`: the spec of a worker."""
    if needs.is_in_rack:
        spec["topology"] = {"required": RACK_LABEL}
        if needs.is_exclusive:
            spec["topology"]["exclusive"] = True
    if needs.stage is not None:
        spec["stageTimeoutSeconds"] = needs.stage.timeout_s
        spec["subGroups"] = [
            {"name": LEADERS, "minMember": spec["minMember"]},
            {
                "name": WORKERS,
                "minMember": needs.stage.workers,
                "after": [{"subGroup": LEADERS, "condition": needs.stage.condition}],
                "template": {"spec": {"containers": worker["containers"]}},
            },
        ]
