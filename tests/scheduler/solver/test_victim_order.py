"""Victims come in the reverse of the order in which queues and jobs are served."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.filter_cache import FilterCache
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.interface.jobs import QueueOrder
from bindery.scheduler.plugins.registry import PluginSet, load
from bindery.scheduler.plugins.view import SessionView
from bindery.scheduler.solver.order import victims
from bindery.scheduler.solver.victims import VictimTable
from tests.scheduler.schedulerworld import NOW, configuration, engine_with, node, plan, pod, queue

PODS = 1200
QUEUES = ("blue", "green", "red")


def test_a_subset_of_victims_has_the_order_of_all_victims() -> None:
    pods = [pod(f"runs-{i:04}", priority=i * 7 % 5, on=f"node-{i % 20}") for i in range(PODS)]
    nodes = [node(f"node-{i}", cpu=100) for i in range(20)]
    engine = engine_with(*nodes, *pods)

    with engine.session() as session:
        table = VictimTable(session)
        everybody = list(victims(session, table, np.ones(PODS, dtype=np.bool_)))
        some = np.zeros(PODS, dtype=np.bool_)
        some[::40] = True
        few = list(victims(session, table, some))

    assert sorted(everybody) == list(range(PODS))
    assert few == [index for index in everybody if some[index]]
    priorities = table.priority[everybody].tolist()
    assert priorities == sorted(priorities), "the lowest priority goes first"


class Ranked:
    """A plugin that serves queues in the order of `names`, whatever they hold."""

    name = "ranked"

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:  # noqa: ARG002
        name = session.state.queues.entries[queue_row].name
        return (self.names.index(name) if name in self.names else len(self.names),)


class LargestFirst:
    """A plugin that takes victims from where the next one releases most."""

    name = "largest"

    def queue_key(self, *_: object) -> SortKey:
        return ()

    def victim_key(
        self,
        session: SessionView,
        queue_row: int,  # noqa: ARG002
        job: Job,  # noqa: ARG002
        released: Mapping[int, int],
    ) -> SortKey:
        return (released[session.state.axis.index("cpu")],)


def plugins_with(order: Any) -> PluginSet:
    """Return the built-in plugins with `order` as the only order of queues."""
    built_in = load(configuration().plugins)
    replaced: Sequence[object] = built_in.of(QueueOrder)
    others = [each for each in built_in.plugins if each not in replaced]
    return PluginSet([*others, order], built_in.seconds)


def queues_of_victims(engine: Engine, order: Any) -> list[str]:
    """Return the queue of each victim, in their order."""
    session = Session(engine.cluster, plugins_with(order), FilterCache(), NOW)
    table = VictimTable(session)
    everybody = np.ones(len(table.units), dtype=np.bool_)
    found = [table.units[index].job.queue for index in victims(session, table, everybody)]
    session.close()
    return found


@pytest.mark.parametrize("names", [*permutations(QUEUES)])
def test_the_queue_that_another_plugin_serves_last_loses_its_pods_first(
    names: tuple[str, ...],
) -> None:
    pods = [pod(f"{name}-{i}", queue=name, on="n") for name in QUEUES for i in range(2)]
    engine = engine_with(node("n", cpu=6), *map(queue, QUEUES), *pods)

    assert queues_of_victims(engine, Ranked(names)) == [
        name for name in reversed(names) for _ in range(2)
    ]


@pytest.mark.parametrize("names", [*permutations(QUEUES)])
def test_a_queue_reclaims_from_the_queue_that_another_plugin_serves_last(
    names: tuple[str, ...],
) -> None:
    pods = [pod(f"{name}-{i}", queue=name, on="n") for name in QUEUES for i in range(2)]
    holders = [queue(name, quotas={"cpu": 0}) for name in QUEUES]
    claimant = queue("claimant", quotas={"cpu": 1})
    waits = pod("waits", queue="claimant")
    engine = engine_with(node("n", cpu=6), *holders, claimant, *pods, waits)
    engine._plugins = plugins_with(Ranked(names))

    assert plan(engine) == {}
    assert [e.task.name.split("-")[0] for e in engine.report.evictions] == [names[-1]]


def test_a_plugin_may_order_victims_by_the_resources_they_release() -> None:
    pods = [pod(name, cpu=cpu, queue=name, on="n") for cpu, name in enumerate(QUEUES, 1)]
    engine = engine_with(node("n", cpu=6), *map(queue, QUEUES), *pods)

    assert queues_of_victims(engine, LargestFirst()) == ["red", "green", "blue"]


class FailingFor(Ranked):
    """A plugin that cannot compare the victims of the queue `failing`."""

    def __init__(self, names: Sequence[str], failing: str) -> None:
        super().__init__(names)
        self.failing = failing

    def victim_key(
        self, session: SessionView, queue_row: int, job: Job, _: Mapping[int, int]
    ) -> SortKey:
        if job.queue == self.failing:
            raise ZeroDivisionError
        return self.queue_key(session, queue_row, job)


@pytest.mark.parametrize("failing", QUEUES)
def test_a_queue_that_cannot_be_compared_loses_its_pods_last(failing: str) -> None:
    pods = [pod(name, queue=name, on="n") for name in QUEUES]
    engine = engine_with(node("n", cpu=3), *map(queue, QUEUES), *pods)

    found = queues_of_victims(engine, FailingFor(QUEUES, failing))

    assert found == [name for name in reversed(QUEUES) if name != failing] + [failing]
    assert [defect.text for defect in engine.cluster.defects.take()] == ["ZeroDivisionError: "]
