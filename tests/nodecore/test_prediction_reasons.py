"""The sentences that explain why a node would refuse a pod."""

from dataclasses import replace
from typing import Any

import pytest

from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.reasons import refusal
from bindery.nodecore.prediction.requests import PodRequest, Wanted
from bindery.nodecore.prediction.zones import NodeZones

GIB = 1 << 30
GPU = "nvidia.com/gpu"
ZONE = {"cpu": 4, "memory": 8 * GIB, GPU: 2}
NODE = NodeZones(
    ({"cpu": 4, "memory": 8 * GIB, GPU: 1}, {"cpu": 2, "memory": 4 * GIB, GPU: 2}),
    (ZONE, ZONE),
    policy="single-numa-node",
)

SPREAD = (
    "4 free CPUs would be spread over more NUMA zones than the topology policy restricted allows"
)


def request(*containers: Wanted) -> PodRequest:
    return PodRequest(containers, containers[-1])


@pytest.mark.parametrize(
    ("changes", "wanted", "text"),
    [
        ({}, Wanted(cpus=2, devices={GPU: 2}), ""),
        (
            {},
            Wanted(cpus=4, devices={GPU: 2}),
            f"no single NUMA zone has 4 free CPUs and 2 {GPU}",
        ),
        (
            {},
            Wanted(cpus=4, memory={"memory": 6 * GIB}, devices={GPU: 2}),
            f"no single NUMA zone has 4 free CPUs, 6Gi of memory and 2 {GPU}",
        ),
        ({}, Wanted(memory={"memory": 9 * GIB}), "no single NUMA zone has 9Gi of free memory"),
        ({}, Wanted(devices={GPU: 3, "other.com/nic": 1}), f"no single NUMA zone has 3 free {GPU}"),
        (
            {"policy": "restricted", "free": ({"cpu": 2}, {"cpu": 2})},
            Wanted(cpus=4),
            SPREAD,
        ),
        (
            {"policy": "restricted"},
            Wanted(cpus=7),
            "its NUMA zones together have 6 CPUs of 7 CPUs",
        ),
        (
            {"policy": "best-effort", "groups": (1, 2)},
            Wanted(memory={"memory": 10 * GIB}),
            "no NUMA zones that may be used together have 10Gi of free memory",
        ),
        (
            {"policy": "best-effort"},
            Wanted(devices={GPU: 4}),
            f"its NUMA zones together have 3 {GPU} of 4 {GPU}",
        ),
        (
            {"policy": "none", "threads_per_core": 2},
            Wanted(cpus=3),
            "3 free CPUs cannot be given as whole cores",
        ),
        ({"has_static_cpus": False}, Wanted(cpus=6), ""),
    ],
)
def test_the_reason_names_the_resources_that_the_zones_lack(
    changes: dict[str, Any], wanted: Wanted, text: str
) -> None:
    node = replace(NODE, **changes)
    assert refusal(node, request(wanted)) == text
    assert plain.predict(node, request(wanted)).admit == (not text)


def test_the_reason_is_about_the_container_that_does_not_fit() -> None:
    both = request(Wanted(cpus=4, devices={GPU: 1}), Wanted(cpus=2, devices={GPU: 2}))
    assert refusal(NODE, both) == ""
    again = request(*both.containers, Wanted(cpus=1))
    assert refusal(NODE, again) == "no single NUMA zone has 1 free CPU"
