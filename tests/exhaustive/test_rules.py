"""The second statement of the rules: it stands alone, and small worlds have the known answers."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.exhaustive.making import MOST_NODES, MOST_PODS, make
from tests.exhaustive.rules import Action, units_of
from tests.exhaustive.search import Clock, OutOfTimeError, Plan, best_of_action, best_plan
from tests.exhaustive.worlds import HOST, RACK, Job, Node, Part, Pod, Queue, Term, World

FOLDER = Path(__file__).parent
ALONE = ("worlds", "making", "rules", "search", "files")


def world(
    *jobs: Job, nodes: tuple[Node, ...] = (Node("n0", 4, 16),), quotas: tuple[int, ...] = (0, 9)
) -> World:
    queues = tuple(Queue(f"q{number}", quota) for number, quota in enumerate(quotas))
    return World(0, nodes, queues, jobs)


def job(name: str, *pods: Pod, queue: str = "q0", priority: int = 50, least: int = 0) -> Job:
    return Job(name, queue, priority, least or len(pods), pods)


def plan(given: World) -> Plan:
    found = best_plan(given, Clock())
    assert found is not None
    return found


@pytest.mark.parametrize("name", ALONE)
def test_the_second_statement_of_the_rules_imports_nothing_of_the_scheduler(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    imported = [
        module
        for node in ast.walk(tree)
        for module in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    ]

    assert [module for module in imported if module.startswith("bindery")] == []


def test_worlds_are_small_and_the_same_for_each_seed() -> None:
    for seed in range(50):
        made = make(seed)
        later = sum(part.least for part in made.claimant.parts if part.later)

        assert made == make(seed)
        assert len(made.nodes) <= MOST_NODES
        assert sum(len(each.pods) for each in made.jobs) + later <= MOST_PODS


def test_idle_room_needs_no_eviction() -> None:
    found = plan(world(job("a", Pod(2, node="n0")), job("next", Pod(2), queue="q1")))

    assert (found.action, found.evicted) == (Action.ALLOCATE, 0)


def test_the_gang_with_fewer_pods_goes() -> None:
    two, one = Pod(1, node="n0"), Pod(2, node="n0")
    found = plan(world(job("a", two, two), job("b", one), job("next", Pod(2), queue="q1")))

    assert [unit.job.name for unit in found.units] == ["b"]


def test_a_queue_within_its_quota_loses_nothing() -> None:
    given = world(job("a", Pod(4, node="n0")), job("next", Pod(2), queue="q1"), quotas=(4, 9))

    assert best_plan(given, Clock()) is None


def test_reclaim_takes_a_queue_below_its_quota_only_as_a_last_resort() -> None:
    large, small = job("a", Pod(3, node="n0")), job("b", Pod(1, node="n0"))
    one = world(large, small, job("next", Pod(1), queue="q1"), quotas=(3, 9))
    two = world(large, small, job("next", Pod(2), queue="q1"), quotas=(3, 9))

    assert plan(one).action is Action.RECLAIM_KEEPING
    assert plan(two).action is Action.RECLAIM


def test_preempt_takes_lower_priorities_of_the_same_queue() -> None:
    running = job("a", Pod(4, node="n0"), queue="q1", priority=60)
    higher = world(running, job("next", Pod(2), queue="q1", priority=70))
    equal = world(running, job("next", Pod(2), queue="q1", priority=60))

    assert plan(higher).action is Action.PREEMPT
    assert best_plan(equal, Clock()) is None


def test_extra_pods_go_one_by_one_and_the_rest_of_the_gang_together() -> None:
    pod = Pod(1, node="n0")
    units = units_of(job("a", pod, pod, pod, pod, least=2))

    assert [[each.name for each in unit.pods] for unit in units] == [
        ["a-3"],
        ["a-2"],
        ["a-0", "a-1"],
    ]


def test_a_required_rack_holds_the_whole_gang() -> None:
    nodes = (Node("n0", 2, 9, rack="r0"), Node("n1", 1, 9, rack="r1"), Node("n2", 1, 9, rack="r1"))
    gang = replace(job("next", Pod(1), Pod(1), Pod(1)), level=RACK)

    assert best_plan(world(gang, nodes=nodes), Clock()) is None
    assert plan(world(replace(gang, level=""), nodes=nodes)).evicted == 0


def test_the_room_of_a_later_stage_counts() -> None:
    parts = (Part("first", 1), Part("later", 1, later=Pod(3)))
    gang = replace(job("next", Pod(1, part="first")), parts=parts)

    assert plan(world(gang)).evicted == 0
    assert best_plan(world(replace(gang, pods=(Pod(2, part="first"),))), Clock()) is None


def test_an_exclusive_gang_needs_a_domain_without_others() -> None:
    gang = replace(job("next", Pod(1), queue="q1"), level=RACK, is_exclusive=True)
    found = plan(world(job("a", Pod(1, node="n0")), gang))

    assert found.evicted == 1


def test_anti_affinity_holds_in_both_directions() -> None:
    away = Term("x", HOST, is_anti=True)
    running = job("a", Pod(1, node="n0", term=away))
    stays = replace(running, is_preemptible=False)

    assert best_plan(world(stays, job("next", Pod(1, app="x"), queue="q1")), Clock()) is None
    assert plan(world(stays, job("next", Pod(1, app="y"), queue="q1"))).evicted == 0


def test_the_pods_of_a_claim_share_the_node_of_its_device() -> None:
    nodes = (Node("n0", 1, 9, devices=1), Node("n1", 2, 9), Node("n2", 1, 9, devices=1))
    gang = job("next", Pod(1, claim="c"), Pod(1, claim="c"))

    assert best_plan(world(gang, nodes=nodes), Clock()) is None
    assert plan(world(gang, nodes=(*nodes, Node("n3", 2, 9, devices=1)))).places["next-0"] == "n3"


def test_a_limit_counts_what_stays() -> None:
    given = world(job("a", Pod(1, node="n0"), priority=40), job("next", Pod(2), priority=60))
    limited = replace(given, queues=(replace(given.queues[0], limit=2), given.queues[1]))

    assert plan(given).evicted == 0
    assert plan(limited).evicted == 1


def test_a_search_without_time_ends() -> None:
    with pytest.raises(OutOfTimeError):
        best_of_action(make(1), Action.ALLOCATE, Clock(most_s=-1))
