"""Consolidation does not repeat a search without a plan while the cluster stays as it is."""

from collections.abc import Callable
from typing import Any

import pytest

from bindery.kube.objects import watched as kube
from bindery.scheduler.actions.fruitless import REPEATED_AFTER_S
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.solver.rearrange import Rearrangement
from bindery.scheduler.solver.search import Search
from tests.inlinescenarios import scenario_of, source_of
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    configuration,
    delete,
    gang,
    node,
    places,
    pod,
)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of searches that are run; it grows."""
    run: list[str] = []

    def counted(cls: type[Any]) -> type[Any]:
        original: Callable[[Any], bool] = cls.run

        def call(self: Any) -> bool:
            run.append(cls.__name__)
            return original(self)

        monkeypatch.setattr(cls, "run", call)
        return cls

    counted(Search)
    counted(Rearrangement)
    return run


def fragmented() -> list[kube.KubeObject]:
    """Return six nodes, half full of pods too large to move together, and a gang of whole nodes."""
    return [
        *(node(f"n{i}", 4) for i in range(6)),
        *(pod(f"runs{i}", on=f"n{i}", cpu=3) for i in range(6)),
        *gang("large", 1, cpu=4),
    ]


def engine_of(*items: kube.KubeObject) -> tuple[Engine, Clock]:
    clock = Clock()
    engine = Engine(configuration(actions=["allocate", "consolidation"]), clock)
    add(engine.cluster, *items)
    return engine, clock


def cycle(engine: Engine, clock: Clock, searches: list[str]) -> int:
    """Run a cycle a second later; return the number of its searches."""
    before = len(searches)
    clock.now += 1
    places(engine.cycle())
    return len(searches) - before


def test_an_unchanged_cluster_is_searched_once(searches: list[str]) -> None:
    engine, clock = engine_of(*fragmented())

    assert cycle(engine, clock, searches) > 0
    assert [cycle(engine, clock, searches) for _ in range(5)] == [0] * 5


def test_the_search_is_repeated_after_a_pod_has_ended(searches: list[str]) -> None:
    engine, clock = engine_of(*fragmented())
    cycle(engine, clock, searches)

    delete(engine.cluster, pod("runs0", on="n0", cpu=3))
    add(engine.cluster, pod("fills", on="n0", cpu=3))

    assert cycle(engine, clock, searches) > 0
    assert cycle(engine, clock, searches) == 0


def test_a_search_without_a_plan_does_not_stop_the_search_for_another_gang(
    searches: list[str],
) -> None:
    engine, clock = engine_of(*fragmented())
    cycle(engine, clock, searches)

    add(engine.cluster, *gang("second", 2, cpu=2))

    assert cycle(engine, clock, searches) > 0
    assert cycle(engine, clock, searches) == 0


def test_a_pod_bound_as_planned_may_move_for_the_gang(searches: list[str]) -> None:
    engine, clock = engine_of(*fragmented())
    cycle(engine, clock, searches)
    add(engine.cluster, *gang("new", 1, cpu=1))
    places(engine.cycle())
    cycle(engine, clock, searches)
    task = next(each for each in engine.cluster.state.tasks.values() if each.name == "new-0")

    add(engine.cluster, pod("new-0", group="new", on=task.node_name, cpu=1))

    assert cycle(engine, clock, searches) > 0


def test_the_search_is_repeated_after_some_time_without_changes(searches: list[str]) -> None:
    engine, clock = engine_of(*fragmented())
    cycle(engine, clock, searches)

    clock.now = NOW + REPEATED_AFTER_S + 1

    assert cycle(engine, clock, searches) > 0


def test_a_gang_whose_later_stage_finds_no_room_has_the_same_reason_in_each_cycle() -> None:
    scenario = """
        nodes:
        - {name: a0, gpus: 2, labels: {rack: a}}
        - {name: "b{i}", count: 2, gpus: 2, labels: {rack: b}}
        jobs:
        - {name: other, preemptible: false, pods: [{gpus: 1, state: Running, node: b0}]}
        - name: lws
          subGroups:
          - {name: domain, topology: {required: rack}}
          - {name: leader, parent: domain, minMember: 1}
          - {name: workers, parent: domain, minMember: 2,
             after: [{subGroup: leader, condition: Ready}], template: {gpus: 1}}
          pods:
          - gpus: 1
            subGroup: leader
            annotations: {leaderworkerset.sigs.k8s.io/exclusive-topology: rack}
            labels: {leaderworkerset.sigs.k8s.io/group-key: key0}
    """
    engine = source_of(scenario_of(scenario)).world().engine
    reasons = []
    for _ in range(3):
        assert list(engine.cycle()) == []
        (report,) = engine.report.jobs.values()
        reasons.append(report.reason)
    assert reasons == [JobReason.UNSCHEDULABLE] * 3
