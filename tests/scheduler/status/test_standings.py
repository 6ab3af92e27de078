"""The turns of waiting gangs, and the figures of their queue, in their status."""

import pytest

from bindery.kube.objects.podgroups import Turn
from bindery.scheduler.insight.order import Turns
from bindery.scheduler.planning.rounds import Deadline
from bindery.scheduler.planning.session import Session
from bindery.scheduler.status.standings import is_news, standings, turns_of
from bindery.scheduler.world import World
from tests.inlinescenarios import scenario_of, source_of

FULL = """
nodes: [{name: node0, gpus: 4}]
queues: [{name: a, gpu: {quota: 4, limit: 8}}, {name: b, gpu: {quota: 0}}]
jobs:
- {name: runs, queue: a, pods: [{gpus: 4, state: Running, node: node0}]}
- {name: "a{i}", count: 3, queue: a, pods: [{gpus: 1}]}
- {name: "b{i}", count: 2, queue: b, pods: [{gpus: 2}]}
- {name: short, queue: a, minMember: 2, pods: [{gpus: 1}]}
"""


@pytest.fixture
def world() -> World:
    return source_of(scenario_of(FULL)).world()


def test_a_turn_is_the_place_among_the_gangs_that_wait_for_room(world: World) -> None:
    order: list[str] = []

    def inspect(session: Session) -> None:
        order.extend(key.name for key in Turns(session).order)

    list(world.engine.cycle(inspect=inspect))
    turns = turns_of(world.engine.cluster, world.engine.report)

    assert [key.name for key in turns] == order
    assert len(order) == 5, "the gang that lacks pods has no turn"
    assert [turn.place for turn in turns.values()] == [1, 2, 3, 4, 5]
    of_b = [turn for key, turn in turns.items() if key.name.startswith("b")]
    assert [(turn.place_in_queue, turn.of_queue, turn.of) for turn in of_b] == [
        (1, 2, 5),
        (2, 2, 5),
    ]


def test_gangs_too_large_for_every_node_or_for_the_limit_have_no_turn() -> None:
    more = """
- {name: never, queue: b, pods: [{gpus: 16}]}
- {name: over, queue: a, pods: [{count: 3, gpus: 3}]}
"""
    world = source_of(scenario_of(FULL.rstrip() + more)).world()
    order: list[str] = []
    list(world.engine.cycle(inspect=lambda s: order.extend(k.name for k in Turns(s).order)))

    turns = turns_of(world.engine.cluster, world.engine.report)

    assert [key.name for key in turns] == order
    assert not {"never", "over"} & set(order)


def test_cycles_that_run_out_of_time_keep_the_order_of_the_round(world: World) -> None:
    list(world.engine.cycle())
    whole = world.engine.report.order
    clock = iter(range(1000))

    for _ in range(2 * len(whole)):
        list(world.engine.cycle(deadline=Deadline(0.0, clock=lambda: float(next(clock)))))

    assert world.engine.report.is_cut
    assert set(world.engine.report.order) == set(whole)


def test_the_oldest_gang_of_a_queue_in_a_namespace_has_its_figures(world: World) -> None:
    list(world.engine.cycle())

    found = standings(world.engine.cluster, world.engine.report)

    figures = {each.meta.name: each.queue_figures for each in found if each.queue_figures}
    assert sorted(its.name for its in figures.values()) == ["a", "b"]
    its = figures["runs"]
    assert (its.quota, its.limit) == ({"gpu": "4"}, {"gpu": "8"})


def test_a_standing_contains_no_name_of_another_gang(world: World) -> None:
    list(world.engine.cycle())
    cluster = world.engine.cluster
    names = {key.name for key in cluster.groups}

    for each in standings(cluster, world.engine.report):
        text = str(each.to_wire())
        assert not [name for name in names if f"'{name}'" in text]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (1, 1, False),
        (2, 1, True),
        (10, 9, True),
        (100, 95, False),
        (100, 90, True),
        (11, 10, True),
        (5000, 4999, False),
    ],
)
def test_a_distant_place_is_written_again_after_a_change_of_a_tenth(
    before: int, now: int, expected: bool
) -> None:
    def turn(place: int) -> Turn:
        return Turn(place=place, of=9000, place_in_queue=1, of_queue=1)

    assert is_news(turn(before), turn(now)) == expected
    assert is_news(turn(before), None)
    assert is_news(None, turn(now))
    assert not is_news(None, None)
