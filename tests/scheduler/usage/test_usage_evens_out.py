"""Time-based shares over an hour: the engine and its own record, by a clock that the test moves."""

from dataclasses import dataclass

import pytest

from bindery.scenario.binding import bind_requests
from bindery.scenario.events import Faults
from bindery.scenario.format import Scenario
from bindery.scenario.planning import Planner

GPUS = 8
ALONE_MIN, TOGETHER_MIN = 30, 60


@dataclass
class Played:
    """What came of half an hour with one queue and an hour with two."""

    held: list[tuple[float, float]]
    """GPUs of both queues, minute by minute."""
    usage: list[tuple[float, float]]
    """The recorded usage of both queues, minute by minute."""
    evictions: int


def play(k_value: float) -> Played:
    """Let a queue have the cluster for half an hour, before one comes that deserves as much."""
    scenario = Scenario.model_validate(
        {
            "config": {
                "usage": {
                    "source": "record",
                    "kValue": k_value,
                    "windowSeconds": 3600,
                    "halfLifeSeconds": 1200,
                }
            },
            "nodes": [{"name": "node0", "gpus": GPUS}],
            "queues": [{"name": name, "gpu": {"weight": 1}} for name in ("early", "late")],
            "jobs": [
                {"name": "a", "queue": "early", "minMember": 0, "pods": [{"count": 8, "gpus": 1}]}
            ],
            "events": [
                {
                    "before": ALONE_MIN + 1,
                    "job": {
                        "name": "b",
                        "queue": "late",
                        "minMember": 0,
                        "pods": [{"count": 8, "gpus": 1}],
                    },
                }
            ],
        }
    )
    faults = Faults(())
    planner = Planner(scenario, faults)
    cluster, engine = planner.cluster, planner.engine
    cluster.populate()
    played = Played([], [], 0)
    for minute in range(1, ALONE_MIN + TOGETHER_MIN + 1):
        for event in scenario.events:
            if event.before == minute:
                cluster.happen(event)
        planner.plan()
        cluster.release()
        bind_requests(cluster, faults)
        seen = planner.observe()
        gpu, rows = engine.cluster.state.axis.index("gpu"), engine.cluster.state.queues.rows
        assert engine.past.latest is not None
        used = engine.past.latest[1][gpu]
        played.held.append((seen.allocated["early"]["gpu"], seen.allocated["late"]["gpu"]))
        played.usage.append((float(used[rows["early"]]), float(used[rows["late"]])))
        played.evictions = seen.evictions
        cluster.clock.now += 60
    return played


def test_the_usage_of_two_queues_evens_out_within_an_hour() -> None:
    played = play(k_value=1.0)

    early, late = zip(*played.usage, strict=True)
    assert (early[ALONE_MIN - 1], late[ALONE_MIN - 1]) == pytest.approx((1.0, 0.0))
    assert early[-1] == pytest.approx(late[-1], abs=0.06)
    # It is made up for by holding more for a while, then both hold the same.
    assert max(gpus for _, gpus in played.held) == GPUS - 1
    assert played.held[-1] == (GPUS / 2, GPUS / 2)


def test_a_late_queue_gets_no_compensation_if_k_is_0() -> None:
    indifferent, fair = play(k_value=0.0), play(k_value=1.0)

    assert max(gpus for _, gpus in indifferent.held) == GPUS / 2
    made_up = sum(late for _, late in fair.held) - sum(late for _, late in indifferent.held)
    assert made_up >= ALONE_MIN  # GPU-minutes of the 120 that it would have had


def test_pods_are_evicted_only_as_shares_change() -> None:
    # Seven GPUs go over and three come back: no pod is moved to and fro.
    assert play(k_value=1.0).evictions == 10
