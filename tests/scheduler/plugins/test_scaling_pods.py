"""Scaling pods: their number, their shares of GPUs, and their deletion."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bindery.api.configuration import DEFAULT_PLUGINS, PluginConfiguration
from bindery.api.names import NODE_POOL_LABEL, SCALES_FOR_ANNOTATION
from bindery.api.scaling import SCHEDULER_NAME, ScalingArguments
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.status.conditions import NO_ROOM_FOR_SHARE, pending_writes
from bindery.scheduler.status.scaling import (
    Existing,
    ScalingDemand,
    ScalingPod,
    arguments_of,
    changes,
    demand,
    existing,
    waits,
)
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    delete,
    engine_with,
    group,
    node,
    plan,
    queue,
    report_of,
)
from tests.scheduler.sharedgpus import sharer

HALF = {"gpu-fraction": "0.5"}
MOST = {"gpu-fraction": "0.9"}
MEMORY_LABEL = "nvidia.com/gpu.memory"


def world(*items: kube.KubeObject, **arguments: Any) -> Engine:
    plugins = [PluginConfiguration(name=name) for name in DEFAULT_PLUGINS]
    plugins.append(PluginConfiguration(name="scalingpods", arguments=arguments))
    return engine_with(*items, plugins=plugins, clock=Clock())


def shares(name: str, count: int, share: dict[str, str], **more: Any) -> list[kube.Pod]:
    return [sharer(f"{name}-{i}", share, **more) for i in range(count)]


def asking(pod: kube.Pod, requests: dict[str, str]) -> kube.Pod:
    resources = podspec.ResourceRequirements(requests=requests)
    spec = replace(pod.spec, containers=[podspec.Container(resources=resources)])
    return replace(pod, spec=spec)


def demanded(engine: Engine, covered: Iterable[str] = ()) -> ScalingDemand:
    """Run one cycle; return the demand after it."""
    plan(engine)
    return look(engine, covered)


def look(engine: Engine, covered: Iterable[str] = ()) -> ScalingDemand:
    arguments = arguments_of(engine.configuration)
    assert arguments is not None
    return demand(
        engine.cluster, engine.report, engine.configuration, arguments, frozenset(covered)
    )


def gpus(found: ScalingDemand) -> list[int]:
    return [int(pod.requests["nvidia.com/gpu"]) for pod in found.pods]


FULL = node("full", 64, gpu=0)


# ---- how many, and what they request ----------------------------------------------------------


def test_waiting_shares_of_several_jobs_are_packed_into_whole_gpus() -> None:
    found = demanded(world(FULL, *shares("s", 5, HALF)))

    assert gpus(found) == [1, 1, 1]
    assert [len(pod.pods) for pod in found.pods] == [2, 2, 1]
    assert found.waiting == {f"uid-s-{i}" for i in range(5)}


def test_a_share_of_several_gpus_gets_a_scaling_pod_with_as_many() -> None:
    two = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}

    found = demanded(world(FULL, sharer("a", two), sharer("b", two), sharer("c", HALF)))

    assert gpus(found) == [2, 1]


def test_a_scaling_pod_requests_the_sum_of_its_shares_and_reservation_pods() -> None:
    pods = [asking(pod, {"cpu": "1", "memory": "1Gi"}) for pod in shares("s", 2, HALF)]

    (pod,) = demanded(world(FULL, *pods)).pods

    assert pod.requests == {"cpu": "2001m", "memory": "2080Mi", "nvidia.com/gpu": "1"}


def test_pods_that_must_go_to_different_nodes_have_different_scaling_pods() -> None:
    fast = [sharer(f"f-{i}", HALF, node_selector={"disk": "fast", "gpus": ""}) for i in range(2)]
    taint = [podspec.Toleration(key="gpu", operator="Exists")]
    tolerant = sharer("t-0", HALF, tolerations=taint)

    found = demanded(world(FULL, *fast, tolerant, sharer("p-0", HALF)))

    assert sorted(len(pod.pods) for pod in found.pods) == [1, 1, 2]
    by_pod = {uid: pod.kind for pod in found.pods for uid in pod.pods}
    assert by_pod["uid-f-0"]["nodeSelector"] == {"disk": "fast", "gpus": ""}
    assert by_pod["uid-t-0"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert by_pod["uid-p-0"] == {}


def test_required_node_affinity_and_the_priority_class_are_copied() -> None:
    expression = podspec.NodeSelectorRequirement(key="gpu", operator="In", values=["a100"])
    term = podspec.NodeSelectorTerm(match_expressions=[expression])
    required = podspec.NodeSelector(node_selector_terms=[term])
    affinity = podspec.Affinity(node_affinity=podspec.NodeAffinity(required=required))
    made = sharer("a", HALF, affinity=affinity, priority_class_name="low")

    (pod,) = demanded(world(FULL, made)).pods

    (written,) = pod.kind["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert written["matchExpressions"] == [{"key": "gpu", "operator": "In", "values": ["a100"]}]
    assert pod.kind["priorityClassName"] == "low"


def test_a_share_by_memory_counts_by_the_gpus_that_its_nodes_have() -> None:
    known = node("n", 8, gpu=1, labels={MEMORY_LABEL: "16384"})
    by_memory = {"gpu-memory": "8192"}
    blocker = sharer("b", MOST)

    waiting = demanded(world(known, blocker, *shares("s", 2, by_memory)))
    unknown = demanded(world(FULL, *shares("s", 2, by_memory)))

    assert gpus(waiting) == [1], "two halves of 16 GiB"
    assert gpus(unknown) == [1, 1], "a device of unknown memory is taken for too small for two"


@pytest.mark.parametrize(("cores", "expected"), [(64, 1), (5, 2), (2, 4)])
def test_shares_are_packed_up_to_the_resources_of_a_suitable_node(
    cores: int, expected: int
) -> None:
    small = {"gpu-fraction": "0.25"}
    pods = [asking(pod, {"cpu": "2"}) for pod in shares("s", 4, small)]
    busy = sharer("busy", {"gpu-fraction": "0.9"})

    found = demanded(world(node("n", cores, gpu=1), busy, *pods))

    wanted = [pod for pod in found.pods if any("uid-s" in uid for uid in pod.pods)]
    assert len(wanted) == expected


def test_the_configuration_limits_packing_without_a_suitable_node() -> None:
    pods = [asking(pod, {"cpu": "1"}) for pod in shares("s", 4, {"gpu-fraction": "0.25"})]

    few = demanded(world(FULL, *pods, unknownNodeResources={"cpu": "2100m"}))
    more = demanded(world(FULL, *pods, unknownNodeResources={"cpu": "8"}))

    assert (len(few.pods), len(more.pods)) == (2, 1)


def test_a_gang_above_the_limit_is_skipped_whole_and_the_next_gang_is_not() -> None:
    members = shares("g", 3, MOST, group="g")

    found = demanded(world(FULL, group("g", 3), *members, sharer("z", MOST), maxGpus=2))

    assert [pod.pods for pod in found.pods] == [("uid-z",)]
    assert found.waiting == {"uid-g-0", "uid-g-1", "uid-g-2", "uid-z"}


def test_only_shares_that_lack_room_have_scaling_pods() -> None:
    engine = world(
        node("n", 8, gpu=1),
        queue("q", limits={"cpu": 1, "nvidia.com/gpu": 0}),
        sharer("limited", HALF, queue="q"),
        group("short", 2),
        sharer("short-0", HALF, group="short"),
        sharer("fits", HALF),
    )

    found = demanded(engine)

    assert (found.pods, found.waiting) == ([], set())


def test_pods_of_a_node_pool_request_nodes_of_the_pool() -> None:
    made = sharer("a", HALF)
    labels = {**made.metadata.labels, NODE_POOL_LABEL: "a100"}
    made = replace(made, metadata=replace(made.metadata, labels=labels))
    plugins = [PluginConfiguration(name=name) for name in (*DEFAULT_PLUGINS, "scalingpods")]

    (pod,) = demanded(engine_with(made, plugins=plugins, clock=Clock(), node_pool="a100")).pods

    assert pod.kind["nodeSelector"] == {NODE_POOL_LABEL: "a100"}


# ---- what a scaling pod is --------------------------------------------------------------------


def stored(pod: ScalingPod, *, marked: bool = True) -> kube.Pod:
    """Return the object that the watch shows after `pod` was created."""
    made = msgspec.convert(pod.to_object("owner"), kube.Pod)
    meta = replace(made.metadata, namespace=ScalingArguments().namespace, uid=f"uid-{pod.name}")
    said = kube.Condition(type="PodScheduled", status="False", reason="Unschedulable")
    status = kube.PodStatus(conditions=[said] if marked else None)
    return replace(made, metadata=meta, status=status)


def test_a_scaling_pod_cannot_be_bound_and_is_ignored_by_all_schedulers() -> None:
    engine = world(FULL, sharer("a", HALF))
    (pod,) = demanded(engine).pods

    spec = pod.to_object("owner")["spec"]
    add(engine.cluster, stored(pod))
    plan(engine)

    assert spec["schedulingGates"], "the API server binds no pod with a gate"
    assert spec["schedulerName"] == SCHEDULER_NAME
    assert [key.name for key in engine.report.jobs] == ["a"]


def test_the_reason_of_the_job_names_its_scaling_pod() -> None:
    engine = world(FULL, sharer("a", HALF))
    (pod,) = demanded(engine).pods
    assert "scaling pod" not in report_of(engine, "a").message

    add(engine.cluster, stored(pod))
    plan(engine)
    assert f"scaling pod bindery-scaling/{pod.name}" in report_of(engine, "a").message

    delete(engine.cluster, stored(pod))
    plan(engine)
    assert "scaling pod" not in report_of(engine, "a").message


@pytest.mark.parametrize(("hides", "reason"), [(True, NO_ROOM_FOR_SHARE), (False, "Unschedulable")])
def test_an_autoscaler_sees_the_scaling_pods_instead_of_the_shares(
    hides: bool, reason: str
) -> None:
    engine = world(FULL, sharer("a", HALF))
    plan(engine)

    (write,) = pending_writes(engine.cluster, engine.report, NOW, hides_shares=hides)

    assert write.condition.reason == reason


# ---- when they are written --------------------------------------------------------------------


def known(*pods: ScalingPod) -> dict[str, Existing]:
    return {pod.name: existing(stored(pod)) for pod in pods}


def created(
    found: ScalingDemand, present: dict[str, Existing], *, may_create: bool = True
) -> Sequence[str]:
    return [pod.name for pod in changes(present, found, may_create=True).create]


def test_existing_scaling_pods_are_not_written_again() -> None:
    found = demanded(world(FULL, *shares("s", 3, HALF)))

    assert len(created(found, {})) == 2
    assert not changes(known(*found.pods), found, may_create=True)


def test_a_scaling_pod_is_deleted_as_soon_as_one_of_its_shares_has_a_place() -> None:
    engine = world(FULL, *shares("s", 2, HALF))
    found = demanded(engine)
    covered = found.pods[0].pods
    assert all(waits(engine.cluster, uid) for uid in covered)

    add(engine.cluster, node("new", 8, gpu=1))
    plan(engine)

    assert not any(waits(engine.cluster, uid) for uid in covered)
    after = changes(known(*found.pods), look(engine), may_create=True)
    assert after.delete == [found.pods[0].name]
    assert not after.create


def test_remaining_shares_get_a_new_scaling_pod_after_the_cooldown() -> None:
    engine = world(FULL, *shares("s", 2, HALF))
    first = demanded(engine)
    delete(engine.cluster, sharer("s-0", HALF))
    found = demanded(engine)

    soon = changes(known(*first.pods), found, may_create=False)
    later = changes(known(*first.pods), found, may_create=True)

    assert (soon.delete, soon.create) == ([first.pods[0].name], ())
    assert [pod.pods for pod in later.create] == [("uid-s-1",)]


def test_an_untried_job_keeps_its_scaling_pods_and_gets_no_new_ones() -> None:
    engine = world(FULL, *shares("s", 2, HALF))
    (pod,) = demanded(engine).pods
    for key, report in list(engine.report.jobs.items()):
        engine.report.jobs[key] = dataclasses.replace(
            report, reason=JobReason.NOT_TRIED_YET, waits_for=""
        )

    kept, others = look(engine, pod.pods), look(engine)

    assert not changes(known(pod), kept, may_create=True)
    assert (others.pods, others.waiting) == ([], set(pod.pods))


def test_a_new_share_changes_only_the_scaling_pod_that_it_joins() -> None:
    engine = world(FULL, *shares("s", 3, HALF))
    first = demanded(engine)
    add(engine.cluster, sharer("t", HALF))

    after = changes(known(*first.pods), demanded(engine), may_create=True)

    assert after.delete == [first.pods[1].name]
    assert [pod.pods for pod in after.create] == [("uid-s-2", "uid-t")]


@pytest.mark.parametrize("change", [{"node_name": "n"}, {"phase": "Failed"}])
def test_a_bound_or_ended_scaling_pod_is_replaced(change: dict[str, str]) -> None:
    found = demanded(world(FULL, sharer("a", HALF)))
    (name,) = (pod.name for pod in found.pods)
    item = stored(found.pods[0])
    if "phase" in change:
        item = replace(item, status=replace(item.status, **change))
    else:
        item = replace(item, spec=replace(item.spec, **change))

    after = changes({name: existing(item)}, found, may_create=True)

    assert after.delete == [name]
    assert [pod.name for pod in after.create] == [name]


def test_a_scaling_pod_without_shares_is_deleted() -> None:
    found = demanded(world(FULL, sharer("a", HALF)))
    stray = stored(found.pods[0])
    annotations = {SCALES_FOR_ANNOTATION: ""}
    stray = replace(stray, metadata=replace(stray.metadata, annotations=annotations))

    assert changes({"stray": existing(stray)}, found, may_create=False).delete == ["stray"]


def test_an_existing_scaling_pod_is_marked_only_with_its_condition() -> None:
    (pod,) = demanded(world(FULL, sharer("a", HALF))).pods

    assert existing(stored(pod)).is_marked
    assert not existing(stored(pod, marked=False)).is_marked
