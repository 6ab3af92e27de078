"""Reads pods of a real node: status, starts, cgroups, files, and PodResources' answers.

All of it without names, identities, addresses and times.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf import json_format

from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import KubeObject
from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.runtime import Runtime
from bindery.nodeagent.sockets.definitions import podresources_pb2 as held_api
from bindery.nodeagent.sockets.podresources import SOCKET
from bindery.nodeagent.sockets.services import Peer
from devcluster.realnode.configuration import RUNTIME_SOCKET
from devcluster.realnode.node import RealNode

Facts = dict[str, Any]
"""Path of a fact, such as `status/phase` -> its value."""

KUBELET_DIRECTORY: Final = "var/lib/kubelet"


class WholePod(KubeObject, frozen=True, kw_only=True):
    """A pod with all that its status has."""

    status: dict[str, Any] = msgspec.field(default_factory=dict)


_WHOLE_PODS: Final = PODS.decoded_as(WholePod)
_CGROUPS: Final = (
    "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max", "cpu.weight",
    "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes", "memory.max", "memory.high",
    "memory.oom.group", "pids.max",
)  # fmt: skip
_CLASSES: Final = ("", "burstable", "besteffort")
_LISTER: Final = held_api.DESCRIPTOR.services_by_name["PodResourcesLister"]
_TIMES: Final = ("startedAt", "finishedAt", "containerID", "imageID")
_CHANCE: Final = (
    (re.compile(r"[0-9a-f]{64}"), "ID"),
    (re.compile(r"\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\w+"), "..TIME"),
    (re.compile(r"kube-api-access-\w{5}"), "kube-api-access"),
    (re.compile(r"eyJ[\w.-]+"), "TOKEN"),
)
_MESSAGE_FILE: Final = re.compile(r"(containers/[^/]+)/[0-9a-f]{8}")
_MOST_BYTES: Final = 4096


@dataclass(frozen=True)
class NodeView:
    """A node, as it is looked at from outside."""

    node: RealNode
    client: Client
    namespace: str
    uids: set[str] = field(default_factory=set)
    """The pods that were looked at."""

    async def look(self, name: str) -> Facts:
        """Return all that is known of the pod `name`."""
        pod = await self.client.get(_WHOLE_PODS, name, self.namespace)
        uid, status = pod.metadata.uid, pod.status
        self.uids.add(uid)
        found = dict(_flat("status", _shown(status)))
        # Of pods that wait or end, it depends on the moment.
        if status["phase"] == "Running":
            starts, names = await self._starts(uid)
            found["starts"] = starts
            found |= self._cgroups(uid, names)
            found |= self._files(uid)
            found |= self._mounts(uid)
            found |= await self._held(name)
        addresses = [status[key] for key in ("podIP", "hostIP") if status.get(key)]
        return _plain(found, [name, self.node.name, uid, *addresses])

    def left(self) -> list[str]:
        """Return what is left of the pods that were looked at."""
        root = self.node.root
        texts = [
            *(str(one) for one in root.glob(f"{KUBELET_DIRECTORY}/pods/*")),
            *(str(one) for one in root.glob("var/log/pods/*")),
            *map(str, self._pod_cgroups()),
            *(root / "proc/1/mountinfo").read_text().splitlines(),
            *self.node.run(
                "ctr", f"--address={RUNTIME_SOCKET}", "--namespace=k8s.io", "containers", "list"
            ).splitlines(),
        ]
        mine = [text for text in texts if any(uid in text for uid in self.uids)]
        csi = root / KUBELET_DIRECTORY / "plugins/kubernetes.io/csi"
        blocks = ("publish", "staging")
        of_drivers = [one for one in csi.glob("*/*") if one.name not in blocks]
        return [*mine, *(str(one) for one in (*of_drivers, *csi.glob("volumeDevices/*/*")))]

    async def _starts(self, uid: str) -> tuple[list[str], dict[str, str]]:
        """Return containers in the order of their creation, and the names of all cgroups."""
        async with Runtime(f"unix://{self.node.root}{RUNTIME_SOCKET}") as runtime:
            listed = await runtime.containers(uid)
            sandboxes = await runtime.sandboxes(uid)
        listed = sorted(listed, key=lambda one: one.created_at)
        names = {one.id: one.labels[labels.CONTAINER] for one in listed}
        starts = list(dict.fromkeys(names.values()))
        return starts, {**names, **{one.id: "sandbox" for one in sandboxes}}

    def _pod_cgroups(self, name: str = "pod*") -> Iterator[Path]:
        base = self.node.root / "sys/fs/cgroup"
        for tree in (base, *sorted(base.iterdir())):
            for part in _CLASSES:
                top = tree / self.node.plan.cgroup.strip("/") / "kubepods" / part
                if top.is_dir():
                    yield from top.glob(name)

    def _cgroups(self, uid: str, names: Mapping[str, str]) -> Facts:
        found = {}
        for top in self._pod_cgroups(f"pod{uid}"):
            place = f"cgroups/{top.parent.name}"
            for directory in (top, *(one for one in top.iterdir() if one.is_dir())):
                who = "pod" if directory == top else names.get(directory.name, directory.name)
                for file in _CGROUPS:
                    if (directory / file).exists():
                        found[f"{place}/{who}/{file}"] = (directory / file).read_text().strip()
        return found

    def _files(self, uid: str) -> Facts:
        top = self.node.root / KUBELET_DIRECTORY / "pods" / uid
        found: Facts = {}
        for base, directories, files in os.walk(top):
            for name in (*directories, *files):
                path = Path(base) / name
                key = _MESSAGE_FILE.sub(r"\1/FILE", str(path.relative_to(top)))
                found[f"files/{key}"] = _file(path)
        return found

    def _mounts(self, uid: str) -> Facts:
        """Return type and options of what is mounted below the pod's directory."""
        found: Facts = {}
        for line in (self.node.root / "proc/1/mountinfo").read_text().splitlines():
            about, _, file_system = line.partition(" - ")
            place, options = about.split()[4:6]
            if uid in place:
                kind, _, further = file_system.split(maxsplit=2)
                sizes = [one for one in further.split(",") if one.startswith("size=")]
                key = f"mounts/{place.partition(uid)[2]}"
                found.setdefault(key, []).append(" ".join([kind, options, *sizes]))
        return found

    async def _held(self, name: str) -> Facts:
        socket = self.node.root / KUBELET_DIRECTORY / SOCKET
        async with Peer(socket, _LISTER) as peer:
            answer = await peer.call(
                "List", held_api.ListPodResourcesRequest(), held_api.ListPodResourcesResponse, 10.0
            )
        pods = [one for one in answer.pod_resources if one.name == name]
        return {
            f"held/{one['name']}": _counted(one)
            for pod in pods
            for one in json_format.MessageToDict(pod).get("containers", ())
        }


def _counted(container: dict[str, Any]) -> dict[str, Any]:
    """Return what a container holds. Which of equal devices it is, is left to chance."""
    devices = [{**one, "deviceIds": len(one["deviceIds"])} for one in container.get("devices", ())]
    return {**container, "devices": devices}


def _shown(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status with conditions and containers by name, without times and addresses."""
    kept = ("phase", "reason", "message", "qosClass", "resources", "allocatedResources")
    return {
        **{name: status.get(name) for name in kept},
        "conditions": {
            one["type"]: [one["status"], one.get("reason"), one.get("message")]
            for one in status.get("conditions", ())
        },
        **{
            kind: {one["name"]: _container(one) for one in status.get(kind, ())}
            for kind in ("initContainerStatuses", "containerStatuses")
        },
    }


def _container(status: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in status.items() if name not in _TIMES}
    for which in ("state", "lastState"):
        found[which] = {
            kind: {name: value for name, value in about.items() if name not in _TIMES}
            for kind, about in status[which].items()
        }
    health = status.get("allocatedResourcesStatus")
    if health is not None:
        found["allocatedResourcesStatus"] = {
            one["name"]: [device["health"] for device in one["resources"]] for one in health
        }
    return found


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested objects, each with its path."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _flat(f"{path}/{name}", each)
    elif value not in (None, {}):
        yield path, value


def _file(path: Path) -> str:
    about = path.lstat()
    text = f"{stat.filemode(about.st_mode)} {about.st_uid}:{about.st_gid}"
    if path.is_symlink():
        return f"{text} -> {path.readlink()}"
    if path.is_file():
        return f"{text} {path.read_bytes()[:_MOST_BYTES]!r}"
    return text


def _plain(facts: Facts, own: Sequence[str]) -> Facts:
    """Return facts without what is the pod's or the node's own."""
    text = json.dumps(facts)
    for word in sorted(own, key=len, reverse=True):
        text = text.replace(word, "OWN")
    for pattern, word in _CHANCE:
        text = pattern.sub(word, text)
    found: Facts = json.loads(text)
    return found
