"""Containers find the volumes, devices and claims that the scheduler chose."""

import asyncio
from typing import Any

import pytest

from bindery.kube.objects.claims import RESOURCE_CLAIM_TEMPLATES
from bindery.kube.objects.devices import DEVICE_CLASSES
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED
from tests.e2e.realnode.realpods import logs, running, wait_phase
from tests.e2e.support import Corner, Gang

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, KubeObject)
SECRETS = Resource("", "v1", "secrets", "Secret", True, KubeObject)
DRIVER = "test-driver.cdi.k8s.io"


async def test_containers_find_the_contents_of_their_volumes(
    corner: Corner, cluster: RealCluster
) -> None:
    metadata = {"metadata": {"name": "settings"}}
    await corner.client.create(CONFIG_MAPS, {**metadata, "data": {"a": "map"}}, corner.namespace)
    secret = {**metadata, "stringData": {"b": "secret"}}
    await corner.client.create(SECRETS, secret, corner.namespace)
    projected = {
        "sources": [
            {"downwardAPI": {"items": [{"path": "c", "fieldRef": {"fieldPath": "metadata.name"}}]}}
        ]
    }
    mounts: dict[str, Any] = {
        "/empty": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        "/map": {"configMap": {"name": "settings"}},
        "/secret": {"secret": {"secretName": "settings"}},
        "/projected": {"projected": projected},
    }
    script = "echo empty >/empty/d; cat /map/a /secret/b /projected/c; cat /empty/d"
    gang = Gang("reader", 1, pod=running(script, mounts=mounts))
    await corner.submit(gang)

    await wait_phase(corner, gang, "Succeeded")

    assert logs(cluster, corner, "reader-0") == "mapsecretreader-0empty\n"


async def test_a_gang_runs_on_the_node_of_its_local_volumes(
    corner: Corner, cluster: RealCluster
) -> None:
    """The claims wait for their first consumer; only node-2 has volumes."""
    node = cluster.nodes["node-2"]
    for index in range(2):
        directory = f"{corner.namespace}-{index}"
        (node.shared / directory).mkdir()
        cluster.control_plane.kubectl("apply", "--filename=-", stdin=_volume(corner, directory))
    cluster.control_plane.kubectl("apply", "--filename=-", stdin=_class(corner))
    for index in range(2):
        cluster.control_plane.kubectl("apply", "--filename=-", stdin=_claim(corner, index))
    gang = Gang("writer", 2)
    await corner.create_group(gang)
    for index in range(2):
        mount = {"/data": {"persistentVolumeClaim": {"claimName": f"data-{index}"}}}
        pod = running("echo $HOSTNAME >/data/found", mounts=mount)
        await corner.create_pod(Gang("writer", 2, pod=pod), index)

    await wait_phase(corner, gang, "Succeeded")

    assert {pod.spec.node_name for pod in await corner.pods(gang)} == {"node-2"}
    written = {file.read_text() for file in node.shared.glob(f"{corner.namespace}-*/found")}
    assert written == {"writer-0\n", "writer-1\n"}


async def test_pods_never_get_more_devices_than_their_node_has(
    corner: Corner, cluster: RealCluster
) -> None:
    """Each of two nodes has two devices: of three pairs, two run, and the third waits whole."""
    pairs = [
        Gang(f"pair-{index}", 2, pod=running("ls /tmp; sleep 600", devices=1)) for index in range(3)
    ]
    await corner.submit(*pairs[:2])
    await wait_phase(corner, pairs[0], "Running")
    await wait_phase(corner, pairs[1], "Running")
    await corner.submit(pairs[2])

    await corner.wait_condition(pairs[2], "False", "Unschedulable")

    found = []
    for gang in pairs[:2]:
        for pod in await corner.pods(gang):
            device = logs(cluster, corner, pod.metadata.name).strip()
            found.append((pod.spec.node_name, device))
    assert sorted(found) == [
        ("node-1", "Dev-1"),
        ("node-1", "Dev-2"),
        ("node-2", "Dev-1"),
        ("node-2", "Dev-2"),
    ]
    assert await corner.bound_count(pairs[2]) == 0
    await asyncio.gather(*(corner.delete_gang(gang) for gang in pairs[:2]))
    await wait_phase(corner, pairs[2], "Running")


async def test_claimed_devices_are_prepared_for_their_containers(
    corner: Corner, cluster: RealCluster
) -> None:
    """Kubernetes' test driver turns a claim's parameter into a variable of its containers."""
    expression = f'device.driver == "{DRIVER}"'
    kind = {
        "metadata": {"name": corner.namespace},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    await corner.client.create(DEVICE_CLASSES, kind)
    request = {"name": "gpu", "exactly": {"deviceClassName": corner.namespace}}
    parameters = {"opaque": {"driver": DRIVER, "parameters": {"a": "b"}}}
    devices = {"requests": [request], "config": [parameters]}
    template = {"metadata": {"name": "one"}, "spec": {"spec": {"devices": devices}}}
    await corner.client.create(RESOURCE_CLAIM_TEMPLATES, template, corner.namespace)
    pod = running("echo $user_a")
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pod["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    gang = Gang("claimed", 2, pod=pod)
    await corner.submit(gang)

    await wait_phase(corner, gang, "Succeeded")

    assert [logs(cluster, corner, f"claimed-{index}") for index in range(2)] == ["b\n", "b\n"]
    await corner.client.delete(DEVICE_CLASSES, corner.namespace)


def _class(corner: Corner) -> str:
    return f"""
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {corner.namespace}}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
"""


def _volume(corner: Corner, directory: str) -> str:
    return f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {directory}}}
spec:
  capacity: {{storage: 1Mi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: {corner.namespace}
  local: {{path: {SHARED}/{directory}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [node-2]}}]
"""


def _claim(corner: Corner, index: int) -> str:
    return f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data-{index}, namespace: {corner.namespace}}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: {corner.namespace}
  resources: {{requests: {{storage: 1Mi}}}}
"""
