"""A CSI driver for tests: directories and disk images of its own, really mounted.

`python -m tests.nodeagent.volumes.csidriver SOCKET STATE` serves it, and with a third argument, the
kubelet's directory of plugins, it registers, too. In a test's process it can be
served with a mounter that mounts nothing. It obeys the rules of the node service: all calls can be
repeated, a target is made and removed by the driver, and publishing needs staging.
`test_csi_conformance` holds it against the conformance suite of Kubernetes.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from bindery.nodeagent.sockets import pluginregistry
from bindery.nodeagent.sockets.pluginregistry import RegisteredPlugin
from bindery.nodeagent.sockets.services import Refusal, serve
from bindery.nodeagent.volumes.definitions import csi_pb2 as api
from bindery.nodeagent.volumes.mounts import LinuxMounter, Mounter, at, remove_mount, run
from tests.nodeagent.volumes import csicontroller
from tests.nodeagent.volumes.csicontroller import Controller, Volumes, check

NODE = api.DESCRIPTOR.services_by_name["Node"]
RPC = api.NodeServiceCapability.RPC
EVERYTHING = (RPC.STAGE_UNSTAGE_VOLUME, RPC.EXPAND_VOLUME)
NAME = "directories.test.bindery.dev"
EXT4 = "ext4"
IMAGE_BYTES = csicontroller.DEFAULT_BYTES


@dataclass
class Driver:
    """Volumes below `state`: directories; handles that start with `block` are images of disks, and
    with `ext4` images with a file system.

    Attributes:
        hangs: volumes whose staging never answers.
        refusals: method -> the code and words of its next answers.
        calls: method and volume of each call.
    """

    state: Path
    mounter: Mounter = field(default_factory=LinuxMounter)
    can: Sequence[int] = EVERYTHING
    hangs: frozenset[str] = frozenset()
    refusals: dict[str, list[tuple[grpc.StatusCode, str]]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    requests: list[object] = field(default_factory=list)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _volumes: Volumes = field(init=False)

    def __post_init__(self) -> None:
        self._volumes = Volumes(self.state)

    def server(self, socket: Path) -> grpc.aio.Server:
        methods = {
            name: self._one_by_one(getattr(self, name))
            for name in (
                "NodeGetInfo",
                "NodeGetCapabilities",
                "NodeStageVolume",
                "NodePublishVolume",
                "NodeUnpublishVolume",
                "NodeUnstageVolume",
                "NodeExpandVolume",
            )
        }
        return serve(socket, (NODE, methods), *Controller(NAME, self._volumes).services())

    def _one_by_one(self, answer: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
        """Let calls of a volume wait for each other, and go on when the caller has died."""

        async def locked(request: Any) -> Any:
            volume = getattr(request, "volume_id", "")
            async with self._locks.setdefault(volume, asyncio.Lock()):
                return await answer(request)

        async def shielded(request: Any) -> Any:
            return await asyncio.shield(asyncio.ensure_future(locked(request)))

        return shielded

    async def NodeGetInfo(self, _: object) -> api.NodeGetInfoResponse:  # noqa: N802
        segments = {"example.com/zone": "a"}
        return api.NodeGetInfoResponse(
            node_id="node-id",
            max_volumes_per_node=7,
            accessible_topology=api.Topology(segments=segments),
        )

    async def NodeGetCapabilities(  # noqa: N802
        self, _: object
    ) -> api.NodeGetCapabilitiesResponse:
        return api.NodeGetCapabilitiesResponse(
            capabilities=[
                api.NodeServiceCapability(rpc=RPC(type=one))  # type: ignore[arg-type]
                for one in self.can
            ]
        )

    async def NodeStageVolume(  # noqa: N802
        self, asked: api.NodeStageVolumeRequest
    ) -> api.NodeStageVolumeResponse:
        self._begin("NodeStageVolume", asked.volume_id, asked)
        check(asked, "volume_id", "staging_target_path", "volume_capability")
        if asked.volume_id in self.hangs:
            self.hangs -= {asked.volume_id}
            self._locks[asked.volume_id] = asyncio.Lock()  # other calls do not wait for it
            await asyncio.Event().wait()
        place = Path(asked.staging_target_path)
        _must_be_there(place)
        if asked.volume_capability.HasField("block"):
            await self._loop(asked.volume_id)
        elif asked.volume_id.startswith(EXT4):
            await self._mount_disk(asked.volume_id, place)
        elif not self._is_mounted(place):
            source = str(self._volumes.directory(asked.volume_id))
            await self.mounter.mount(source, place, "", ["bind"])
        return api.NodeStageVolumeResponse()

    async def NodePublishVolume(  # noqa: N802
        self, asked: api.NodePublishVolumeRequest
    ) -> api.NodePublishVolumeResponse:
        self._begin("NodePublishVolume", asked.volume_id, asked)
        check(asked, "volume_id", "target_path", "volume_capability")
        place = Path(asked.target_path)
        _must_be_there(place.parent)
        if self._is_mounted(place):
            return api.NodePublishVolumeResponse()
        if asked.volume_capability.HasField("block"):
            source = await self._loop(asked.volume_id)
            _make(place, is_file=True)
        else:
            source = asked.staging_target_path or str(self._volumes.directory(asked.volume_id))
            _make(place, is_file=False)
        options = ["bind", *(("ro",) if asked.readonly else ())]
        await self.mounter.mount(source, place, "", options)
        return api.NodePublishVolumeResponse()

    async def NodeUnpublishVolume(  # noqa: N802
        self, asked: api.NodeUnpublishVolumeRequest
    ) -> api.NodeUnpublishVolumeResponse:
        self._begin("NodeUnpublishVolume", asked.volume_id, asked)
        check(asked, "volume_id", "target_path")
        await remove_mount(self.mounter, Path(asked.target_path))
        return api.NodeUnpublishVolumeResponse()

    async def NodeUnstageVolume(  # noqa: N802
        self, asked: api.NodeUnstageVolumeRequest
    ) -> api.NodeUnstageVolumeResponse:
        self._begin("NodeUnstageVolume", asked.volume_id, asked)
        check(asked, "volume_id", "staging_target_path")
        place = Path(asked.staging_target_path)
        while self._is_mounted(place):
            await self.mounter.unmount(place)
        for loop in await self._loops(asked.volume_id):
            await run("losetup", "-d", loop)
        return api.NodeUnstageVolumeResponse()

    async def NodeExpandVolume(  # noqa: N802
        self, asked: api.NodeExpandVolumeRequest
    ) -> api.NodeExpandVolumeResponse:
        self._begin("NodeExpandVolume", asked.volume_id, asked)
        check(asked, "volume_id", "volume_path")
        self._volumes.must_exist(asked.volume_id)
        size = asked.capacity_range.required_bytes
        is_mounted = asked.volume_id.startswith(EXT4)
        if is_mounted or asked.volume_capability.HasField("block"):
            with self._volumes.image(asked.volume_id).open("r+b") as image:
                image.truncate(size)
            for loop in await self._loops(asked.volume_id):
                await _succeed("losetup", "-c", loop)
                if is_mounted:
                    await _succeed("resize2fs", loop)
        return api.NodeExpandVolumeResponse(capacity_bytes=size)

    async def _mount_disk(self, volume: str, place: Path) -> None:
        """Mount the disk of an image, with a new file system if it has none."""
        if self._is_mounted(place):
            return
        disk = await self._loop(volume)
        unformatted, _ = await run("blkid", "-p", disk)
        if unformatted:
            await _succeed(f"mkfs.{EXT4}", "-q", disk)
        await self.mounter.mount(disk, place, EXT4)

    def _begin(self, method: str, volume: str, request: object) -> None:
        self.calls.append((method, volume))
        self.requests.append(request)
        if self.refusals.get(method):
            code, words = self.refusals[method].pop(0)
            raise Refusal(words, code)

    def _is_mounted(self, place: Path) -> bool:
        return at(place, self.mounter.mounts()) is not None

    async def _loops(self, volume: str) -> list[str]:
        _, output = await run("losetup", "-n", "-O", "NAME", "-j", str(self._volumes.image(volume)))
        return output.split()

    async def _loop(self, volume: str) -> str:
        """Return the disk of an image, with a loop device that is made if there is none."""
        found = await self._loops(volume)
        if found:
            return found[0]
        return await _succeed("losetup", "--show", "-f", str(self._volumes.image(volume)))


async def _succeed(*command: str) -> str:
    """Run a command and return its output; a failure refuses the call."""
    code, output = await run(*command)
    if code:
        raise Refusal(f"{' '.join(command)}: {output}", grpc.StatusCode.INTERNAL)
    return output.strip()


def _must_be_there(place: Path) -> None:
    if not place.is_dir():
        raise Refusal(f"{place} does not exist", grpc.StatusCode.FAILED_PRECONDITION)


def _make(place: Path, *, is_file: bool) -> None:
    if is_file:
        place.touch()
    else:
        place.mkdir(exist_ok=True)


async def _serve(socket: Path, state: Path, registry: Path | None = None) -> None:
    servers = [Driver(state).server(socket)]
    if registry is not None:
        plugin = RegisteredPlugin(pluginregistry.CSI, NAME, str(socket), ["1.0.0"])
        servers.append(pluginregistry.server(registry / f"{NAME}-reg.sock", plugin))
    for server in servers:
        await server.start()
    print("ready", flush=True)
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


if __name__ == "__main__":
    asyncio.run(_serve(*map(Path, sys.argv[1:])))
