"""Kubernetes' DRA test driver on a real API server: a program of others, in Go."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bindery.kube.client import Client
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.kube.objects.resources import NODES, PODS
from bindery.nodeagent.kubeletside.claimapi import ServerClaims
from devcluster import build
from devcluster.plane import ControlPlane
from tests.nodeagent.kubeletside.socketworld import SocketWorld, until, using, wanting
from tests.required import lacking

pytestmark = pytest.mark.e2e

DRIVER = "test-driver.cdi.k8s.io"


@dataclass(frozen=True)
class Ground:
    """A node of the API server with a kubelet's sockets."""

    client: Client
    kubeconfig: Path
    world: SocketWorld
    node: str

    @asynccontextmanager
    async def driving(self) -> AsyncIterator[asyncio.subprocess.Process]:
        directory = self.world.directory
        (directory / "plugins" / DRIVER).mkdir(parents=True, exist_ok=True)
        program = build.binaries(["dra-test-driver"], print)["dra-test-driver"]
        process = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={self.kubeconfig}",
            "kubelet-plugin",
            f"--node-name={self.node}",
            f"--plugin-registration-path={self.world.registry}",
            f"--datadir={directory / 'plugins'}",
            f"--cdi-dir={directory / 'cdi'}",
            "--num-devices=2",
            stdout=sys.stderr,
            stderr=sys.stderr,
        )
        try:
            await until(lambda: bool(self.world.registered()))
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def slices(self) -> int:
        selector = f"spec.nodeName={self.node},spec.driver={DRIVER}"
        return len(await self.client.list(RESOURCE_SLICES, field_selector=selector))

    async def until_slices(self, count: int) -> None:
        async with asyncio.timeout(60):
            while await self.slices() != count:  # noqa: ASYNC110  a server has no event
                await asyncio.sleep(0.1)

    async def add_pod(self, namespace: str) -> str:
        """Add a pod with a claim on the node, as its binder would; return its UID."""
        claims = [{"name": "gpu", "resourceClaimName": "claim"}]
        container = {"name": "app", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {"nodeName": self.node, "resourceClaims": claims, "containers": [container]}
        body = {"metadata": {"name": "one", "namespace": namespace}, "spec": spec}
        pod = (await self.client.create(PODS, body, namespace)).metadata.uid
        await self._add_claim(namespace, pod)
        return pod

    async def _add_claim(self, namespace: str, pod: str) -> None:
        exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        body = {"metadata": {"name": "claim", "namespace": namespace}, "spec": spec}
        await self.client.create(RESOURCE_CLAIMS, body, namespace)
        result = {"request": "gpu", "driver": DRIVER, "pool": self.node, "device": "device-00"}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "one", "uid": pod}],
        }
        await self.client.patch(
            RESOURCE_CLAIMS, "claim", {"status": status}, namespace=namespace, subresource="status"
        )


@pytest.fixture
async def ground(control_plane: ControlPlane, world: SocketWorld) -> AsyncIterator[Ground]:
    if not build.are_built(["dra-test-driver"]):
        lacking("Kubernetes' DRA test driver is not built")
    kubeconfig, node = control_plane.admin_kubeconfig, world.directory.name.replace("_", "-")
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as client:
        await client.create(NODES, {"metadata": {"name": node.lower()}})
        await world.stop()
        world.api = ServerClaims(client, node.lower())
        await world.start()
        yield Ground(client, kubeconfig, world, node.lower())
        await client.delete(NODES, node.lower())


async def test_the_test_driver_prepares_claims_and_is_followed_through_its_kills(
    ground: Ground, namespace: str
) -> None:
    uid = await ground.add_pod(namespace)
    pod = wanting(uid).pod
    asking = using(uid, namespace=namespace)
    assert await ground.world.admit(uid, gpus=0) == ("", "")
    async with ground.driving() as driver:
        await ground.until_slices(1)
        await ground.world.node.prepare(asking)
        first = await ground.world.node.options(pod, pod.containers[0])
        await ground.world.node.unprepare(asking)
        assert not list((ground.world.directory / "cdi").glob("*.json"))
        await ground.world.node.prepare(asking)
        driver.send_signal(signal.SIGTERM)
        await until(lambda: not ground.world.registered())
    ground.world.now_s += 31
    await ground.until_slices(0)

    async with ground.driving() as driver:
        await ground.until_slices(1)
        await ground.world.node.unprepare(asking)

    (device,) = first.cdi_devices
    assert device.startswith(f"{DRIVER}/test=claim-")
    assert ground.world.node.manager.claims is not None
    assert not ground.world.node.manager.claims.might_need_to_unprepare(uid)
