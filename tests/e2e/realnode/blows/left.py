"""All that a node's agent leaves, without names that chance has chosen."""

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bindery.kube.client import Client
from bindery.kube.objects.resources import Resource
from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.runtime import Runtime
from devcluster.realnode.configuration import RUNTIME_SOCKET
from devcluster.realnode.node import RealNode
from tests.administrator import Plain
from tests.e2e.realnode.blows.load import PODS
from tests.e2e.realnode.blows.otherside import STATE

_NODES: Final = Resource("", "v1", "nodes", "Node", False, Plain)
_CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False, Plain)
_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, Plain)
_REQUESTS: Final = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CSR", False, Plain
)
_CHANCE: Final = (
    (r"\.\.2\d{3}_[\w.]+", "..STAMP"),
    (r"/loop\d+", "/loopN"),
    (r"net:\[\d+\]", "net:[N]"),
    (r"kube-api-access-[0-9a-z]{5}", "kube-api-access-NAME"),
    (r"kubelet-client-2[-\d]+\.pem", "kubelet-client-STAMP.pem"),
    (r"cni-[0-9a-f-]{36}", "cni-ID"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\b[0-9a-f]{64}\b", "ID"),
    (r"10\.244\.\d+\.\d+", "ADDRESS"),
    (r"10\.77\.0\.\d+", "NODE-ADDRESS"),
)
_FILES: Final = (
    f"cd / && find var/lib/kubelet var/log/pods {STATE[1:]} -printf '%M %U:%G %p -> %l\\n'"
)
_CHECKPOINTS: Final = (
    "cpu_manager_state",
    "memory_manager_state",
    "dra_manager_state",
)
_DEVICES: Final = "device-plugins/kubelet_internal_checkpoint"
_IS_CHECKSUM: Final = re.compile(r'"(dataC|c|C)hecksum": ?\d+,?')


@dataclass(frozen=True)
class Names:
    """Replaces identities by names."""

    known: Mapping[str, str]

    def __call__(self, text: str) -> str:
        for identity, name in self.known.items():
            text = text.replace(identity, name)
        for pattern, name in _CHANCE:
            text = re.sub(pattern, name, text)
        return text

    def lines(self, lines: Iterable[str]) -> list[str]:
        return sorted(map(self, lines))


async def left(client: Client, namespace: str, node: RealNode) -> dict[str, list[str]]:
    """Return what is on a node with pods of one namespace, and their objects: kind -> lines."""
    pods = await client.list(PODS, namespace=namespace)
    async with Runtime(f"unix://{node.root}{RUNTIME_SOCKET}") as runtime:
        sandboxes, containers = await runtime.sandboxes(), await runtime.containers()
    own = {
        **{one.id: f"SANDBOX-{one.metadata.name}" for one in sandboxes},
        **{one.id: f"CONTAINER-{_pod_of(one)}-{one.metadata.name}" for one in containers},
        **{one.metadata.uid: f"UID-{one.metadata.name}" for one in pods},
        node.plan.cgroup: "/CGROUP",
        namespace: "NAMESPACE",
        node.name: "NODE",
        f"cni{node.plan.number}": "BRIDGE",
    }
    names = Names(own)
    return {
        "mounts": names.lines(_mounts(node)),
        "loop devices": names.lines(_loops(node)),
        "cgroups": names.lines(_cgroups(node)),
        "sandboxes": names.lines(
            f"{one.metadata.name} {cri.PodSandboxState.Name(one.state)}" for one in sandboxes
        ),
        "containers": names.lines(
            f"{_pod_of(one)} {one.metadata.name} {one.metadata.attempt}"
            f" {cri.ContainerState.Name(one.state)}"
            for one in containers
        ),
        "runtime": _counts(node),
        "files": names.lines(_shell(node, _FILES)),
        "checkpoints": names.lines(_checkpoints(node)),
        "devices": names.lines(_devices(node, [one.metadata.uid for one in pods])),
        "pods": names.lines(f"{one.metadata.name} {_pod(one.status)}" for one in pods),
        **await _objects(client, namespace, node.name, names),
    }


def differences(
    wanted: Mapping[str, list[str]], found: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Return the lines that only one of them has, as often as it has them more."""
    answer = {}
    for kind, lines in wanted.items():
        missing, further = list(lines), []
        for line in found[kind]:
            if line in missing:
                missing.remove(line)
            else:
                further.append(line)
        if missing or further:
            answer[kind] = [*(f"- {line}" for line in missing), *(f"+ {line}" for line in further)]
    return answer


def _pod_of(one: cri.Container) -> str:
    return str(one.labels.get(labels.POD_NAME, ""))


def _mounts(node: RealNode) -> list[str]:
    found = []
    for line in node.run("cat", "/proc/self/mountinfo").splitlines():
        words = line.split()
        found.append(f"{words[3]} {words[4]} {words[words.index('-') + 1]}")
    return found


def _loops(node: RealNode) -> list[str]:
    """Return the disks of the driver's images, and what the agent makes of them.

    Loop devices are those of the whole machine; the agent's show no path when it has lost them.
    """
    listed = node.run("losetup", "-n", "-l", "--raw", "-O", "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE")
    every = [line.split(maxsplit=3) for line in listed.splitlines()]
    own = [one for one in every if one[3].startswith(f"{STATE}/")]
    disks = {_file(Path(name)) for name, *_ in own}
    upon = [one for one in every if (one[1], one[2]) in disks]
    return [one[3] for one in (*own, *upon)]


def _file(path: Path) -> tuple[str, str]:
    """Return the device and the inode of a file, as losetup shows them."""
    found = path.stat()
    return f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}", str(found.st_ino)


def _cgroups(node: RealNode) -> list[str]:
    found = _shell(node, f"find /sys/fs/cgroup -type d -path '*{node.plan.cgroup}/*'")
    return [line for line in found if "kubepods" in line]


def _counts(node: RealNode) -> list[str]:
    """Return how many shims, snapshots, tasks, networks and addresses there are."""
    commands = {
        "containers": "ctr -n k8s.io containers list -q",
        "tasks": "ctr -n k8s.io tasks list -q",
        "snapshots": "ctr -n k8s.io snapshots list | tail -n +2",
        "networks": "ls /run/netns",
        "addresses": "ls /run/cni/bindery | grep '^10\\.'",
        "links": f"ip -o link show master cni{node.plan.number}",
    }
    counts = {name: len(_shell(node, command)) for name, command in commands.items()}
    counts["shims"] = len(node.pids("containerd-shim-runc-v2"))
    return [f"{name} {count}" for name, count in sorted(counts.items())]


def _checkpoints(node: RealNode) -> list[str]:
    found = []
    for name in _CHECKPOINTS:
        text = node.run("cat", f"/var/lib/kubelet/{name}").replace("\\", "")
        found.append(f"{name} {_IS_CHECKSUM.sub('', text)}")
    return found


def _devices(node: RealNode, pods: Collection[str]) -> list[str]:
    """Return how many devices pods have, by the checkpoint, and which are registered.

    Which of two free devices a pod gets depends on who comes first. The record of a pod that is
    gone goes when another pod comes, as a kubelet's.
    """
    data = json.loads(node.run("cat", f"/var/lib/kubelet/{_DEVICES}"))["Data"]
    entries = [one for one in data["PodDeviceEntries"] or () if one["PodUID"] in pods]
    held = [each for one in entries for ids in one["DeviceIDs"].values() for each in ids]
    assert len(held) == len(set(held)), f"a device has two containers: {entries}"
    return [
        *(f"{one['PodUID']} {one['ContainerName']} {one['ResourceName']}" for one in entries),
        f"{len(held)} devices are held",
        f"registered: {json.dumps(data['RegisteredDevices'], sort_keys=True)}",
    ]


def _shell(node: RealNode, command: str) -> list[str]:
    return node.run("sh", "-c", f"{command} 2>/dev/null || true").splitlines()


def _pod(status: Mapping[str, Any]) -> str:
    states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    shown = {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "conditions": {one["type"]: one["status"] for one in status["conditions"]},
        "containers": {one["name"]: _state(one) for one in states},
        "has an address": bool(status.get("podIP")),
    }
    return json.dumps(shown, sort_keys=True)


def _state(one: Mapping[str, Any]) -> list[Any]:
    ((kind, about),) = one["state"].items()
    return [kind, about.get("reason"), about.get("exitCode"), one["ready"], one["restartCount"]]


async def _objects(client: Client, namespace: str, name: str, names: Names) -> dict[str, list[str]]:
    node = await client.get(_NODES, name)
    status = node.status
    kept = ("allocatable", "capacity", "volumesInUse", "volumesAttached", "addresses")
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    shown = {"conditions": conditions, **{key: status.get(key) for key in kept}}
    csi = await client.get(_CSI_NODES, name)
    claims = await client.list(_CLAIMS, namespace=namespace)
    requests = [
        one.spec["signerName"]
        for one in await client.list(_REQUESTS)
        if one.spec["username"] == f"system:node:{name}"
    ]
    return {
        "node": [names(json.dumps({key: value}, sort_keys=True)) for key, value in shown.items()],
        "labels": names.lines(json.dumps(one) for one in node.metadata.labels.items()),
        "CSI node": [names(json.dumps(csi.spec, sort_keys=True))],
        "claims": names.lines(
            f"{one.metadata.name} {json.dumps(one.status, sort_keys=True)}" for one in claims
        ),
        "certificates": sorted(requests),
    }
