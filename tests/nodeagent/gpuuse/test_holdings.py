"""Which GPUs running pods have, from annotations and from the kubelet."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bindery.api import gpushare
from bindery.api.names import GPU_INDEXES_ANNOTATION, GPUS_IDLE_SINCE_ANNOTATION
from bindery.nodeagent.devices.inventory import NodeGpu, PodKey
from bindery.nodeagent.gpuuse import holdings
from bindery.nodeagent.gpuuse.holdings import HeldGpus
from bindery.nodeagent.shares.pods import SharingPod
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from tests.nodeagent import sharingpods
from tests.nodeagent.sharingpods import NODE, device

FIRST, SECOND = (f"GPU-0000000{n}-0000-4000-8000-000000000000" for n in (1, 2))
GPUS = (NodeGpu(uuid=FIRST, index=0), NodeGpu(uuid=SECOND, index=1))
NOTHING = api.ListPodResourcesResponse()


def plain(name: str = "p", **changes: Any) -> SharingPod:
    """Return a running pod; `changes`: namespace, annotations, labels, phase, node, deleted."""
    body = {
        "metadata": {
            "name": name,
            "namespace": changes.get("namespace", "n"),
            "uid": f"uid-{name}",
            "annotations": changes.get("annotations", {}),
            "labels": changes.get("labels", {}),
            "deletionTimestamp": changes.get("deleted"),
        },
        "spec": {"nodeName": changes.get("node", NODE), "containers": [{"name": "c"}]},
        "status": {"phase": changes.get("phase", "Running")},
    }
    return msgspec.convert(body, SharingPod)


def listed(*containers: api.ContainerResources, name: str = "p") -> api.ListPodResourcesResponse:
    pod = api.PodResources(namespace="n", name=name, containers=containers)
    return api.ListPodResourcesResponse(pod_resources=[pod])


def plugged(*identifiers: str, resource: str = "nvidia.com/gpu") -> api.ContainerResources:
    devices = api.ContainerDevices(resource_name=resource, device_ids=identifiers)
    return api.ContainerResources(name="c", devices=[devices])


def claimed(driver: str, device_name: str) -> api.ContainerResources:
    given = api.ClaimResource(driver_name=driver, pool_name=NODE, device_name=device_name)
    claim = api.DynamicResource(claim_name="x", claim_namespace="n", claim_resources=[given])
    return api.ContainerResources(name="c", dynamic_resources=[claim])


def held(
    *pods: SharingPod,
    by_kubelet: api.ListPodResourcesResponse = NOTHING,
    measured: Mapping[PodKey, frozenset[str]] = {},
) -> Mapping[str, set[str]]:
    found = holdings.users(pods, NODE, HeldGpus(GPUS, by_kubelet, measured))
    return {pod.metadata.name: set(user.gpus) for pod, user in found}


@pytest.mark.parametrize(
    ("by_kubelet", "gpus"),
    [
        (listed(plugged(FIRST), plugged(SECOND)), {FIRST, SECOND}),
        (listed(plugged(f"{FIRST}-3")), {FIRST}),
        (listed(claimed("gpu.bindery.dev", SECOND.lower())), {SECOND}),
    ],
)
def test_the_kubelet_reports_whole_gpus_shares_and_claims(
    by_kubelet: api.ListPodResourcesResponse, gpus: set[str]
) -> None:
    assert held(plain(), by_kubelet=by_kubelet) == {"p": gpus}


def test_a_gpu_that_the_source_lacks_is_one_whose_use_is_unknown() -> None:
    assert held(plain(), by_kubelet=listed(plugged(FIRST, "GPU-x"))) == {"p": {FIRST, "GPU-x"}}
    indexed = plain(annotations={GPU_INDEXES_ANNOTATION: "0,7"})
    assert held(indexed) == {"p": {FIRST, "7"}}


def test_devices_that_are_no_gpus_of_the_node_do_not_count() -> None:
    assert held(plain(), by_kubelet=listed(plugged("x", resource="example.com/nic"))) == {}
    assert held(plain(), by_kubelet=listed(claimed("other.example.com", "gpu-0"))) == {}


def test_hamis_annotations_come_before_the_identifiers_that_the_kubelet_chose() -> None:
    pod = sharingpods.pod("p", ((device(SECOND),),), phase="Running")

    assert held(pod, by_kubelet=listed(plugged(f"{FIRST}-0"))) == {"p": {SECOND}}


def test_indexes_count_where_the_kubelet_reports_nothing() -> None:
    assert held(plain(annotations={GPU_INDEXES_ANNOTATION: "1"})) == {"p": {SECOND}}


def test_mig_instances_are_those_whose_use_was_measured_for_the_pod() -> None:
    """The kubelet has identifiers that the source of the use does not know."""
    measured = {("n", "p"): frozenset({f"{FIRST}/7"})}
    mixed = plugged("MIG-x", resource="nvidia.com/mig-1g.5gb")

    assert held(plain(), by_kubelet=listed(mixed), measured=measured) == {"p": {f"{FIRST}/7"}}
    assert held(plain(), by_kubelet=listed(plugged("MIG-x")), measured=measured) == {
        "p": {f"{FIRST}/7"}
    }
    assert held(plain(), by_kubelet=listed(plugged("MIG-x"))) == {"p": {"MIG-x"}}


def test_the_kubelet_comes_before_what_was_measured_for_an_earlier_pod() -> None:
    measured = {("n", "p"): frozenset({FIRST})}

    assert held(plain(), by_kubelet=listed(plugged(SECOND)), measured=measured) == {"p": {SECOND}}


def test_a_share_of_a_reserved_gpu_is_a_share_of_that_gpu() -> None:
    labels = {gpushare.GROUP_LABEL: "g"}
    reservation = plain(
        "r",
        namespace=gpushare.RESERVATION_NAMESPACE,
        labels=labels,
        annotations={GPU_INDEXES_ANNOTATION: "1"},
    )

    assert held(plain(labels=labels), reservation) == {"p": {SECOND}}
    assert held(plain(labels=labels)) == {"p": {"g"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "Pending"},
        {"phase": "Succeeded"},
        {"node": "other"},
        {"deleted": "2026-11-01T00:00:00Z"},
    ],
)
def test_only_running_pods_of_the_node_count(changes: dict[str, str]) -> None:
    assert held(plain(**changes), by_kubelet=listed(plugged(FIRST))) == {}


def test_the_written_time_is_read() -> None:
    annotations = {GPUS_IDLE_SINCE_ANNOTATION: "1970-01-01T00:01:00Z"}
    pod = plain(annotations={**annotations, GPU_INDEXES_ANNOTATION: "0"})

    [(_, user)] = holdings.users([pod], NODE, HeldGpus(GPUS, NOTHING))

    assert (user.uid, user.idle_since_s) == ("uid-p", 60.0)
