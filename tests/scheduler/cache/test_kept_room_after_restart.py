"""A restarted scheduler keeps the room of later stages on the same nodes."""

from collections.abc import Sequence

import msgspec
import pytest

from bindery.api.names import KEPT_ROOM_ANNOTATION
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodGroup
from bindery.scheduler.engine import Engine
from tests.scheduler.boundpods import bound_pod, records_of, request_of
from tests.scheduler.planning.test_stages import bound, stage, stages_of
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
)


def gang(name: str, gpu: int) -> tuple[PodGroup, kube.Pod]:
    """Return a gang with a leader without GPUs, and one worker with `gpu` GPUs that comes later."""
    stages = [stage("leader", 1), stage("workers", 1, ("leader", "Ready"), gpu=gpu)]
    leader = pod(f"{name}-leader", 0, group=name, sub_group="leader")
    return group(name, 2, sub_groups=stages), leader


def start(engine: Engine, clock: Clock, leaders: Sequence[kube.Pod]) -> list[kube.KubeObject]:
    """Start the gangs of `leaders`; return their bound pods."""
    add(engine.cluster, *leaders)
    by_name, found = {each.metadata.name: each for each in leaders}, list[kube.KubeObject]()
    for draft in list(engine.cycle()):
        records = records_of(draft)
        engine.cluster.forget(draft.key)
        for each in draft.spec.pods:
            item = by_name[each.pod_name]
            found.append(bound_pod(item, each.selected_node, records[each.pod_name], bound(clock)))
    modify(engine.cluster, *found)
    assert len(found) == len(leaders)
    return found


def rooms(engine: Engine, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return gang -> the nodes on which the room of its workers is kept."""
    return {name: stages_of(engine, name)["workers"][0] for name in names}


SIZES = {"g0": 3, "g1": 2, "g2": 3, "g3": 2, "g4": 2}
"""Gang -> GPUs of its worker. In this order, no greedy packing fills two nodes with six GPUs."""
EXPECTED = {"g0": ("n0",), "g2": ("n0",), "g1": ("n1",), "g3": ("n1",), "g4": ("n1",)}


def full_cluster(clock: Clock) -> tuple[Engine, list[kube.KubeObject]]:
    """Return an engine that keeps room on all GPUs of two nodes, and the objects of the cluster."""
    gangs = {name: gang(name, gpu) for name, gpu in SIZES.items()}
    groups = [each for each, _ in gangs.values()]
    first, second = node("n0", 8, 6), node("n1", 8, 6)
    engine = engine_with(first, *groups, clock=clock)
    pods = start(engine, clock, [gangs[name][1] for name in ("g0", "g2")])
    add(engine.cluster, second)
    pods += start(engine, clock, [gangs[name][1] for name in ("g1", "g3", "g4")])
    plan(engine)
    assert rooms(engine, list(SIZES)) == EXPECTED
    return engine, [first, second, *groups, *pods]


def test_the_room_of_several_gangs_is_on_the_same_nodes_after_a_restart() -> None:
    clock = Clock()
    _, objects = full_cluster(clock)

    restarted = engine_with(*objects, pod("other", 0, 1, priority=1000), clock=clock)

    assert plan(restarted) == {}
    assert rooms(restarted, list(SIZES)) == EXPECTED


def test_the_room_is_on_the_same_nodes_while_the_binder_still_binds_the_first_pods() -> None:
    clock = Clock()
    _, objects = full_cluster(clock)
    group_of_late, leader = gang("g5", 1)
    third = node("n2", 8, 1)
    engine = engine_with(*objects, third, group_of_late, leader, clock=clock)
    requests = [request_of(draft) for draft in engine.cycle()]
    assert len(requests) == 1

    restarted = engine_with(*objects, third, group_of_late, leader, *requests, clock=clock)

    assert plan(restarted) == {}
    assert rooms(restarted, [*SIZES, "g5"]) == {**EXPECTED, "g5": ("n2",)}


def test_a_gang_of_a_deleted_node_does_not_take_the_room_of_other_gangs() -> None:
    clock = Clock()
    old, young = gang("a", 2), gang("b", 2)
    first, second = node("n0", 8, 2), node("n1", 8, 2)
    engine = engine_with(first, old[0], young[0], clock=clock)
    start(engine, clock, [old[1]])
    add(engine.cluster, second)
    start(engine, clock, [young[1]])
    plan(engine)
    assert rooms(engine, ["a", "b"]) == {"a": ("n0",), "b": ("n1",)}

    cordoned = msgspec.structs.replace(
        first, spec=msgspec.structs.replace(first.spec, unschedulable=True)
    )
    modify(engine.cluster, cordoned)
    plan(engine)

    assert rooms(engine, ["a", "b"]) == {"a": (), "b": ("n1",)}


def test_a_record_is_valid_only_for_the_pod_it_was_written_for() -> None:
    clock = Clock()
    _, objects = full_cluster(clock)
    recorded = [each for each in objects if isinstance(each, kube.Pod)]
    text = {each.metadata.annotations[KEPT_ROOM_ANNOTATION] for each in recorded}
    assert len(text) == len(recorded)

    first = min(text)
    copied = [
        bound_pod(each, each.spec.node_name, {KEPT_ROOM_ANNOTATION: first}, bound(clock))
        for each in recorded
    ]
    others = [each for each in objects if not isinstance(each, kube.Pod)]
    restarted = engine_with(*others, *copied, clock=clock)
    plan(restarted)

    lost = [name for name, nodes in rooms(restarted, list(SIZES)).items() if not nodes]
    assert lost, "without its own records it packs the room again"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rooms":{"workers":{"n1":-1}}}', '{"rooms":3}'])
def test_an_unreadable_record_is_ignored(text: str) -> None:
    clock = Clock()
    fresh, leader = gang("a", 2)
    item = bound_pod(leader, "n0", {KEPT_ROOM_ANNOTATION: text}, bound(clock))
    engine = engine_with(node("n0", 8, 2), fresh, item, clock=clock)

    plan(engine)

    assert rooms(engine, ["a"]) == {"a": ("n0",)}


def test_the_room_of_a_deleted_gang_is_released() -> None:
    clock = Clock()
    engine, objects = full_cluster(clock)
    gone = [each for each in objects if each.metadata.name in ("g4", "g4-leader")]

    delete(engine.cluster, *gone)
    add(engine.cluster, pod("other", 0, 2))

    assert plan(engine) == {"other": "n1"}
