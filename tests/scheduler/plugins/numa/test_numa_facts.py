"""Reports with the zones of each pod: facts in place of records and guesses."""

from typing import Any

import pytest

from bindery.api.numadetail import PodZones
from bindery.kube.objects.nodetopologies import NodeResourceTopology
from bindery.scheduler.plugins.findings import OTHER_ZONES
from bindery.scheduler.plugins.numa.reports import ReportError, read
from tests.scheduler.numaworld import (
    GIB,
    NumaWorld,
    aligned_pod,
    bound,
    numa_node,
    on_zone,
    report,
)
from tests.scheduler.schedulerworld import plan, pod

CAPACITY = {"cpu": "8", "memory": "16Gi"}


def on(*zones: int, cpu: int, memory_gib: int = 1) -> PodZones:
    """Return what a pod holds: its CPUs and its memory, in equal parts on `zones`."""
    each = {"cpu": cpu // len(zones), "memory": memory_gib * GIB // len(zones)}
    names = [f"node-{zone}" for zone in zones]
    return PodZones(held=dict.fromkeys(names, each), memory=[names] if len(zones) > 1 else [])


def told(free: list[int], memory: list[int], **held: PodZones) -> NodeResourceTopology:
    """Return a report about pods and their zones."""
    return report(
        "n",
        free={"cpu": free, "memory": memory},
        pods=[f"uid-{name}" for name in held],
        detail={"held": {f"uid-{name}": each for name, each in held.items()}},
    )


def wrong(world: NumaWorld) -> list[str]:
    """Return the reasons of wrong predictions in the next cycle."""
    world.drafts()
    return [each.reason for each in world.engine.report.answers if each.reason]


def test_a_pod_that_ends_gives_back_the_zones_of_the_report_and_not_the_recorded_ones() -> None:
    there = bound(aligned_pod("a", cpu=3), "n", on_zone(0, 3))
    world = NumaWorld(numa_node("n"), there, told([4, 1], [8, 7], a=on(1, cpu=3)))
    world.put(aligned_pod("b", cpu=4))
    assert world.zones() == {"b": ("n", [0])}

    world.remove(there)
    world.put(aligned_pod("c", cpu=4))

    assert world.zones() == {"c": ("n", [1])}


def test_a_foreign_pod_on_two_zones_is_given_back_at_once() -> None:
    """Without its part in the report, its zones could only be guessed, and it fits into none."""
    foreign = bound(aligned_pod("a", cpu=6), "n")
    world = NumaWorld(
        numa_node("n"), foreign, told([1, 1], [7, 7], a=on(0, 1, cpu=6, memory_gib=2))
    )
    world.put(aligned_pod("b", cpu=4))
    assert plan(world.engine) == {}

    world.remove(foreign)

    assert world.zones() == {"b": ("n", [0])}


def test_zones_whose_memory_a_foreign_pod_uses_together_are_used_so() -> None:
    foreign = bound(aligned_pod("a", cpu=2), "n")
    shown = told([3, 3], [7, 7], a=on(0, 1, cpu=2, memory_gib=2))
    world = NumaWorld(numa_node("n"), foreign, shown, aligned_pod("b", cpu=1))

    assert plan(world.engine) == {}  # the kubelet gives it no memory of one of them alone


def test_old_readers_and_old_reports_are_unaffected() -> None:
    before = read(report("n", pods=["uid-a"]), CAPACITY)

    assert before is not None
    assert before.part("uid-a") is None
    assert before.zones.groups == ()


def test_groups_of_memory_come_from_the_report() -> None:
    both = ["node-0", "node-1"]
    shown = report("n", pods=[], detail={"memory_groups": dict.fromkeys(both, both)})
    found = read(shown, CAPACITY)

    assert found is not None
    assert found.zones.groups == (0b11, 0b11)


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ({"held": {"a": PodZones(held={"node-7": {"cpu": 1}})}}, "there is no zone 'node-7'"),
        ({"held": {"a": PodZones(held={"node-0": {"cpu": -1}})}}, "an amount is negative"),
        ({"held": {"a": PodZones(memory=[["node-0", "node-7"]])}}, "there is no zone 'node-7'"),
        ({"memory_groups": {"node-0": ["node-7"]}}, "there is no zone 'node-7'"),
    ],
)
def test_parts_that_the_node_cannot_have_are_refused(detail: dict[str, Any], text: str) -> None:
    with pytest.raises(ReportError, match=text):
        read(report("n", pods=[], detail=detail), CAPACITY)


def test_a_pod_on_other_zones_than_predicted_counts_once_as_wrong() -> None:
    world = NumaWorld(numa_node("n"), told([4, 4], [8, 8]))
    world.drafts()
    world.put(bound(aligned_pod("a", cpu=3), "n", on_zone(0, 3)))
    world.put(bound(aligned_pod("b", cpu=3), "n", on_zone(1, 3)))
    assert wrong(world) == []

    shown = told([4, 1], [8, 7], a=on(1, cpu=3))
    world.put(shown)
    assert wrong(world) == [OTHER_ZONES]

    world.put(told([1, 1], [7, 7], a=on(1, cpu=3), b=on(0, cpu=3)))
    assert wrong(world) == [OTHER_ZONES]
    world.put(pod("other", cpu="100m", on="n"))
    assert wrong(world) == []


def test_a_scheduler_that_starts_does_not_count_what_ran_before() -> None:
    there = bound(aligned_pod("a", cpu=3), "n", on_zone(0, 3))

    assert wrong(NumaWorld(numa_node("n"), there, told([4, 1], [8, 7], a=on(1, cpu=3)))) == []
