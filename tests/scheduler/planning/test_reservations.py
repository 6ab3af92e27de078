"""Reservations: expected ends of pods, the room kept on nodes, and the messages about it."""

import msgspec
import numpy as np
import pytest

from bindery.api.names import EXPECTED_RUNTIME_ANNOTATION
from bindery.api.times import timestamp
from bindery.kube.objects import watched as kube
from bindery.scheduler.planning.reservations import kept_room
from tests.scheduler.schedulerworld import NOW, engine_with, group, node, plan, pod, report_of

BOUND = kube.Condition(
    type="PodScheduled", status="True", last_transition_time=timestamp(NOW - 600)
)
BIG = pod("big", gpu=4)


def annotated(item: kube.Pod, runtime: str) -> kube.Pod:
    annotations = {**item.metadata.annotations, EXPECTED_RUNTIME_ANNOTATION: runtime}
    metadata = msgspec.structs.replace(item.metadata, annotations=annotations)
    return msgspec.structs.replace(item, metadata=metadata)


def start_beside(*items: kube.KubeObject) -> float | None:
    """Return when BIG is expected to start on the one node on which `items` run."""
    engine = engine_with(node("n", gpu=4), *items, BIG)
    plan(engine)
    reservation = report_of(engine, "big").reservation
    return reservation.start if reservation is not None else None


def test_the_deadline_of_a_pod_gives_its_expected_end() -> None:
    runs = pod("runs", gpu=2, on="n", conditions=[BOUND], active_deadline_seconds=3600)

    assert start_beside(runs) == NOW + 3000


def test_the_annotation_of_a_pod_gives_its_expected_end() -> None:
    runs = annotated(pod("runs", gpu=2, on="n", conditions=[BOUND]), "1200")

    assert start_beside(runs) == NOW + 600


def test_the_earliest_of_several_expected_ends_is_used() -> None:
    runs = pod("runs-0", gpu=2, on="n", conditions=[BOUND], group="runs")

    assert start_beside(group("runs", expected_runtime_seconds=900.0), runs) == NOW + 300
    assert (
        start_beside(group("runs", expected_runtime_seconds=900.0), annotated(runs, "700"))
        == NOW + 100
    )


@pytest.mark.parametrize("text", ["soon", "-5", "0", "nan", ""])
def test_an_unreadable_run_time_is_ignored(text: str) -> None:
    runs = annotated(pod("runs", gpu=2, on="n", conditions=[BOUND]), text)

    assert start_beside(runs) is None


def test_the_report_names_the_nodes_and_the_start() -> None:
    runs = pod("runs", gpu=2, on="n1", conditions=[BOUND], active_deadline_seconds=3600)
    actions = ("allocate", "backfill")
    engine = engine_with(node("n1", gpu=4), node("n0", gpu=2), runs, BIG, actions=actions)

    plan(engine)

    report = report_of(engine, "big")
    assert report.reservation is not None
    assert report.reservation.nodes == ("n1",)
    assert f"reserved on nodes n1, expected start {timestamp(NOW + 3000)}" in report.message


def test_a_message_lists_some_of_many_nodes_and_counts_the_rest() -> None:
    items = [
        pod(f"r{i}", gpu=1, on=f"n{i:02}", active_deadline_seconds=3600, conditions=[BOUND])
        for i in range(12)
    ]
    nodes = [node(f"n{i:02}", gpu=4) for i in range(12)]
    gang = [pod(f"g-{i}", gpu=4, group="g") for i in range(12)]
    engine = engine_with(*nodes, *items, group("g", 12), *gang)

    plan(engine)

    assert "n06, n07 and 4 more, expected start" in report_of(engine, "g").message


def test_room_released_by_the_start_of_a_reservation_is_not_kept() -> None:
    needs, returned, room = np.array([[6, 4]]), np.array([[4, 4]]), np.array([[4, 4]])

    assert kept_room([(needs, returned)], room).tolist() == [[2, 0]]


def test_no_more_room_is_kept_than_exists() -> None:
    needs, returned, room = np.array([[6]]), np.array([[0]]), np.array([[4]])

    assert kept_room([(needs, returned)], room).tolist() == [[4]]


def test_a_second_reservation_uses_no_room_that_the_first_needs() -> None:
    needs, returned, room = np.array([[3]]), np.array([[3]]), np.array([[8]])

    assert kept_room([(needs, returned), (needs, returned)], room).tolist() == [[3]]
