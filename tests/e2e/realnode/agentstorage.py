"""Volumes of the tests' CSI driver, as objects of the API, and the driver on a node."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from devcluster import checkout
from tests.nodeagent.volumes import csidriver

DRIVER: Final = csidriver.NAME


def service() -> str:
    """Return the script that runs the driver of a node."""
    return "\n".join(
        (
            "mkdir -p /var/lib/kubelet/plugins_registry /var/lib/driver",
            f"export PYTHONPATH={checkout.ROOT}",
            (
                f"exec {sys.executable} -P -m {csidriver.__name__}"
                " /var/lib/driver/csi.sock /var/lib/driver /var/lib/kubelet/plugins_registry"
            ),
        )
    )


def driver() -> dict[str, Any]:
    """Return the CSIDriver: its volumes are on every node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False},
    }


def volume(
    namespace: str, claim: str, handle: str, mode: str = "Filesystem"
) -> list[dict[str, Any]]:
    """Return a volume that all nodes have, and its claim."""
    return bound(namespace, claim, {**driven(handle), "volumeMode": mode})


def driven(handle: str, **further: Any) -> dict[str, Any]:
    """Return the part of a volume's spec that names the driver and the handle."""
    return {"csi": {"driver": DRIVER, "volumeHandle": handle, **further}}


def bound(namespace: str, claim: str, volume: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a volume with the spec `volume`, completed, and its claim."""
    name, size = f"{claim}-of-{namespace}", {"storage": "1Mi"}
    common = {
        "accessModes": volume.get("accessModes", ["ReadWriteMany"]),
        "storageClassName": "",
        "volumeMode": volume.get("volumeMode", "Filesystem"),
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "claimRef": {"namespace": namespace, "name": claim},
                **volume,
                **common,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": {**common, "volumeName": name, "resources": {"requests": size}},
        },
    ]
