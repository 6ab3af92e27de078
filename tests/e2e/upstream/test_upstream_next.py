"""The PodGroup API of Kubernetes 1.37: composite groups, changed minima, Jobs with scheduling."""

from typing import Any

import pytest

from bindery.kube.objects.resources import NODES
from devcluster.settings import Features
from tests.e2e.support import Corner
from tests.e2e.upstream.upstreamcorner import Upstream, gang

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder", "grouper")]

VERSION = "v1beta1"
FEATURES = Features(
    (
        "GenericWorkload",
        "CompositePodGroup",
        "PodGroupPreemptionPolicy",
        "TopologyAwareWorkloadScheduling",
        "DRAWorkloadResourceClaims",
        "WorkloadWithJob",
    ),
    ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"),
)
IS_NEXT = True
SCHEDULED = "PodGroupInitiallyScheduled"


async def test_a_gang_starts_when_its_minimum_is_lowered(
    corner: Corner, upstream: Upstream
) -> None:
    await corner.add_nodes("a", cpu="2")
    await upstream.create("train", gang(3))
    await upstream.submit("train", "w0", "w1", "w2")
    await upstream.wait_said("train", SCHEDULED, ["False", "Unschedulable"])
    assert await upstream.bound("train") == []

    patch = {"spec": gang(2)}
    await corner.client.patch(upstream.kind(), "train", patch, namespace=corner.namespace)

    await upstream.wait_bound("train", 2)
    await upstream.wait_said("train", SCHEDULED, ["True", "Scheduled"])


async def test_a_scheduled_group_keeps_its_condition(corner: Corner, upstream: Upstream) -> None:
    await corner.add_nodes("a", cpu="2")
    await upstream.create("train", gang(2))
    await upstream.submit("train", "w0", "w1")
    first = await upstream.wait_said("train", SCHEDULED, ["True", "Scheduled"])

    await upstream.submit("train", "big", cpu="64")
    await corner.delete_pod("w1")
    await upstream.submit("train", "w2")
    await upstream.wait_bound("train", 2)

    assert (await upstream.conditions("train"))[SCHEDULED] == first


def composite(count: int, parent: str = "", **further: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minGroupCount": count}},
        "workloadRef": {"workloadName": "work", "templateName": "whole"},
        **further,
    }
    return {**made, "parentCompositePodGroupName": parent} if parent else made


def within(key: str) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}


async def make_tree(upstream: Upstream, count: int, zone: str = "", rack: str = "") -> None:
    """Create two groups of two pods under one that needs `count` of them.

    `zone`, `rack`: the node labels of the domains of the whole and of each group.
    """
    templates = [{"name": name, **gang(2), **within(rack)} for name in ("left", "right")]
    whole = {
        "name": "whole",
        "schedulingPolicy": {"gang": {"minGroupCount": count}},
        "podGroupTemplates": templates,
        **within(zone),
    }
    workload = {"compositePodGroupTemplates": [whole], "podGroupTemplates": None}
    await upstream.make(upstream.kind("Workload", "v1alpha3"), "work", workload)
    kind = upstream.kind("CompositePodGroup", "v1alpha3")
    await upstream.make(kind, "whole", composite(count, **within(zone)))
    for name in ("left", "right"):
        spec = {
            **gang(2),
            **within(rack),
            "parentCompositePodGroupName": "whole",
            "workloadRef": {"workloadName": "work", "templateName": name},
        }
        await upstream.create(name, spec)


@pytest.mark.parametrize(("count", "bound"), [(1, 2), (2, 0)])
async def test_a_composite_group_is_bound_only_with_its_minimum_of_groups(
    corner: Corner, upstream: Upstream, count: int, bound: int
) -> None:
    await corner.add_nodes("a", cpu="2")
    await make_tree(upstream, count)
    await upstream.submit("left", "l0", "l1")
    await upstream.submit("right", "r0", "r1")
    kind = upstream.kind("CompositePodGroup", "v1alpha3")

    answer = ["True", "Scheduled"] if bound else ["False", "Unschedulable"]
    await upstream.wait_said("whole", "CompositePodGroupInitiallyScheduled", answer, kind)

    found = [len(await upstream.bound(name)) for name in ("left", "right")]
    assert sorted(found) == [0, bound]

    await corner.add_nodes("b", cpu="2")
    await upstream.wait_bound("left", 2)
    await upstream.wait_bound("right", 2)
    for name in ("left", "right"):
        await upstream.wait_said(name, SCHEDULED, ["True", "Scheduled"])


async def test_the_domain_of_a_group_is_within_the_domain_of_its_parent_group(
    corner: Corner, upstream: Upstream
) -> None:
    zone, rack = f"{corner.namespace}/zone", f"{corner.namespace}/rack"
    # The racks of a zone have room for one group each; only zone 1 has two of them.
    nodes = await corner.add_nodes("a", "b", "c", cpu="2")
    for node, domain in zip(nodes, ("z0", "z1", "z1"), strict=True):
        labels = {"metadata": {"labels": {zone: domain, rack: node}}}
        await corner.client.patch(NODES, node, labels)
    await make_tree(upstream, 2, zone, rack)

    await upstream.submit("left", "l0", "l1")
    await upstream.submit("right", "r0", "r1")
    await upstream.wait_bound("left", 2)
    await upstream.wait_bound("right", 2)

    places = {
        name: {pod.spec.node_name for pod in await upstream.pods(name)}
        for name in ("left", "right")
    }
    assert all(len(each) == 1 for each in places.values())
    assert places["left"] | places["right"] == set(nodes[1:])


async def test_a_job_with_scheduling_is_bound_as_a_gang(corner: Corner, upstream: Upstream) -> None:
    await corner.add_nodes("a", cpu="2")
    group = await upstream.create_job("train", scheduling={"schedulingPolicy": {"gang": {}}})
    await upstream.wait_said(group, SCHEDULED, ["False", "Unschedulable"])
    assert await upstream.bound(group) == []

    await corner.add_nodes("b", cpu="2")
    await upstream.wait_bound(group, 3)
