"""Domains in planning: read lazily, the best of several plans, one answer for equal gangs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bindery.api.configuration import PluginConfiguration
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import SubGroup, TopologyConstraint
from bindery.kube.objects.topology import Topology, TopologyLevel, TopologySpec
from bindery.scheduler.model.domains import Domain
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.plugins.registry import PluginSet
from tests.scheduler.planning.test_cycle_ends import with_plugins
from tests.scheduler.schedulerworld import engine_with, gang, group, node, plan, pod, report_of

RACKS = Topology(
    metadata=kube.Meta(name="dc", uid="dc"),
    spec=TopologySpec(levels=[TopologyLevel(node_label="rack")]),
)
IN_A_RACK = TopologyConstraint(name="dc", required="rack")


class NodeByNode:
    """Offers each node as a domain, and counts how many have been read."""

    name = "node-by-node"

    def __init__(self) -> None:
        self.read = 0

    def gang_domains(self, session: Any, _job: Job, _pods: Any, _freeable: Any) -> Iterator[Domain]:
        for row in session.order:
            self.read += 1
            mask = np.zeros(len(session.state.nodes.nodes), dtype=np.bool_)
            mask[row] = True
            yield Domain(mask)


class CountsFinders:
    """Counts how often nodes are searched for a job: once for each domain that is tried."""

    name = "counts-finders"

    def __init__(self) -> None:
        self.count = 0

    def job_node_failures(self, _session: Any, _job: Job) -> Iterator[Any]:
        self.count += 1
        return iter(())


def test_domains_are_read_only_when_they_are_tried() -> None:
    engine = engine_with(*(node(f"n{at}") for at in range(5)), *gang("g", 2))
    plugin = NodeByNode()
    with_plugins(engine, plugin)

    assert plan(engine) == {"g-0": "n0", "g-1": "n0"}
    assert plugin.read == 1


def test_a_rack_with_too_little_room_in_total_is_never_searched() -> None:
    racks = [node(f"n{at:02}", gpu=1, labels={"rack": f"r{at}"}) for at in range(30)]
    large = node("large", gpu=4, labels={"rack": "large"})
    pods = [pod(f"g-{at}", gpu=1, group="g") for at in range(4)]
    engine = engine_with(RACKS, *racks, large, group("g", 4, topology=IN_A_RACK), *pods)
    plugin = CountsFinders()
    engine._plugins = PluginSet([*engine._plugins.plugins, plugin])

    assert set(plan(engine).values()) == {"large"}
    assert plugin.count <= 2  # for the job, and for the one rack that is large enough


def test_the_domain_with_the_best_plan_below_it_is_used() -> None:
    """Both blocks have room; only in the second is a sub-group in one rack."""
    blocks = Topology(
        metadata=kube.Meta(name="dc", uid="dc"),
        spec=TopologySpec(levels=[TopologyLevel(node_label=key) for key in ("block", "rack")]),
    )
    nodes = [
        node(name, gpu=1, labels={"block": block, "rack": rack})
        for name, block, rack in (
            ("a0", "b1", "r1"),
            ("a1", "b1", "r2"),
            ("b0", "b2", "r1"),
            ("b1", "b2", "r1"),
            ("b2", "b2", "r2"),
        )
    ]
    part = SubGroup(
        name="s",
        min_member=2,
        topology=TopologyConstraint(name="dc", required="block", preferred="rack"),
    )
    in_block = TopologyConstraint(name="dc", required="block", preferred="block")
    pods = [pod(f"g-{at}", gpu=1, group="g", sub_group="s") for at in range(2)]
    items = [blocks, *nodes, group("g", 0, sub_groups=[part], topology=in_block), *pods]

    assert set(plan(engine_with(*items)).values()) == {"b0", "b1"}


def test_a_gang_reports_the_sub_group_that_lacks_a_rack() -> None:
    part = SubGroup(name="s", min_member=2, topology=IN_A_RACK)
    pods = [pod(f"g-{at}", gpu=1, group="g", sub_group="s") for at in range(2)]
    nodes = [node(f"n{at}", gpu=1, labels={"rack": f"r{at}"}) for at in range(2)]
    engine = engine_with(RACKS, *nodes, group("g", 0, sub_groups=[part]), *pods)

    assert plan(engine) == {}
    assert report_of(engine, "g").message.startswith("none of 2 domains of rack has room for 2")


def test_a_constraint_is_not_ignored_without_its_plugin() -> None:
    names = ("predicates", "gang", "nodeplacement")
    plugins = tuple(PluginConfiguration(name=name) for name in names)
    pods = [pod("g-0", group="g")]
    items = [node("n", labels={"rack": "r"}), group("g", 1, topology=IN_A_RACK), *pods]
    engine = engine_with(*items, plugins=plugins)

    assert plan(engine) == {}
    assert report_of(engine, "g").message == "no plugin serves its topology constraint"
