"""Configuration files of a real node's programs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

PAUSE: Final = "bindery.dev/pause:1"
"""Image of the sandboxes of pods."""
RUNTIME_SOCKET: Final = "/run/containerd/containerd.sock"
SHARED: Final = "/node/shared"
"""A directory of each node that can be read from this machine (`RealNode.shared`)."""
API_SERVER: Final = "https://10.96.0.1:443"
"""Address of the Service `kubernetes` and of the API server itself."""


@dataclass(frozen=True)
class VirtualMachine:
    """The emulated machine of a node; its zones are equal."""

    cpus: int = 4
    zones: int = 2
    memory_mib: int = 3072


@dataclass(frozen=True)
class NodePlan:
    """The properties of a node to start."""

    name: str
    number: int
    """Number from 1; the addresses follow from it."""
    cgroup: str
    """Cgroup of the node's pods, below the root of each hierarchy."""
    services: dict[str, str] = field(default_factory=dict)
    """Further programs, such as device plugins: name -> shell script that runs the program to its
    end.
    """
    kubelet: Mapping[str, object] = field(default_factory=dict)
    """Further fields of the KubeletConfiguration; they replace the fields that all nodes have."""
    machine: VirtualMachine | None = None
    """The virtual machine; None: the node runs on this machine."""

    @property
    def address(self) -> str:
        """The address of the node."""
        return f"10.77.0.{self.number}"


def containerd(programs: Path) -> str:
    """Return the configuration of containerd 2 (version 3), with `programs` for runc."""
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{RUNTIME_SOCKET}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE, a score below that of containerd itself is refused.
restrict_oom_score_adj = true
disable_apparmor = true
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{programs}/runc"
SystemdCgroup = false

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
"""


def network(plan: NodePlan) -> str:
    """Return the CNI configuration list of a node: a bridge with addresses for its pods."""
    bridge = {
        "type": "bridge",
        "bridge": f"cni{plan.number}",
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": f"10.244.{plan.number}.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/cni",
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "bindery", "plugins": [bridge]})


def kubelet(plan: NodePlan, authority: str) -> str:
    """Return the KubeletConfiguration; `authority`: path of the CA of the kubelet's clients."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plan.address,
        "healthzBindAddress": plan.address,
        "readOnlyPort": 0,
        "authentication": {
            "x509": {"clientCAFile": authority},
            "webhook": {"enabled": True},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": plan.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        "rotateCertificates": True,
        # Nodes have no kube-proxy and no rules of it.
        "makeIPTablesUtilChains": False,
        "enforceNodeAllocatable": ["pods"],
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "staticPodPath": "/node/static-pods",
        "nodeStatusUpdateFrequency": "5s",
        # The disk of a node is in memory, and the machine's own disk may be nearly full.
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "imagefs.available"), "1%"
        ),
        "resolvConf": "",
        **plan.kubelet,
    }
    return yaml.safe_dump(document)


def services(plan: NodePlan, programs: Path) -> dict[str, str]:
    """Return the node's services: name -> shell script that runs the service until it ends."""
    path = f"export PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin"
    kubelet_arguments = [
        "--config=/node/kubelet.yaml",
        "--kubeconfig=/var/lib/kubelet/kubeconfig",
        "--bootstrap-kubeconfig=/node/bootstrap.kubeconfig",
        "--cert-dir=/var/lib/kubelet/pki",
        "--root-dir=/var/lib/kubelet",
        f"--hostname-override={plan.name}",
        f"--node-ip={plan.address}",
    ]
    wait = f"until [ -S {RUNTIME_SOCKET} ]; do sleep 0.1; done"
    scripts = {
        "containerd": "exec containerd --config /node/containerd.toml",
        "kubelet": f"{wait}\nexec kubelet {' '.join(kubelet_arguments)}",
        **plan.services,
    }
    return {name: f"{path}\n{script}\n" for name, script in scripts.items()}
