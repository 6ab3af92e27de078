"""A node with volumes for tests: objects of the API in memory, manifests, a fake mounter."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bindery.nodeagent.volumes.csi.drivers import CsiDrivers
from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.keeper import KeptPod, VolumeKeeper
from bindery.nodeagent.volumes.kinds import Foundation, every_kind
from bindery.nodeagent.volumes.mounts import Mounter, MountPoint, at
from bindery.nodeagent.volumes.sources import (
    AttachmentObject,
    DriverObject,
    MountingPod,
    PodFieldFile,
    StoredClaim,
    StoredVolume,
    TokenFile,
)
from bindery.nodeagent.volumes.volumenode import VolumeNode
from bindery.nodecore.volumes.populator import VolumeError

Json = dict[str, Any]
NODE = "node-1"
DRIVER = "csi.example.com"


class FakeMounter:
    """Mounts that only a list has: for the order of steps and for errors, without root.

    `refusals`: words of the errors of the next mounts, or of the next unmounts at a place.
    """

    def __init__(self) -> None:
        self.made: list[MountPoint] = []
        self.log: list[str] = []
        self.refused: dict[Path, str] = {}

    async def mount(
        self,
        source: str,
        place: Path,
        kind: str = "",
        options: Sequence[str] = (),
        *,
        kept: Sequence[int] = (),  # noqa: ARG002
    ) -> None:
        if place in self.refused:
            raise MountError(self.refused[place])
        self.log.append(f"mount {kind or 'bind'} {place.name}")
        root = self._root(source) if "bind" in options else "/"
        device = "8:1" if "bind" in options else f"0:{len(self.log)}"
        self.made.append(MountPoint(device, root, place, kind or "ext4", ",".join(options)))

    async def unmount(self, place: Path) -> None:
        if place in self.refused:
            raise MountError(self.refused[place])
        self.log.append(f"unmount {place.name}")
        found = at(place, self.made)
        if found is not None:
            self.made.remove(found)

    @staticmethod
    def _root(source: str) -> str:
        return str(Path(source).resolve())

    def mounts(self) -> list[MountPoint]:
        return [MountPoint("8:1", "/", Path("/"), "ext4", "rw"), *self.made]


@dataclass
class Objects:
    """The objects of the API in memory."""

    claims: dict[str, Json] = field(default_factory=dict)
    volumes: dict[str, Json] = field(default_factory=dict)
    drivers: dict[str, Json] = field(default_factory=dict)
    attachments: dict[str, Json] = field(default_factory=dict)
    maps: dict[str, dict[str, bytes]] = field(default_factory=dict)
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    grown: list[tuple[str, int]] = field(default_factory=list)
    tokens: int = 0

    async def claim(self, namespace: str, name: str) -> StoredClaim:  # noqa: ARG002
        if name in self.hanging:
            await asyncio.Event().wait()
        if name not in self.claims:
            raise VolumeError(f'persistentvolumeclaim "{name}" not found')
        return msgspec.convert(self.claims[name], StoredClaim)

    async def volume(self, name: str) -> StoredVolume:
        if name not in self.volumes:
            raise VolumeError(f'persistentvolume "{name}" not found')
        return msgspec.convert(self.volumes[name], StoredVolume)

    async def driver(self, name: str) -> DriverObject | None:
        found = self.drivers.get(name)
        return None if found is None else msgspec.convert({"spec": found}, DriverObject)

    async def attachment(self, name: str) -> AttachmentObject | None:
        found = self.attachments.get(name)
        return None if found is None else msgspec.convert({"status": found}, AttachmentObject)

    async def attach(self, name: str, driver: str, volume: str) -> None:  # noqa: ARG002
        self.attachments[name] = {"attached": True}

    async def detach(self, name: str) -> None:
        self.attachments.pop(name, None)

    async def has_grown(self, claim: StoredClaim, volume: StoredVolume) -> None:
        self.grown.append((claim.metadata.name, volume.size_bytes))
        self.claims[claim.metadata.name]["status"]["capacity"] = volume.spec.capacity

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:  # noqa: ARG002
        if name in self.hanging:
            await asyncio.Event().wait()
        return self.maps.get(name)

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:  # noqa: ARG002
        return self.secrets.get(name)

    async def token(self, pod: MountingPod, wanted: TokenFile) -> str:
        self.tokens += 1
        return f"token of {pod.metadata.name} for {wanted.audience} #{self.tokens}"

    def value(self, pod: MountingPod, wanted: PodFieldFile) -> str:
        if wanted.field_ref is not None:
            return f"{wanted.field_ref.field_path} of {pod.metadata.name}"
        assert wanted.resource_field_ref is not None
        return f"{wanted.resource_field_ref.resource} of {pod.metadata.name}"

    def add_csi(
        self,
        name: str,
        *,
        driver: str = DRIVER,
        size: str = "8Mi",
        has_size: str = "8Mi",
        modes: Sequence[str] = ("ReadWriteOnce",),
        **spec: Any,
    ) -> None:
        """Add a bound claim and its volume of a CSI driver."""
        csi = {"driver": driver, "volumeHandle": name}
        self.add(name, size=size, has_size=has_size, accessModes=list(modes), csi=csi, **spec)

    def add(self, name: str, *, size: str = "8Mi", has_size: str = "8Mi", **spec: Any) -> None:
        """Add a bound claim and its volume."""
        claim = {"namespace": "default", "name": name, "uid": f"claim-{name}"}
        self.claims[name] = {
            "metadata": claim,
            "spec": {"volumeName": f"pv-{name}"},
            "status": {"phase": "Bound", "capacity": {"storage": has_size}},
        }
        self.volumes[f"pv-{name}"] = {
            "metadata": {"name": f"pv-{name}"},
            "spec": {"capacity": {"storage": size}, "claimRef": claim, **spec},
        }


def pod(
    uid: str, *volumes: Json, devices: Sequence[str] = (), spec: Json | None = None
) -> MountingPod:
    """Return a pod whose container uses all its volumes; `devices`: the names of devices."""
    names = [one["name"] for one in volumes]
    container = {
        "name": "main",
        "volumeMounts": [
            {"name": one, "mountPath": f"/{one}"} for one in names if one not in devices
        ],
        "volumeDevices": [{"name": one, "devicePath": f"/dev/{one}"} for one in devices],
    }
    manifest = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"volumes": list(volumes), "containers": [container], **(spec or {})},
    }
    return msgspec.convert(manifest, MountingPod)


def claimed(name: str, **more: Any) -> Json:
    """Return a volume of a pod with the claim of the same name."""
    return {"name": name, "persistentVolumeClaim": {"claimName": name, **more}}


@dataclass
class World:
    """A node's volumes. `events`: pod, reason, message."""

    root: Path
    objects: Objects
    mounter: Mounter
    drivers: CsiDrivers
    keeper: VolumeKeeper
    events: list[tuple[str, str, str]]
    pods: dict[str, KeptPod] = field(default_factory=dict)

    def put(self, *pods: MountingPod, **flags: bool) -> None:
        """Add pods, or replace them."""
        self.pods |= {one.uid: KeptPod(one, **flags) for one in pods}
        self.keeper.set_pods(self.pods.values(), sources_ready=True)

    def remove(self, uid: str) -> None:
        """Take a pod away, as after its containers have ended."""
        del self.pods[uid]
        self.keeper.set_pods(self.pods.values(), sources_ready=True)

    async def until(self, holds: Callable[[], bool], timeout_s: float = 30) -> None:
        """Wait for a state."""
        async with asyncio.timeout(timeout_s):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def is_ready(self, uid: str) -> None:
        """Wait until the pod's volumes are mounted."""
        await self.keeper.wait_for_attach_and_mount(uid)

    async def is_gone(self, uid: str) -> None:
        """Take a pod away and wait until nothing of its volumes is mounted, nor staged."""
        self.remove(uid)
        await self.keeper.wait_for_unmount(uid)
        await self.until(lambda: not self.keeper.manager.actual.attached_volumes())


def world(
    root: Path,
    mounter: Mounter,
    objects: Objects | None = None,
    *,
    by_controller: bool = False,
    call_s: float = 120.0,
) -> World:
    """Return a node whose volumes are below `root`."""
    objects = objects or Objects()
    drivers = CsiDrivers(call_s)
    events: list[tuple[str, str, str]] = []
    loop = asyncio.get_running_loop()
    found = Foundation(
        root,
        NODE,
        mounter,
        drivers,
        objects,
        objects,
        now_s=lambda: 1_790_000_000.0,
        allocatable_bytes=lambda: 1 << 30,
    )
    node = VolumeNode(
        root,
        NODE,
        every_kind(found),
        objects,
        mounter,
        loop.time,
        lambda uid, reason, message: events.append((uid, reason, message)),
        lambda: {"zone": "a"},
    )
    keeper = VolumeKeeper(node, is_attached_by_controller=by_controller)
    return World(root, objects, mounter, drivers, keeper, events)


@asynccontextmanager
async def running(of: World) -> AsyncIterator[World]:
    """Run the loops of a node on which the attached volumes are known."""
    task = asyncio.get_running_loop().create_task(of.keeper.run())
    await asyncio.sleep(0)  # it has looked at what the last run has left
    of.keeper.set_attached({})
    try:
        yield of
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def tree(root: Path) -> list[str]:
    """Return all paths below a directory, links with their targets."""
    found = []
    for path in sorted(root.rglob("*")):
        target = f" -> {os.readlink(path)}" if path.is_symlink() else ""  # noqa: PTH115
        found.append(f"{path.relative_to(root)}{target}")
    return found
