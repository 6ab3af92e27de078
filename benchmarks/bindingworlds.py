"""What pods need beside a node when the binder is measured alone: one world for each plugin.

Used by `binding` and `handovers`. A world furnishes the cluster before its pods come, says what the
scheduler would have handed to the binder for each of them, and plays the hardware meanwhile. All
pods of all worlds ask for the same cores and memory, so that what differs is the plugin's.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.cluster import NAMESPACE, Cluster
from benchmarks.workload import Wire, node_name
from bindery.api.gpushare import FRACTION_ANNOTATION, RESERVATION_NAMESPACE
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.poddevices import ContainerDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import HOSTNAME_LABEL
from bindery.binder.plugins.gpusharing import admission
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.kube.objects.storage import CLAIMS, STORAGE_CLASSES, VOLUMES
from fakes.haminodes import HamiDevicePlugins, Prompt
from fakes.reservations import GpuDevicePlugins

_CLAIMS_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
_GIBIBYTE: Final = "1Gi"
_DRIVER: Final = "gpu.bench.example.com"
_GPUS_OF_A_NODE: Final = 8


@dataclass(frozen=True)
class Placed:
    """A pod and the node that was chosen for it."""

    number: int
    name: str
    uid: str
    node: str


class World:
    """Pods that need nothing but a node."""

    pods_of_a_node: int = 50
    left_behind: tuple[str, ...] = ()
    """Collections to clear when the pods have gone."""

    def node_of(self, number: int) -> str:
        """Return the node of the pod of that number."""
        return node_name(number // self.pods_of_a_node)

    async def furnish(self, cluster: Cluster, count: int) -> None:
        """Create what is there before `count` pods."""

    def dressed(self, pod: Wire, number: int) -> Wire:
        """Return the manifest of the pod of that number, made of a plain one."""
        del number
        return pod

    async def handed_over(self, cluster: Cluster, pods: Sequence[Placed]) -> list[Wire]:
        """Return what stands in the requests for each of `pods` beside its node."""
        del cluster
        return [{} for _ in pods]

    @asynccontextmanager
    async def at_work(self, cluster: Cluster) -> AsyncIterator[None]:
        """Play the hardware while the body runs.

        Raises:
            RuntimeError: it did not work as it should; when the body ends.
        """
        del cluster
        yield


class _Claimed(World, ABC):
    """Pods with a claim of a class whose volumes are bound when their pod has its node."""

    left_behind = (
        _CLAIMS_PATH,
        "/api/v1/persistentvolumes",
        "/apis/storage.k8s.io/v1/storageclasses",
    )
    provisioner: str

    async def furnish(self, cluster: Cluster, count: int) -> None:
        """Create the class and the claims."""
        storage_class = {
            "provisioner": self.provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await cluster.create_all(STORAGE_CLASSES, [_named(self._class, **storage_class)])
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self._class,
            "resources": {"requests": {"storage": _GIBIBYTE}},
        }
        claims = (_named(self._claim(number), spec=spec) for number in range(count))
        await cluster.create_all(CLAIMS, claims, NAMESPACE)

    def dressed(self, pod: Wire, number: int) -> Wire:
        """Let it mount its claim."""
        source = {"persistentVolumeClaim": {"claimName": self._claim(number)}}
        return _with_spec(pod, volumes=[{"name": "data", **source}])

    async def handed_over(self, cluster: Cluster, pods: Sequence[Placed]) -> list[Wire]:
        """Name the volume that each claim gets."""
        claims = await cluster.client.list(CLAIMS, namespace=NAMESPACE)
        uids = {claim.metadata.name: claim.metadata.uid for claim in claims}
        names = [self._claim(pod.number) for pod in pods]
        chosen = [
            {"name": name, "uid": uids[name], "volume": self._volume(pod.number)}
            for pod, name in zip(pods, names, strict=True)
        ]
        return [{"pluginData": {"volumes": {"claims": [each]}}} for each in chosen]

    @property
    def _class(self) -> str:
        return self.provisioner.rpartition("/")[2]

    def _claim(self, number: int) -> str:
        return f"{self._class}-{number:05}"

    @abstractmethod
    def _volume(self, number: int) -> str:
        """Return the name of the volume for the claim of that number; "" for one to be made."""


class StaticVolumes(_Claimed):
    """Local volumes that are there; kube-controller-manager binds what the binder has matched."""

    provisioner = "kubernetes.io/no-provisioner"

    async def furnish(self, cluster: Cluster, count: int) -> None:
        """Create the volumes, too."""
        await super().furnish(cluster, count)
        volumes = (self._local(number) for number in range(count))
        await cluster.create_all(VOLUMES, volumes)

    def _local(self, number: int) -> Wire:
        here = {"key": HOSTNAME_LABEL, "operator": "In", "values": [self.node_of(number)]}
        spec = {
            "capacity": {"storage": _GIBIBYTE},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self._class,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        return _named(self._volume(number), spec=spec)

    def _volume(self, number: int) -> str:
        return f"volume-{number:05}"


class UnansweredVolumes(_Claimed):
    """Volumes that are to be made by a provisioner that never answers."""

    provisioner = "bench.example.com/unanswered"

    def _volume(self, number: int) -> str:
        del number
        return ""


class Devices(World):
    """A claim for one device each; the devices stand in ResourceSlices."""

    pods_of_a_node = _GPUS_OF_A_NODE
    left_behind = (
        f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims",
        "/apis/resource.k8s.io/v1/resourceslices",
    )

    async def furnish(self, cluster: Cluster, count: int) -> None:
        """Publish the devices and create the claims."""
        nodes = sorted({self.node_of(number) for number in range(count)})
        await cluster.create_all(RESOURCE_SLICES, (_slice(node) for node in nodes))
        request = {"name": "gpu", "exactly": {"deviceClassName": "bench"}}
        spec = {"devices": {"requests": [request]}}
        claims = (_named(self._claim(number), spec=spec) for number in range(count))
        await cluster.create_all(RESOURCE_CLAIMS, claims, NAMESPACE)

    def dressed(self, pod: Wire, number: int) -> Wire:
        """Let it use its claim."""
        claims = [{"name": "gpu", "resourceClaimName": self._claim(number)}]
        return _with_spec(pod, resourceClaims=claims)

    async def handed_over(self, cluster: Cluster, pods: Sequence[Placed]) -> list[Wire]:
        """Give each claim its device."""
        claims = await cluster.client.list(RESOURCE_CLAIMS, namespace=NAMESPACE)
        uids = {claim.metadata.name: claim.metadata.uid for claim in claims}
        planned = [
            {"name": name, "uid": uids[name], "allocation": _allocation(pod)}
            for pod, name in ((pod, self._claim(pod.number)) for pod in pods)
        ]
        return [{"pluginData": {"dra": {"claims": [each]}}} for each in planned]

    def _claim(self, number: int) -> str:
        return f"device-{number:05}"


class SharedGpus(World):
    """Half a GPU each: every second pod opens a group, with a reservation pod."""

    pods_of_a_node = 2 * _GPUS_OF_A_NODE
    left_behind = (
        f"/api/v1/namespaces/{RESERVATION_NAMESPACE}/pods",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps?fieldSelector=metadata.name!=kube-root-ca.crt",
    )

    def dressed(self, pod: Wire, number: int) -> Wire:
        """Ask for half a GPU, as the webhook lets it through."""
        del number
        annotations = {FRACTION_ANNOTATION: "0.5"}
        return admission.prepared(
            {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
        )

    async def handed_over(self, cluster: Cluster, pods: Sequence[Placed]) -> list[Wire]:
        """Put two pods on each GPU."""
        del cluster
        return [
            {
                "receivedResourceType": "Fraction",
                "receivedGPU": {"count": 1, "portion": "0.50"},
                "selectedGPUGroups": [f"group-{pod.number // 2:05}"],
            }
            for pod in pods
        ]

    @asynccontextmanager
    async def at_work(self, cluster: Cluster) -> AsyncIterator[None]:
        """Give devices to reservation pods."""
        async with GpuDevicePlugins(cluster.client, prefix="").play():
            yield


class HamiDevices(World):
    """A part of a GPU by HAMi: the node is locked for each pod until its device plugin is done."""

    def __init__(self, nodes: int, plugins: type[HamiDevicePlugins | Prompt]) -> None:
        """Put the pods on `nodes` nodes in turn, whose device plugins are `plugins`."""
        self._nodes, self._plugins = nodes, plugins

    def node_of(self, number: int) -> str:
        """Return the node: neighbours in a gang are on different ones, if there are several."""
        return node_name(number % self._nodes)

    def dressed(self, pod: Wire, number: int) -> Wire:
        """Ask for one of HAMi's devices."""
        del number
        container = pod["spec"]["containers"][0]
        limits = {NVIDIA.count_resource: "1"}
        resources = container["resources"]
        resources = {"requests": {**resources["requests"], **limits}, "limits": limits}
        return _with_spec(pod, containers=[{**container, "resources": resources}])

    async def handed_over(self, cluster: Cluster, pods: Sequence[Placed]) -> list[Wire]:
        """Give each pod a part of the node's GPU."""
        del cluster
        device = ContainerDevice("GPU-0", NVIDIA.word, 1000, 10)
        data = Assignment({NVIDIA.word: ((device,),)}, {"GPU-0": 0}).to_data()
        return [{"pluginData": {"hami": data}} for _ in pods]

    @asynccontextmanager
    async def at_work(self, cluster: Cluster) -> AsyncIterator[None]:
        """Admit pods and release nodes."""
        async with self._plugins(cluster.client, NAMESPACE).at_work():
            yield


def _allocation(pod: Placed) -> Wire:
    device = f"gpu-{pod.number % _GPUS_OF_A_NODE}"
    result = {"request": "gpu", "driver": _DRIVER, "pool": pod.node, "device": device}
    here = {"key": "metadata.name", "operator": "In", "values": [pod.node]}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }


def _slice(node: str) -> Wire:
    devices = [{"name": f"gpu-{index}"} for index in range(_GPUS_OF_A_NODE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return _named(
        node, spec={"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    )


def _named(name: str, **rest: object) -> Wire:
    return {"metadata": {"name": name}, **rest}


def _with_spec(pod: Wire, **changed: object) -> Wire:
    return {**pod, "spec": {**pod["spec"], **changed}}
