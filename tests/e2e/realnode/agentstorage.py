"""Volumes of the tests' CSI driver, as objects of the API."""

from typing import Any

from tests.nodeagent.volumes import csidriver


def driver() -> dict[str, Any]:
    """Return the CSIDriver: its volumes are on every node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": csidriver.NAME},
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
