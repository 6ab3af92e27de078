"""Runs pods with volumes that are really mounted, and prints what their containers would find.

`unshare --mount --propagation=private python -m tests.nodeagent.containers.volumestory PLACE`.
"""

import asyncio
import base64
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bindery.nodeagent.containers.objects import ConfigObject
from bindery.nodeagent.volumes.mounts import LinuxMounter, at
from tests.nodeagent.containers.fakeruntime import FakeRuntime
from tests.nodeagent.containers.harness import (
    FixedObjects,
    Harness,
    container,
    keeping,
    manifest,
    running,
)
from tests.nodeagent.volumes.csidriver import Driver
from tests.nodeagent.volumes.volumeworld import DRIVER, Objects, claimed

STORY_S = 100
VOLUMES = (
    {"name": "map", "configMap": {"name": "settings"}},
    {"name": "secret", "secret": {"secretName": "key"}},
    {"name": "token", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "audience": "vault"}}]}},
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    claimed("data"), claimed("block"),
)  # fmt: skip


def with_everything() -> dict[str, Any]:
    mounts = [
        {"name": one["name"], "mountPath": f"/{one['name']}"}
        for one in VOLUMES
        if one["name"] != "block"
    ]
    return manifest(
        container(
            volumeMounts=[*mounts, {"name": "data", "mountPath": "/part", "subPath": "deep/er"}],
            volumeDevices=[{"name": "block", "devicePath": "/dev/disk"}],
        ),
        volumes=list(VOLUMES),
    )


def stuck() -> dict[str, Any]:
    pod = manifest(
        container("waiting", volumeMounts=[{"name": "stuck", "mountPath": "/v"}]),
        volumes=[claimed("stuck")],
    )
    return {**pod, "metadata": {**pod["metadata"], "name": "stuck", "uid": "uid-2"}}


def is_disk(path: str) -> bool:
    return Path(path).is_block_device()


async def used(pod: Harness, objects: FixedObjects, state: Path) -> dict[str, Any]:
    """Read and write the volumes of a running pod as its container does."""
    config = pod.runtime.named("app")[0].config
    at_path = {one.container_path: one for one in config.mounts}
    host = {name: Path(one.host_path) for name, one in at_path.items()}
    (host["/data"] / "file").write_text("by the container")
    (host["/part"] / "file").write_text("in the part")
    memory = at(host["/memory"], LinuxMounter().mounts())
    found = {
        "map": (host["/map"] / "mode").read_text(),
        "secret": (host["/secret"] / "password").read_text(),
        "token": (host["/token"] / "token").read_text(),
        "memory": memory.kind if memory else "",
        "data": (state / "data" / "file").read_text(),
        "part": (state / "data" / "deep" / "er" / "file").read_text(),
        "read only": sorted(name for name, one in at_path.items() if one.readonly),
        "devices": [
            (one.container_path, one.permissions, is_disk(one.host_path)) for one in config.devices
        ],
    }
    objects.maps["settings"] = ConfigObject(data={"mode": "slow"})
    await pod.until(lambda: (host["/map"] / "mode").read_text() == "slow")
    return found


async def ended(pod: Harness) -> None:
    """Delete a pod and wait until its worker has ended."""
    pod.delete()
    await pod.until(lambda: pod.server.is_deleted)
    pod.worker.gone()
    await pod.task


async def main(place: Path) -> dict[str, Any]:
    mounter = LinuxMounter()
    driver = Driver(place / "state", mounter, hangs=frozenset({"stuck"}))
    server = driver.server(place / "csi.sock")
    await server.start()
    storage, objects, root = Objects(), FixedObjects(), place / "root"
    storage.drivers[DRIVER] = {"attachRequired": False}
    for name, spec in {"data": {}, "stuck": {}, "block": {"volumeMode": "Block"}}.items():
        storage.add_csi(name, **spec)
    objects.maps["settings"] = ConfigObject(data={"mode": "fast"})
    password = base64.b64encode(b"hidden").decode()
    objects.secrets["key"] = ConfigObject(data={"password": password})
    async with asyncio.timeout(STORY_S), AsyncExitStack() as stack:
        enter = stack.enter_async_context
        runtime = await enter(FakeRuntime(place / "cri.sock"))
        volumes = await enter(keeping(root, objects, storage=storage, mounter=mounter))
        await volumes.drivers.register(DRIVER, place / "csi.sock")
        held = await enter(running(place, stuck(), runtime, objects, kept=volumes))
        await held.until(lambda: ("NodeStageVolume", "stuck") in driver.calls)
        pod = await enter(running(place, with_everything(), runtime, objects, kept=volumes))
        await pod.phase("Running")
        found = await used(pod, objects, place / "state")
        found["held"] = (held.status["phase"], runtime.named("waiting"))
        await ended(pod)
        await ended(held)
        gone = root / "pods" / "uid-1"
        while gone.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await server.stop(None)
    left = [str(one.place) for one in mounter.mounts() if one.place.is_relative_to(root / "pods")]
    return {**found, "left": left, "still there": (place / "state/data/file").read_text()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
