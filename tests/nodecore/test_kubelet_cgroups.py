"""Names and values of cgroups, and node allocatable, as the kubelet has them, case by case."""

from collections.abc import Mapping
from contextlib import nullcontext

import pytest

from bindery.nodecore.cgroups import allocatable, conversions, names, oom, values
from bindery.nodecore.cgroups.manager import CgroupManager
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.pods import PodCgroups
from bindery.nodecore.cgroups.values import CgroupValues, MemoryReservation
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.cpu import restore
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.features import Features
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import QosClass, resources
from tests.nodecore.kubelettables import Json, cases, pod
from tests.nodecore.nodes import FakeNode
from tests.nodecore.test_container_manager import FakeTree


@cases("cgroups", "systemd", "systemd_units", "cgroupfs")
def test_names_have_paths(case: Json) -> None:
    name = CgroupName(tuple(case["name"]))
    if "unit" in case:
        assert names.to_systemd(name).rpartition("/")[2] == case["unit"].removeprefix("/")
    elif case["path"].endswith(names.SLICE):
        assert names.to_systemd(name) == case["path"]
    else:
        assert names.to_cgroupfs(name) == case["path"]


@cases("cgroups", "parsed")
def test_paths_have_names(case: Json) -> None:
    assert names.from_systemd(case["path"]) == tuple(case["name"])


@cases("cgroups", "pod_names")
def test_pods_have_cgroups(case: Json) -> None:
    name = names.of_pod(names.ROOT, pod(case["pod"]))

    assert name == tuple(case["name"])
    driver = names.SYSTEMD if case["systemd"] else names.CGROUPFS
    assert names.to_driver(name, driver) == case["path"]


@cases("cgroups", "weights")
def test_weights_become_shares(case: Json) -> None:
    assert conversions.shares_of_weight(case["weight"]) == case["shares"]


@cases("cgroups", "quotas")
def test_millicores_become_quotas(case: Json) -> None:
    assert conversions.quota_us(case["milli"], case["period"]) == case["quota"]


@cases("cgroups", "pods")
def test_pods_are_limited(case: Json) -> None:
    found = values.of_pod(
        pod(case["pod"]), enforce_cpu_limits=case["quotas"], period_us=case["period"]
    )

    limits = {
        "shares": found.cpu_shares,
        "quota": found.cpu_quota_us,
        "period": found.cpu_period_us,
        "memory": found.memory_limit,
    }
    assert {name: one for name, one in limits.items() if one is not None} == case["values"]


@cases("cgroups", "pods_memory_qos")
def test_requested_memory_is_protected(case: Json) -> None:
    found = values.of_pod(
        pod(case["pod"]),
        enforce_cpu_limits=case["quotas"],
        period_us=case["period"],
        memory_reservation=MemoryReservation.TIERED,
        features=Features(memory_qos=True),
    )

    assert found.unified == case["values"].get("unified", {})


@cases("cgroups", "huge_pages")
def test_huge_pages_have_limits(case: Json) -> None:
    found = values.huge_page_limits(resources(case["amounts"]))

    assert {str(size): amount for size, amount in found.items()} == case["limits"]


@cases("cgroups", "qos")
def test_classes_protect_the_memory_of_their_pods(case: Json) -> None:
    found = values.of_qos_classes(
        [pod(one) for one in case["pods"]],
        memory_reservation=MemoryReservation.TIERED,
        features=Features(memory_qos=True),
    )

    assert found[QosClass.GUARANTEED].unified["memory.min"] == case["guaranteed_min"]
    assert found[QosClass.BURSTABLE].unified["memory.low"] == case["burstable_low"]


def thresholds(case: Json) -> dict[str, str]:
    found = case["threshold"]
    signal = "nodefs.available" if "ephemeral-storage" in case["capacity"] else "memory.available"
    if found["Quantity"]:
        return {signal: found["Quantity"]}
    return {signal: f"{round(found['Percentage'] * 100, 4)}%"} if found["Percentage"] else {}


def reserved(case: Json) -> Mapping[str, int]:
    capacity = resources(case["capacity"])
    return allocatable.reservation(
        capacity,
        resources(case["system"]),
        resources(case["kube"]),
        allocatable.eviction_reservation(thresholds(case), capacity),
    )


@cases("cgroups", "reservation")
def test_the_node_keeps_the_reserved_resources(case: Json) -> None:
    assert reserved(case).items() <= resources(case["expected"]).items()


@cases("cgroups", "enforced")
def test_the_sum_of_all_pods_is_limited(case: Json) -> None:
    found = allocatable.enforced(
        resources(case["capacity"]), resources(case["system"]), resources(case["kube"])
    )

    assert found == resources(case["expected"])


@cases("cgroups", "invalid")
def test_reservations_cannot_exceed_the_capacity(case: Json) -> None:
    with pytest.raises(ConfigurationError) if case["refused"] else nullcontext():
        allocatable.allocatable(resources(case["capacity"]), reserved(case))


@cases("cgroups", "percentages")
def test_percentages_are_read(case: Json) -> None:
    with pytest.raises(ConfigurationError) if case["refused"] else nullcontext():
        assert allocatable.parse_percentage(case["text"]) == case["percent"]


@cases("cgroups", "reserved_percent")
def test_memory_can_be_reserved_for_classes(case: Json) -> None:
    with pytest.raises(ConfigurationError) if case["percent"] is None else nullcontext():
        assert allocatable.parse_qos_reserved(case["reserved"]) == case["percent"]


@cases("cgroups", "guaranteed_containers")
def test_the_qos_of_a_container_follows_its_own_resources(case: Json) -> None:
    assert pod(case["pod"]).containers[0].is_guaranteed == case["guaranteed"]


@cases("cgroups", "pods_of_cgroups")
def test_pods_are_known_by_their_cgroups(case: Json) -> None:
    name = names.child(names.ROOT, *case["name"])
    of = PodCgroups(
        CgroupManager(FakeTree(), case["driver"], version=2),
        {qos: names.of_qos(names.ROOT, qos) for qos in QosClass},
        lambda _pod: (name, CgroupValues()),
    )

    assert of.pod_uid(names.to_driver(name, case["driver"])) == case["uid"]


@cases("cgroups", "exclusive")
def test_containers_have_exclusive_cpus(case: Json) -> None:
    asking = pod(case["pod"])
    held = {
        uid: {name: frozenset(cpus)}
        for (uid, name), cpus in ((key.split("/"), cpus) for key, cpus in case["cpus"].items())
    }
    features = Features(pod_level_resource_managers=case["managers"])
    config = NodeConfig(
        uniform(), {"cpu": 4000}, {"cpu": 1000}, cpu_policy="static", features=features
    )
    free = config.cpus.cpus.difference(*(cpus for one in held.values() for cpus in one.values()))
    checkpoints = CheckpointManager(MemoryStore())
    restore.save(checkpoints, "static", CpuState(free, held), features=features)
    manager = ContainerManager(config, FakeNode(), checkpoints, checkpoints, lambda: 0.0)
    manager.cpu.start({})

    assert manager.container_has_exclusive_cpus(asking, asking.containers[0]) is case["exclusive"]


@cases("cgroups", "scores")
def test_containers_are_killed_by_score(case: Json) -> None:
    asking = pod(case["pod"])
    for one in asking.all_containers:
        lowest, highest = case["scores"].get(one.name, (-1000, 1000))
        score = oom.score_adjustment(asking, one, case["memory"], is_node_critical=case["critical"])
        assert lowest <= score <= highest
