"""The CPU manager answers as the kubelet's, case by case."""

from collections.abc import Callable

import pytest

from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.cpu import options as cpu_options
from bindery.nodecore.cpu import restore, static
from bindery.nodecore.cpu.distributed import take_distributed
from bindery.nodecore.cpu.hints import container_hints, pod_hints
from bindery.nodecore.cpu.manager import ContainerStatus, CpuManager, RunState
from bindery.nodecore.cpu.options import CpuOptions
from bindery.nodecore.cpu.packed import Accumulator, take_packed
from bindery.nodecore.cpu.requests import check_shared_pool, exclusive_cpus_of_pod
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpu.static import ReusableCpus, StaticPolicy
from bindery.nodecore.cpu.topology import CpuInfo, CpuTopology, discover
from bindery.nodecore.cpusets import EMPTY, format_cpus, parse_cpus
from bindery.nodecore.errors import AllocationError, ConfigurationError, StateError
from bindery.nodecore.features import Features
from bindery.nodecore.machine import Core, Machine, NumaNode, uniform
from bindery.nodecore.topology.hints import Hint, ProviderHints
from tests.nodecore.kubelettables import (
    Json,
    by_container,
    cases,
    cpu_topology,
    hint,
    hints,
    mask,
    pod,
    topology_of,
)
from tests.nodecore.nodes import FakeNode

TWO_SOCKETS = discover(uniform(sockets=2, cores_per_numa=3, threads_per_core=2))
"""The machine of the tables without one: node 0 is {0,6} {1,7} {2,8}, node 1 the rest."""


def features(case: Json) -> Features:
    return Features(
        pod_level_resource_managers=case.get("pod_level", False), cpu_policy_alpha_options=True
    )


def options(names: Json) -> CpuOptions:
    return cpu_options.parse(names, Features(cpu_policy_alpha_options=True))


def policy(case: Json) -> StaticPolicy:
    return static.new_policy(
        cpu_topology(case["machine"]),
        case["reserved_count"],
        parse_cpus(case["reserved"]),
        options(case["options"]),
        features(case),
    )


def state(case: Json) -> CpuState:
    return CpuState(parse_cpus(case["default"]), by_container(case["held"], parse_cpus))


def of_cpu(found: ProviderHints) -> set[Hint]:
    return set((found or {}).get("cpu") or ())


@cases("cpu", "packed", "packed_distributed")
def test_cpus_are_packed(case: Json) -> None:
    chosen = options(dict.fromkeys(case["options"], "true"))

    def take() -> str:
        taken = take_packed(
            cpu_topology(case["machine"]),
            parse_cpus(case["available"]),
            case["count"],
            spread_over_cores=chosen.distribute_across_cores,
            align_by_uncore=chosen.align_by_uncore,
        )
        return format_cpus(taken)

    check_taken(case, take)


@cases("cpu", "free_units")
def test_free_units_are_ordered(case: Json) -> None:
    taking = Accumulator(cpu_topology(case["machine"]), parse_cpus(case["available"]), 0)

    found = getattr(taking, case["of"])()

    assert (sorted(found) if case["is_sorted"] else found) == case["expected"]


@cases("cpu", "taken")
def test_taking_cpus_leaves_fewer_to_take(case: Json) -> None:
    available = parse_cpus(case["available"])
    taking = Accumulator(cpu_topology(case["machine"]), available, case["count"])

    taking.take(parse_cpus(case["taken"]))

    assert (taking.is_satisfied, taking.is_failed) == (case["satisfied"], case["failed"])


@cases("cpu", "distributed")
def test_cpus_are_distributed(case: Json) -> None:
    def take() -> str:
        taken = take_distributed(
            cpu_topology(case["machine"]),
            parse_cpus(case["available"]),
            case["count"],
            case["group"],
        )
        return format_cpus(taken)

    check_taken(case, take)


def check_taken(case: Json, take: Callable[[], str]) -> None:
    if case["error"]:
        with pytest.raises(AllocationError) as error:
            take()
        assert str(error.value) == case["error"]
    else:
        assert take() == case["taken"]


@cases("cpu", "start")
def test_the_policy_starts_from_a_valid_state(case: Json) -> None:
    if case["error"]:
        with pytest.raises((StateError, ConfigurationError)) as error:
            static.start(policy(case), state(case))
        assert str(error.value) == case["error"]
    else:
        assert format_cpus(static.start(policy(case), state(case)).default) == case["after"]


@cases("cpu", "allocate")
def test_a_container_gets_its_cpus(case: Json) -> None:
    asking = pod(case["pod"])
    place = case["hint"] and hint(case["hint"]).mask

    def allocate() -> CpuState:
        done = static.allocate(
            policy(case), state(case), ReusableCpus(), asking, asking.containers[0], place
        )
        return done.state

    if case["error"]:
        with pytest.raises(AllocationError) as error:
            allocate()
        assert str(error.value) == case["error"]
        return
    found = allocate()
    cpus = found.cpus(asking.uid, asking.containers[0].name)
    assert (None if cpus is None else format_cpus(cpus)) == case["cpus"]
    assert not found.default & (cpus or EMPTY)


@cases("cpu", "allocate_by_cache")
def test_containers_get_cpus_of_one_cache(case: Json) -> None:
    asking = pod(case["pod"])
    settings = policy(case)
    found = state(case)
    found = found.with_default(found.default - settings.reserved)
    reusable = ReusableCpus()
    for container in asking.containers:
        done = static.allocate(settings, found, reusable, asking, container)
        found, reusable = done.state, done.reusable

    if case["cpus"] is not None:
        first = found.cpus(asking.uid, asking.containers[0].name)
        assert format_cpus(first or EMPTY) == case["cpus"]
    else:
        details = settings.topology.details
        cpus = EMPTY.union(*found.containers[asking.uid].values())
        assert format_cpus({details[cpu].uncore for cpu in cpus}) == case["caches"]


@cases("cpu", "allocate_all")
def test_init_containers_leave_their_cpus(case: Json) -> None:
    found = allocated_one_after_the_other(case)

    assert format_cpus(found.default) == case["after"]
    if case["released"]:
        uid = pod(case["pod"]).uid
        found = static.release(policy(case), found, uid, case["released"])
        assert format_cpus(found.default) == case["after_release"]


def allocated_one_after_the_other(case: Json) -> CpuState:
    asking, found, reusable = pod(case["pod"]), state(case), ReusableCpus()
    for container in asking.all_containers:
        done = static.allocate(policy(case), found, reusable, asking, container)
        found, reusable = done.state, done.reusable
    return found


@cases("cpu", "init_containers")
def test_each_container_of_a_pod_gets_its_cpus(case: Json) -> None:
    asking = pod(case["pod"])
    found = allocated_one_after_the_other(case)

    cpus = [format_cpus(found.cpus(asking.uid, one.name) or EMPTY) for one in asking.all_containers]
    assert cpus == case["cpus"]


@cases("cpu", "release")
def test_cpus_return_to_the_shared_pool(case: Json) -> None:
    found = static.release(policy(case), state(case), case["pod_uid"], case["container"])

    assert format_cpus(found.default) == case["after"]
    assert found.cpus(case["pod_uid"], case["container"]) is None


@cases("cpu", "allocate_near")
def test_aligned_cpus_are_taken_first(case: Json) -> None:
    settings = StaticPolicy(cpu_topology(case["machine"]), EMPTY)
    amounts = {"cpu": str(case["count"]), "memory": "1G"}
    asking = pod(
        {
            "metadata": {"uid": "asking"},
            "spec": {
                "containers": [
                    {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
                ]
            },
        }
    )
    done = static.allocate(
        settings, state(case), ReusableCpus(), asking, asking.containers[0], mask(case["nodes"])
    )

    assert format_cpus(done.state.containers["asking"]["app"]) == case["cpus"]


@cases("cpu", "allocate_pod")
def test_a_pod_with_pod_level_resources_gets_its_cpus(case: Json) -> None:
    place = hint(case["hint"]).mask

    def allocate() -> CpuState:
        return static.allocate_pod(policy(case), state(case), pod(case["pod"]), place)

    if case["error"]:
        with pytest.raises(AllocationError):
            allocate()
    else:
        found = allocate()
        assert by_container(found.containers, format_cpus) == case["held_after"]
        assert format_cpus(found.default) == case["after"]


@cases("cpu", "shared_pool")
def test_containers_without_exclusive_cpus_need_shared_cpus_of_the_pod(case: Json) -> None:
    on = Features(pod_level_resource_managers="PodLevelResourceManagers" in case["features"])
    asking = pod(case["pod"])
    if case["refused"]:
        with pytest.raises(AllocationError):
            check_shared_pool(asking, on)
    else:
        check_shared_pool(asking, on)


@cases("cpu", "pod_cpus")
def test_the_exclusive_cpus_of_a_pod_are_counted(case: Json) -> None:
    assert exclusive_cpus_of_pod(pod(case["pod"]), features(case)) == case["cpus"]


@cases("cpu", "hints")
def test_a_container_and_a_pod_have_hints(case: Json) -> None:
    asking = pod(case["pod"])
    container = next(one for one in asking.all_containers if one.name == case["container"])
    settings = StaticPolicy(TWO_SOCKETS, EMPTY, features=features(case))
    found = container_hints(settings, state(case), ReusableCpus(), asking, container)

    assert of_cpu(found) == hints(case["hints"])
    found = pod_hints(settings, state(case), ReusableCpus(), asking)
    assert of_cpu(found) == hints(case["hints"])


@cases("cpu", "hints_with_options")
def test_hints_prefer_sockets_with_the_option(case: Json) -> None:
    settings = StaticPolicy(cpu_topology(case["machine"]), EMPTY, options(case["options"]))

    found = pod_hints(settings, state(case), ReusableCpus(), pod(case["pod"]))
    assert of_cpu(found) == hints(case["hints"])


@cases("cpu", "hints_of_pods")
def test_pods_with_pod_level_resources_have_hints(case: Json) -> None:
    settings = StaticPolicy(TWO_SOCKETS, EMPTY, features=features({"pod_level": True}))
    asking = pod(case["pod"])
    found = pod_hints(settings, state(case), ReusableCpus(), asking)

    assert of_cpu(found) == hints(case["pod_hints"])
    container = next(one for one in asking.all_containers if one.name == case["container"])
    found = container_hints(settings, state(case), ReusableCpus(), asking, container)
    assert of_cpu(found) == hints(case["container_hints"])


@cases("cpu", "options")
def test_options_are_read(case: Json) -> None:
    if case["refused"]:
        with pytest.raises(ConfigurationError):
            options(case["options"])
    else:
        assert options(case["options"]) == options(dict.fromkeys(case["on"], "true"))


@cases("cpu", "options_of_machines")
def test_options_are_checked_against_the_machine(case: Json) -> None:
    found = options(case["options"])

    def check() -> None:
        cpu_options.check_machine(found, cpu_topology(case["machine"]), case["topology_policy"])

    if case["refused"]:
        with pytest.raises(ConfigurationError):
            check()
    else:
        check()


GATES = {
    "": "cpu_policy_alpha_options",
    "CPUManagerPolicyAlphaOptions": "cpu_policy_alpha_options",
    "CPUManagerPolicyBetaOptions": "cpu_policy_beta_options",
}


@cases("cpu", "options_together")
def test_some_options_exclude_each_other(case: Json) -> None:
    on = Features(**{GATES[case["gate"]]: True})
    if case["refused"]:
        with pytest.raises(ConfigurationError):
            cpu_options.parse(case["options"], on)
    else:
        cpu_options.parse(case["options"], on)


@cases("cpu", "options_by_gate")
def test_options_need_their_feature_gate(case: Json) -> None:
    on = Features(**{GATES[case["gate"]]: case["on"]})
    if case["available"]:
        cpu_options.parse({case["option"]: "true"}, on)
    else:
        with pytest.raises(ConfigurationError):
            cpu_options.parse({case["option"]: "true"}, on)


@cases("machines", "discovered")
def test_the_cpus_of_a_machine_are_discovered(case: Json) -> None:
    machine = Machine(
        tuple(
            NumaNode(node["id"], [Core(*core) for core in node["cores"]]) for node in case["nodes"]
        )
    )
    if case["refused"]:
        with pytest.raises(ConfigurationError):
            discover(machine)
    else:
        assert discover(machine) == topology_of(case["found"])


@cases("cpu", "reconcile")
def test_running_containers_get_the_cpus_of_the_state(case: Json) -> None:
    held = by_container(case["containers"], frozenset)
    last = by_container(case["last"], frozenset)
    every = frozenset(case["default"]).union(*(c for one in held.values() for c in one.values()))
    topology = CpuTopology({cpu: CpuInfo(0, 0, cpu) for cpu in every}, len(every), len(every), 1, 1)
    node = FakeNode([pod(one) for one in case["pods"]])
    checkpoints = CheckpointManager(MemoryStore())
    restore.save(checkpoints, "static", CpuState(frozenset(case["default"]), held))
    manager = CpuManager(StaticPolicy(topology, EMPTY), node, node, checkpoints)
    manager.start({})
    if last == held:
        manager.add_container(node.pods[0], node.pods[0].containers[0], "fakeContainerID")
    updated: list[frozenset[int]] = []

    def update(_container_id: str, cpus: frozenset[int]) -> None:
        if case["fails"]:
            raise OSError("fake container update error")
        updated.append(cpus)

    found = {
        name: ContainerStatus(container_id, RunState(state or "waiting"))
        for name, (container_id, state) in (case["statuses"] or {}).items()
    }
    statuses = {} if case["statuses"] is None else {node.pods[0].uid: found}
    done = manager.reconcile(statuses, update)

    assert manager.state.containers == by_container(case["expected"], frozenset)
    assert manager.state.default == frozenset(case["expected_default"])
    for given, wanted in ((done.success, case["succeeded"]), (done.failure, case["failed"])):
        assert [name for _, name, _ in given if name] == [wanted] * bool(wanted)
    assert len(updated) == bool(case["succeeded"] and last != held)
