"""Volumes of the tests' CSI driver, as objects of the API, and the driver on a node."""

import sys
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
    name, size = f"{claim}-of-{namespace}", {"storage": "1Mi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": mode}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **common,
                "capacity": size,
                "claimRef": {"namespace": namespace, "name": claim},
                "csi": {"driver": csidriver.NAME, "volumeHandle": handle},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": {**common, "volumeName": name, "resources": {"requests": size}},
        },
    ]
