"""Pods that a report does not include yet, and pods that it still includes."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects import watched as kube
from tests.scheduler.numaworld import (
    BEST_EFFORT,
    GIB,
    NumaWorld,
    aligned_pod,
    bound,
    container,
    numa_node,
    on_zone,
    report,
)
from tests.scheduler.schedulerworld import GPU, as_created, plan, pod


def started(world: NumaWorld, *pods: kube.Pod) -> dict[str, tuple[str, list[int] | None]]:
    """Plan `pods`, let the binder bind them as planned, and return their places."""
    world.put(*pods)
    by_name = {each.metadata.name: each for each in pods}
    found: dict[str, tuple[str, list[int] | None]] = {}
    for draft in world.drafts():
        world.put(as_created(draft))
        for each in draft.spec.pods:
            data = each.plugin_data.get("numa")
            placement = msgspec.convert(data, NumaPlacement) if data else None
            found[each.pod_name] = each.selected_node, placement.zones if placement else None
            item = by_name[each.pod_name]
            world.put(bound(item, each.selected_node, placement, phase="Pending"))
    return found


def test_planned_pods_stay_deducted_until_the_report_lists_them() -> None:
    world = NumaWorld(numa_node("n"), report("n", pods=[]))
    assert started(world, aligned_pod("a", cpu=3)) == {"a": ("n", [0])}
    assert started(world, aligned_pod("b", cpu=3)) == {"b": ("n", [1])}

    world.put(aligned_pod("c", cpu=3))
    assert plan(world.engine) == {}
    world.put(report("n", free={"cpu": [1, 4], "memory": [7, 8]}, pods=["uid-a"]))
    assert plan(world.engine) == {}
    world.put(report("n", free={"cpu": [1, 1], "memory": [7, 7]}, pods=["uid-a", "uid-b"]))
    assert plan(world.engine) == {}
    world.put(aligned_pod("small", cpu=1))
    assert world.zones() == {"small": ("n", [0])}


def test_a_pod_of_an_active_request_is_deducted() -> None:
    world = NumaWorld(numa_node("n"), report("n"), aligned_pod("a", cpu=4))
    (draft,) = world.drafts()
    world.put(as_created(draft), aligned_pod("b", cpu=4))

    assert world.zones() == {"b": ("n", [1])}


def test_a_restarted_scheduler_deducts_requests_and_records() -> None:
    world = NumaWorld(numa_node("n"), report("n", pods=[]), aligned_pod("a", cpu=3))
    (draft,) = world.drafts()

    waits = as_created(draft)
    again = NumaWorld(
        numa_node("n"), waits, report("n", pods=[]), aligned_pod("a", cpu=3),
        aligned_pod("b", cpu=3), aligned_pod("c", cpu=3),
    )  # fmt: skip
    assert again.zones() == {"b": ("n", [1])}

    again = NumaWorld(
        numa_node("n"), bound(aligned_pod("a", cpu=3), "n", on_zone(1, 3)),
        report("n", pods=[]), aligned_pod("b", cpu=3), aligned_pod("c", cpu=3),
    )  # fmt: skip
    assert again.zones() == {"b": ("n", [0])}


def test_a_fingerprint_shows_which_pods_are_included() -> None:
    def signed(free: list[int], *pods: kube.Pod) -> Any:
        memory = [8 if cpus == 4 else 7 for cpus in free]
        return report("n", free={"cpu": free, "memory": memory}, signed=pods)

    other, a, b = pod("other", cpu="100m", on="n"), aligned_pod("a", cpu=3), aligned_pod("b", cpu=3)
    world = NumaWorld(numa_node("n", cpu=5), other, signed([4, 4], other))
    assert started(world, a) == {"a": ("n", [0])}
    assert started(world, b) == {"b": ("n", [1])}

    world.put(signed([1, 4], other, a), aligned_pod("c", cpu=2))
    assert plan(world.engine) == {}  # b is not included
    world.put(signed([3, 4], other))  # an older report cannot take a back
    assert plan(world.engine) == {}
    world.put(signed([1, 1], b, a, other), aligned_pod("d", cpu=1))
    assert world.zones() == {"d": ("n", [0])}


def test_a_report_without_list_and_fingerprint_must_be_newer_and_cover_the_pod() -> None:
    def reported(free: list[int], version: str) -> Any:
        return report("n", {"cpu": 4}, free={"cpu": free}, version=version)

    world = NumaWorld(numa_node("n"), reported([4, 4], "1"))
    a = aligned_pod("a", cpu=3)
    assert started(world, a) == {"a": ("n", [0])}

    world.put(aligned_pod("b", cpu=2))
    held = bound(a, "n", on_zone(0, 3))
    assert world.zones() == {"b": ("n", [1])}
    world.put(held)
    world.drafts()
    # Still the old state: the zone in use is another one.
    world.put(reported([4, 3], "2"), aligned_pod("c", cpu=2))
    assert world.zones() == {}
    world.put(reported([1, 4], "3"))
    assert world.zones() == {"c": ("n", [1])}


@pytest.mark.parametrize("listed", [True, False])
def test_pods_that_ran_before_the_scheduler_started_count_once(listed: bool) -> None:
    a = bound(aligned_pod("a", cpu=3), "n")  # another scheduler bound it
    stored = report("n", free={"cpu": [1, 4], "memory": [7, 8]}, pods=["uid-a"] if listed else None)
    world = NumaWorld(numa_node("n"), a, stored, aligned_pod("b", cpu=1), aligned_pod("c", cpu=4))

    assert world.zones() == {"b": ("n", [0]), "c": ("n", [1])}


def test_a_pod_of_another_scheduler_is_predicted_as_its_node_places_it() -> None:
    world = NumaWorld(numa_node("n"), report("n", pods=[]))
    world.drafts()
    foreign = aligned_pod("foreign", cpu=4, scheduler="other")
    world.put(bound(foreign, "n", phase="Pending"), aligned_pod("a", cpu=4))

    assert world.zones() == {"a": ("n", [1])}


def test_an_ended_pod_releases_its_zones_before_the_next_report() -> None:
    full = report("n", free={"cpu": [0, 0], "memory": [7, 7]}, pods=["uid-a", "uid-b"])
    a = bound(aligned_pod("a", cpu=4), "n", on_zone(0, 4))
    b = bound(aligned_pod("b", cpu=4), "n", on_zone(1, 4))
    world = NumaWorld(numa_node("n"), full, a, b, aligned_pod("c", cpu=4))
    assert world.zones() == {}

    world.remove(b)
    assert world.zones() == {"c": ("n", [1])}


def test_an_ended_pod_of_unknown_zones_is_deducted_until_the_next_report() -> None:
    full = report("n", free={"cpu": [0, 0], "memory": [7, 7]}, pods=["uid-a", "uid-b"])
    a, b = bound(aligned_pod("a", cpu=4), "n"), bound(aligned_pod("b", cpu=4), "n")
    world = NumaWorld(numa_node("n"), full, a, b, aligned_pod("c", cpu=4))
    world.drafts()

    world.remove(b)
    assert world.zones() == {}
    world.put(report("n", free={"cpu": [0, 4], "memory": [7, 8]}, pods=["uid-a"]))
    assert world.zones() == {"c": ("n", [1])}


def test_the_record_of_another_pod_is_ignored() -> None:
    copied = bound(aligned_pod("a", cpu=4), "n", on_zone(1, 4), phase="Pending")
    copied = msgspec.structs.replace(
        copied, metadata=msgspec.structs.replace(copied.metadata, uid="uid-x", name="x")
    )
    world = NumaWorld(numa_node("n"), report("n", pods=[]), copied, aligned_pod("b", cpu=4))

    assert world.zones() == {"b": ("n", [1])}  # predicted: zone 0


def on_both_zones(cpu: int) -> NumaPlacement:
    """Return a record of a pod with `cpu` CPUs and 1 GiB on each of two zones."""
    held = {str(zone): {"cpu": cpu, "memory": GIB} for zone in (0, 1)}
    return NumaPlacement(zones=[0, 1], held=held)


def test_memory_stays_used_together_when_another_pod_that_used_it_so_ends() -> None:
    a = bound(aligned_pod("a", cpu=2, memory="2Gi"), "n", on_both_zones(1))
    b = bound(aligned_pod("b", cpu=2, memory="2Gi"), "n", on_both_zones(1))
    left = {"cpu": [2, 2], "memory": [6, 6]}
    listed = report("n", free=left, pods=["uid-a", "uid-b"], policy="restricted")
    world = NumaWorld(numa_node("n"), listed, a, b)
    world.drafts()
    world.remove(b)
    world.put(aligned_pod("c", cpu=2))

    # One zone is enough for c, but the memory of both is given together only.
    assert world.zones() == {}


@pytest.mark.parametrize(
    ("together", "zones"), [(None, {}), ([[0, 1]], {}), ([], {"c": ("n", [0])})]
)
def test_memory_on_two_zones_is_used_together_only_if_the_record_has_it_so(
    together: list[list[int]] | None, zones: Mapping[str, object]
) -> None:
    """Two containers may have theirs alone. Records of earlier versions do not distinguish them."""
    record = msgspec.structs.replace(on_both_zones(1), together=together)
    a = bound(aligned_pod("a", cpu=2, memory="2Gi"), "n", record)
    listed = report("n", pods=[], policy="restricted")

    world = NumaWorld(numa_node("n"), listed, a, aligned_pod("c", cpu=2))

    assert world.zones() == zones


def test_the_record_of_a_pod_has_which_containers_use_memory_alone() -> None:
    """Each container fits one zone, and none has room for both."""
    pair = pod("a", containers=[container(3), container(3)])
    world = NumaWorld(numa_node("n"), report("n", pods=[], policy=BEST_EFFORT), pair)

    [draft] = world.drafts()

    [placed] = draft.spec.pods
    assert placed.plugin_data["numa"]["zones"] == [0, 1]
    assert placed.plugin_data["numa"]["together"] == []


def test_a_node_with_a_new_resource_leaves_the_guesses_of_other_nodes_usable() -> None:
    world = NumaWorld(numa_node("n"), report("n", pods=[]))
    for resource in (GPU, "example.com/nic"):
        # A pod of another scheduler: its zones are predicted once and then kept.
        foreign = aligned_pod(f"foreign-{resource[:3]}", cpu=3, scheduler="other")
        world.put(bound(foreign, "n", phase="Pending"))
        world.drafts()
        name, of_zone = f"m-{resource[:3]}", {"cpu": 4, "memory": 8, resource: 1}
        world.put(numa_node(name, more={resource: 2}, unschedulable=True), report(name, of_zone))

    world.put(aligned_pod("small", cpu=1), aligned_pod("large", cpu=3))
    assert world.zones() == {"small": ("n", [0])}
