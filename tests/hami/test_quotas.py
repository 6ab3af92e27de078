"""Limits of namespaces by the ResourceQuota keys of HAMi's devices."""

import pytest

from bindery.api.hami import requests
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import Holding
from bindery.api.hami.requests import PodRequest
from bindery.api.hami.vendortable import BY_WORD
from bindery.kube.objects.quotas import QuotaSpec, ResourceQuota
from bindery.kube.objects.watched import Meta
from bindery.scheduler.plugins.hami.amounts import amounts
from bindery.scheduler.plugins.hami.fleet import HamiNode
from bindery.scheduler.plugins.hami.quotas import Budget, Limits, least


def quota(name: str, **hard: str) -> ResourceQuota:
    return ResourceQuota(
        metadata=Meta(name=name, namespace="team"), spec=QuotaSpec(hard=hard or None)
    )


@pytest.mark.parametrize(
    ("hard", "limits"),
    [
        ({}, {}),
        ({"limits.nvidia.com/gpumem": "5k"}, {"nvidia.com/gpumem": 5000}),
        ({"limits.nvidia.com/gpucores": "0"}, {"nvidia.com/gpucores": 0}),
        ({"limits.cambricon.com/mlu.smlu.vmemory": "4"}, {"cambricon.com/mlu.smlu.vmemory": 1024}),
        ({"limits.aws.amazon.com/neuroncore": "3"}, {"aws.amazon.com/neuroncore": 3}),
        ({"limits.amd.com/gpucores": "50"}, {}),
        ({"requests.nvidia.com/gpumem": "5", "limits.cpu": "1", "limits.nvidia.com/gpu": "1"}, {}),
    ],
)
def test_limits_of_memory_and_cores_are_read_in_the_units_of_the_vendor(
    hard: dict[str, str], limits: dict[str, int]
) -> None:
    found = Limits()
    found.put(quota("a", **hard))

    assert found.of("team") == limits
    assert found.namespaces == ({"team"} if limits else set())


def test_the_lowest_limit_applies_while_its_quota_exists() -> None:
    found, low = Limits(), quota("low", **{"limits.nvidia.com/gpumem": "10"})
    found.put(quota("high", **{"limits.nvidia.com/gpumem": "20"}))
    found.put(low)
    assert found.of("team") == {"nvidia.com/gpumem": 10}

    found.put(quota("low", **{"limits.nvidia.com/gpumem": "30"}))
    assert found.of("team") == {"nvidia.com/gpumem": 20}

    found.drop(low)
    found.drop(quota("high"))
    assert found.of("team") == {}


def test_devices_are_counted_in_the_unit_of_their_limit() -> None:
    two = [Holding(1, 1000, 0b11), Holding(1, 500, 0b01)]

    assert amounts(BY_WORD["NVIDIA"], two) == {"nvidia.com/gpumem": 1500, "nvidia.com/gpucores": 4}
    assert amounts(BY_WORD["AWSNeuron"], two) == {"aws.amazon.com/neuroncore": 3}
    assert amounts(BY_WORD["AMD"], two) == {"amd.com/gpumem": 1500}
    assert amounts(BY_WORD["kunlun"], two) == {}


def test_a_pod_counts_at_least_its_containers_or_its_largest_init_container() -> None:
    def container(memory: int) -> requests.ContainerRequests:
        return requests.read_container(
            {"nvidia.com/gpu": "2", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": "10"}
        )

    where = HamiNode(
        {"NVIDIA": (NodeDevice(id="g", count=9, memory_mib=9000, cores=100, healthy=True),)}
    )
    pod = PodRequest((container(500), container(100), container(200)), frozenset({0}), True)

    assert least(pod, [where]) == {"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 40}
    assert least(pod, []) == {}


def test_reservations_count_at_once_and_leaving_pods_count_until_they_are_gone() -> None:
    limits = Limits()
    limits.put(quota("a", **{"limits.nvidia.com/gpumem": "10"}))
    budget, six = Budget(limits), {"nvidia.com/gpumem": 6}

    budget.hold("team", six)
    assert budget.excess("team", six, later=True) is not None
    budget.promise("team", six, -1)  # it begins to leave
    assert budget.excess("team", six, later=False) is not None
    assert budget.excess("team", six, later=True) is None
    budget.promise("team", six)  # its room is promised to another
    assert budget.excess("team", {"nvidia.com/gpumem": 4}, later=True) is None
    assert budget.excess("team", {"nvidia.com/gpumem": 5}, later=True) is not None
    assert budget.excess("elsewhere", {"nvidia.com/gpumem": 99}, later=False) is None
