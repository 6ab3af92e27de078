"""Pods that their nodes refused: the node is avoided, the refusal is reported and counted."""

import msgspec
import numpy as np
import pytest

from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import PodBinding
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.plugins.cooldown import Cooldown
from tests.scheduler.numaworld import NumaWorld, aligned_pod, numa_node, on_zone, refused, report
from tests.scheduler.numaworld import bound as bound_on
from tests.scheduler.schedulerworld import NOW, engine_with, node, pod, report_of, session_of

REASONS = [
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "SMTAlignmentError",
    "OutOfcpu",
    "PodFeatureUnsupported",
]


@pytest.mark.parametrize("reason", REASONS)
def test_equal_pods_avoid_the_node_of_a_refusal_for_a_while(reason: str) -> None:
    world = NumaWorld(numa_node("n"), report("n"), aligned_pod("a"))
    world.put(
        refused(aligned_pod("a"), "n", reason), aligned_pod("b"), aligned_pod("larger", cpu=3)
    )

    assert world.zones() == {"larger": ("n", [0])}
    message = report_of(world.engine, "b").message
    assert message == "0/1 nodes are available: 1 refused an equal pod a short while ago"
    world.clock.now += 14
    assert "b" not in world.zones()
    world.clock.now += 2
    assert world.zones() == {"b": ("n", [1])}


def test_a_node_that_refuses_again_is_avoided_for_longer() -> None:
    world = NumaWorld(node("n"))
    ends = []
    for turn in range(5):
        world.put(refused(pod(f"p{turn}"), "n", "OutOfcpu"), pod(f"q{turn}"))
        for waits_s in range(100):
            if f"q{turn}" in world.zones():
                ends.append(waits_s)
                break
            world.clock.now += 1

    assert ends == [15, 30, 60, 60, 60]


def test_a_refusal_ends_when_the_device_plugin_registers_its_devices() -> None:
    world = NumaWorld(node("n"), pod("p"))
    world.put(refused(pod("p"), "n", "UnexpectedAdmissionError"), pod("q"))
    assert world.zones() == {}
    world.put(node("n", labels={"a": "b"}))
    assert world.zones() == {}

    world.put(node("n", gpu=2))

    assert world.zones() == {"q": ("n", None)}


def test_the_prediction_and_the_decision_of_the_node_are_reported() -> None:
    world = NumaWorld(numa_node("n"), report("n"), aligned_pod("a"))
    world.put(refused(aligned_pod("a"), "n"), aligned_pod("b"))
    world.drafts()

    (waiting,) = [each for each in report_of(world.engine, "b").pods.values() if each.name == "b"]
    assert waiting.message.endswith(
        "node n refused pod a (TopologyAffinityError: Pod was rejected: Resources cannot be "
        "allocated with Topology locality), where NUMA zone 0 had been predicted"
    )


def test_a_refused_pod_of_another_namespace_is_not_named() -> None:
    other = pod("merger", cpu=2, namespace="acme")
    world = NumaWorld(node("a"), other)
    world.put(refused(other, "a", "OutOfcpu"), pod("p", cpu=2))
    world.drafts()

    (waiting,) = report_of(world.engine, "p").pods.values()
    assert "node a refused an equal pod (OutOfcpu" in waiting.message
    assert "merger" not in waiting.message


def test_refusals_of_nodes_without_zones_count() -> None:
    world = NumaWorld(node("a"), node("b"), pod("p", cpu=2), pod("q", cpu=1))
    failed = refused(pod("p", cpu=2), "a", "OutOfcpu")
    world.put(failed, pod("p2", cpu=2))

    assert world.zones()["p2"] == ("b", None)


def test_other_failures_do_not_count_against_the_node() -> None:
    world = NumaWorld(node("a"), pod("p"))
    world.put(refused(pod("p"), "a", "Evicted"), pod("q"))

    assert world.zones() == {"q": ("a", None)}


def test_a_refusal_before_the_start_of_the_scheduler_counts_from_its_own_time() -> None:
    def at(text: str) -> kube.Pod:
        item = refused(aligned_pod("a"), "n")
        status = msgspec.structs.replace(item.status, start_time=text)
        return msgspec.structs.replace(item, status=status)

    for text, expected in (("2025-06-15T15:06:25Z", {"b"}), ("2025-06-15T15:06:26Z", set())):
        world = NumaWorld(numa_node("n"), at(text), report("n"), aligned_pod("b"))
        assert NOW == 1_750_000_000
        assert set(world.zones()) == expected


def test_questions_do_not_change_which_refusals_are_known() -> None:
    plugin, cluster = Cooldown(), engine_with(node("n"), pod("q")).cluster
    plugin.observe(Change(EventType.ADDED, refused(pod("p"), "n", "OutOfcpu"), None))
    session_of(cluster, plugin)
    session = session_of(cluster, plugin, now=NOW + 1000)
    shape = cluster.state.tasks[Uid("uid-q")].shape

    is_known = plugin.keeps_room_for(shape)
    assert plugin.has_room(session, shape, np.array([0]), False).all()
    assert plugin.keeps_room_for(shape) is is_known
    assert not is_known


def test_the_deletion_of_the_refused_pod_changes_nothing() -> None:
    world = NumaWorld(numa_node("n"), report("n"), aligned_pod("a"))
    world.put(refused(aligned_pod("a"), "n"))
    world.remove(refused(aligned_pod("a"), "n"))
    world.put(aligned_pod("b"))

    assert world.zones() == {}


def test_each_prediction_is_counted_once_when_the_node_decides() -> None:
    world = NumaWorld(numa_node("n"), report("n"))
    waiting = [bound_on(aligned_pod(name), "n", on_zone(0, 2), phase="Pending") for name in "ab"]
    world.put(*waiting)
    world.put(refused(aligned_pod("a"), "n"), bound_on(aligned_pod("b"), "n", on_zone(0, 2)))
    world.put(refused(aligned_pod("a"), "n"), bound_on(aligned_pod("b"), "n", on_zone(0, 2)))
    world.drafts()

    assert sorted(each.reason for each in world.engine.report.answers) == [
        "",
        "TopologyAffinityError",
    ]
    world.drafts()
    assert world.engine.report.answers == []


def test_pods_decided_before_the_start_of_the_scheduler_are_not_counted() -> None:
    world = NumaWorld(numa_node("n"), report("n"), refused(aligned_pod("a"), "n"))
    world.put(refused(aligned_pod("a"), "n"))
    world.drafts()

    assert world.engine.report.answers == []


def test_simulated_bindings_write_the_record_that_the_binder_would_write() -> None:
    world = NumaWorld(numa_node("n"), report("n"), aligned_pod("a"))
    (draft,) = world.drafts()
    (planned,) = draft.spec.pods
    binding = msgspec.convert(
        {"podName": "a", "podUID": "uid-a", "selectedNode": "n", "pluginData": planned.plugin_data},
        PodBinding,
    )

    effects = world.engine.bind_effects(aligned_pod("a"), binding)

    records = [effect.metadata.annotations.get(NUMA_ZONES_ANNOTATION) for effect in effects]
    assert [record for record in records if record] == [on_zone(0, 2).record("uid-a")]
