"""An engine that follows a cluster gives the pictures of a new one, plan after plan.

The pictures are compared as a whole. The clusters are scenarios of the project: their objects come,
go and come again in random orders, with plans in between.
"""

import gc
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from bindery.answers.errors import BadInputError
from bindery.answers.source import Source
from bindery.dashboard.kept import KeptEngine
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change, EventType
from bindery.scenario.format import Scenario
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.waiting import explain
from tests.dashboard.pictures import TWO_TEAMS, planned, source_in, source_of
from tests.ownscenarios import FOLDER, scenarios_of

SCENARIOS = scenarios_of(*FOLDER.glob("**/*.yaml"))[::40]


def kept(source: Source) -> KeptEngine:
    return KeptEngine(source.now.timestamp)


def new_engine(source: Source) -> Engine:
    return source.world().engine


def everything(source: Source) -> list[KubeObject]:
    return [*source.snapshot.everything(), *source.snapshot.budgets]


def with_only(source: Source, items: list[KubeObject]) -> Source:
    return replace(source, snapshot=ClusterSnapshot.of(items))


def arrivals(source: Source, engine: KeptEngine, seed: int) -> Iterator[list[KubeObject]]:
    """Let the objects arrive at `engine` in a random order; some go and come again.

    Statements come last: what failed on a node is forgotten when the node comes again.
    """
    random, there = Random(seed), list[KubeObject]()
    coming = everything(source)
    random.shuffle(coming)
    coming.sort(key=lambda each: not isinstance(each, CommittedStatement))
    while coming:
        item = coming.pop()
        there.append(item)
        engine.take(Change(EventType.ADDED, item, None))
        if random.random() < 0.2 and not isinstance(item, CommittedStatement):
            gone = there.pop(random.randrange(len(there)))
            engine.take(Change(EventType.DELETED, gone, gone))
            coming.append(gone)
        if random.random() < 0.1:
            yield there


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_a_plan_leaves_the_engine_as_it_was(scenario: Scenario) -> None:
    source = source_of(scenario)
    engine = kept(source)
    first = engine.picture(source, 1)
    for _ in range(2):
        assert engine.picture(source, 1) == first


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_an_explanation_is_that_of_a_new_engine_and_leaves_the_kept_one_as_it_was(
    scenario: Scenario,
) -> None:
    source = source_of(scenario)
    engine = kept(source)
    first = engine.picture(source, 1)
    for gang in first.gangs:
        assert engine.explanation(source, gang.key) == explain(new_engine(source), gang.key)
    assert engine.picture(source, 1) == first


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_an_engine_that_follows_gives_the_picture_of_a_new_one(scenario: Scenario) -> None:
    source = source_of(scenario)
    for seed in range(2):
        engine = kept(source)
        engine.picture(with_only(source, []), 1)
        for there in arrivals(source, engine, seed):
            engine.picture(with_only(source, there), 1)
        assert engine.picture(source, 1) == planned(source)


def test_what_arrives_during_a_plan_is_in_the_next_one() -> None:
    source = source_in(TWO_TEAMS)
    *most, last = everything(source)
    engine = kept(source)
    with engine.lent():
        first = engine.picture(with_only(source, most), 1)
        engine.take(Change(EventType.ADDED, last, None))
        assert engine.picture(with_only(source, most), 1) == first
    with engine.lent():
        assert engine.picture(source, 1) == planned(source)


def test_another_configuration_gets_a_new_engine_and_the_old_one_is_freed() -> None:
    source = source_in(TWO_TEAMS)
    other = replace(
        source, configuration=source.configuration.model_copy(update={"node_pool": "other"})
    )
    gc.collect()
    before = clusters_in_memory()
    engine = kept(source)
    assert engine.picture(source, 1) != engine.picture(other, 1)
    assert engine.picture(source, 1) == planned(source)
    gc.collect()
    assert clusters_in_memory() == before + 1


def test_after_a_plan_that_fails_the_engine_is_filled_again() -> None:
    source = source_in(TWO_TEAMS)
    broken = replace(
        source, configuration=source.configuration.model_copy(update={"actions": ["x"]})
    )
    engine = kept(source)
    engine.picture(source, 1)
    with pytest.raises(BadInputError):
        engine.picture(broken, 1)
    assert engine.picture(source, 1) == planned(source)


def clusters_in_memory() -> int:
    return sum(isinstance(each, Cluster) for each in gc.get_objects())
