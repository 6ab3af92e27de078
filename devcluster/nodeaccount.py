"""The account of the agent beside a kubelet: the chart's resources, and tokens bound to a node.

In a cluster, the kubelet gets such a token for each pod of the DaemonSet. Here a pod of the account
stands for it, and the agent runs on this machine.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from devcluster import kubeconfig
from devcluster.install import render
from devcluster.plane import ControlPlane
from devcluster.realnode.configuration import PAUSE

NAMESPACE: Final = "bindery-beside"
ACCOUNT: Final = "bindery-beside"
_OWN: Final = (ACCOUNT, NAMESPACE, "gpu-share", "gpu-mig")


def apply(plane: ControlPlane, beside: Mapping[str, object] | None = None) -> None:
    """Apply the resources of the chart for the account. `beside`: further values of this name.

    Raises:
        ControlPlaneError: helm or the API server refused a resource, which the text names.
    """
    values = {
        "workloads": {"enabled": False},
        "webhook": {"enabled": False},
        "beside": {"enabled": True, **(beside or {})},
    }
    own = [each for each in render(plane, values) if _name(each) in _OWN]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": own})
    plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text)


def node_kubeconfig(plane: ControlPlane, node: str) -> Path:
    """Return a kubeconfig with a token of the account that is bound to a pod on `node`.

    Raises:
        ControlPlaneError: the API server refused the pod or the token.
    """
    path = plane.state_dir / "kubeconfigs" / f"beside-{node}.kubeconfig"
    server = kubeconfig.Server.read(plane.admin_kubeconfig)
    return kubeconfig.write(path, server, ACCOUNT, token(plane, node))


def token(plane: ControlPlane, node: str) -> str:
    """Return a token of the account that is bound to a pod on `node`.

    Raises:
        ControlPlaneError: the API server refused the pod or the token.
    """
    scope = f"--namespace={NAMESPACE}"
    name = f"beside-{node}"
    text = json.dumps(_pod(name, node))
    plane.kubectl("apply", "--server-side", "--filename=-", stdin=text)
    uid = plane.kubectl("get", "pod", name, scope, "--output=jsonpath={.metadata.uid}")
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
    return plane.kubectl("create", "token", ACCOUNT, scope, "--duration=24h", *bound).strip()


def _pod(name: str, node: str) -> dict[str, object]:
    container = {"name": "stand-in", "image": PAUSE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def _name(document: Mapping[str, object]) -> object:
    metadata = document["metadata"]
    return metadata["name"] if isinstance(metadata, dict) else None
