"""Conditions of Queues; other queues are served beside a faulty one."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import json, structs

from bindery.kube.objects import watched as kube
from bindery.kube.objects.queues import Queue, QueueStatus
from bindery.kube.objects.resources import QUEUES
from bindery.kube.watches.decoding import LenientDecoder
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.queues import QueueStatuses, QueueWrite
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    delete,
    engine_with,
    gang,
    modify,
    node,
    plan,
    report_of,
)

THEN = "2025-06-15T15:06:40Z"
"""The clock's time."""


def queue(
    name: str,
    parent: str | None = None,
    resources: Mapping[str, Mapping[str, Any]] | None = None,
    status: QueueStatus | None = None,
    **spec: Any,
) -> Queue:
    """Return the queue as the watch shows it: from the bytes of the API server."""
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"parent": parent, "resources": resources or {}, **spec},
        "status": status or {},
    }
    line = json.encode({"type": "ADDED", "object": body})
    _, found = LenientDecoder(QUEUES).event(line)
    assert isinstance(found, Queue)
    return found


def writes_of(engine: Engine) -> dict[str, QueueWrite]:
    plan(engine)
    writes = QueueStatuses(engine.cluster, "").writes(engine.report, NOW)
    return {write.meta.name: write for write in writes}


def conditions_of(engine: Engine) -> dict[str, list[tuple[str, str, str]]]:
    """Return type, status and reason of all conditions of all queues."""
    return {
        name: [(c.type, c.status, c.reason) for c in write.wanted.conditions or ()]
        for name, write in writes_of(engine).items()
    }


def message(engine: Engine, name: str, kind: str) -> str:
    conditions = writes_of(engine)[name].wanted.conditions or ()
    return next(c.message for c in conditions if c.type == kind)


READY = ("Ready", "True", "Valid")


def unready(reason: str) -> tuple[str, str, str]:
    return ("Ready", "False", reason)


def warned(reason: str) -> tuple[str, str, str]:
    return ("Warning", "True", reason)


FAULTS: list[tuple[str, Sequence[Queue], dict[str, str], str]] = [
    (
        "a queue whose parent is itself",
        [queue("bad", parent="bad")],
        {"bad": "Cycle"},
        "spec.parent: the queue is its own ancestor: bad is below bad",
    ),
    (
        "all queues on a cycle, and those below it",
        [queue("bad", "b"), queue("b", "c"), queue("c", "bad"), queue("leaf", "b")],
        {"bad": "Cycle", "b": "Cycle", "c": "Cycle", "leaf": "ParentNotReady"},
        "bad is below b is below c is below bad",
    ),
    (
        "a parent that does not exist, and the queues below",
        [queue("bad", "nobody"), queue("leaf", "bad")],
        {"bad": "ParentDoesNotExist", "leaf": "ParentNotReady"},
        "spec.parent: queue nobody does not exist",
    ),
    (
        "a quota that is no quantity",
        [queue("bad", resources={"gpu": {"quota": "3 apples"}})],
        {"bad": "Invalid"},
        "spec.resources.gpu.quota: '3 apples' is not a Kubernetes quantity",
    ),
    (
        "a quota below zero",
        [queue("bad", resources={"cpu": {"quota": "-500m"}})],
        {"bad": "Invalid"},
        "spec.resources.cpu.quota: -500m is negative",
    ),
    (
        "a limit below zero",
        [queue("bad", resources={"memory": {"limit": -2}})],
        {"bad": "Invalid"},
        "spec.resources.memory.limit: -2 is negative",
    ),
    (
        "a weight below zero",
        [queue("bad", resources={"gpu": {"overQuotaWeight": -1}})],
        {"bad": "Invalid"},
        "spec.resources.gpu.overQuotaWeight: -1 is negative",
    ),
    (
        "rules for a model below zero",
        [queue("bad", models={"A100": {"quota": -3}})],
        {"bad": "Invalid"},
        "spec.models.A100.quota: -3 is negative",
    ),
    (
        "two mistakes at once, and both are named",
        [queue("bad", resources={"gpu": {"quota": -3}, "cpu": {"limit": "much"}})],
        {"bad": "Invalid"},
        "spec.resources.gpu.quota: -3 is negative; spec.resources.cpu.limit: 'much'",
    ),
    (
        "rules for one resource under both of its names",
        [queue("bad", resources={"gpu": {"quota": 1}, "nvidia.com/gpu": {"quota": 2}})],
        {"bad": "Invalid"},
        "spec.resources.nvidia.com/gpu: there are rules for nvidia.com/gpu already",
    ),
    (
        "a field of the wrong type, as older definitions let through",
        [queue("bad", priority="high")],
        {"bad": "Invalid"},
        "Expected `int`, got `str` - at `$.spec.priority`",
    ),
    (
        "a quota that is neither whole nor text",
        [queue("bad", resources={"gpu": {"quota": 1.5}})],
        {"bad": "Invalid"},
        "$.spec.resources[...].quota",
    ),
    (
        "a minimum runtime below zero",
        [queue("bad", reclaimMinRuntimeSeconds=-60)],
        {"bad": "Invalid"},
        "spec.reclaimMinRuntimeSeconds: -60 is negative",
    ),
    (
        "a state that does not exist",
        [queue("bad", state="Ajar")],
        {"bad": "Invalid"},
        "spec.state: 'Ajar' is neither Open nor Closed",
    ),
    (
        "an empty label of users",
        [queue("bad", fairUsers={"label": ""})],
        {"bad": "Invalid"},
        "spec.fairUsers.label: it is empty",
    ),
]


@pytest.mark.parametrize(
    ("queues", "reasons", "text"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS]
)
def test_a_faulty_queue_reports_its_error_and_only_its_gangs_wait(
    queues: Sequence[Queue], reasons: Mapping[str, str], text: str
) -> None:
    waiting = [item for name in reasons for item in gang(f"of-{name}", 1, queue=name)]
    engine = engine_with(
        node("n"), *queues, queue("fine"), *waiting, *gang("good", 2, queue="fine")
    )

    assert set(plan(engine)) == {"good-0", "good-1"}
    found = conditions_of(engine)
    assert found == {
        **{name: [unready(reason)] for name, reason in reasons.items()},
        "fine": [READY],
    }
    assert text in message(engine, "bad", "Ready")
    for name in reasons:
        assert report_of(engine, f"of-{name}").reason in ("QueueInvalid", "QueueDoesNotExist")


def gpus(**rule: Any) -> dict[str, dict[str, Any]]:
    return {"gpu": rule}


WARNINGS: list[tuple[str, Sequence[Queue], dict[str, str], dict[str, str]]] = [
    (
        "a quota above the parent's",
        [queue("org", resources=gpus(quota=4)), queue("team", "org", gpus(quota=8))],
        {"team": "QuotaAboveParent", "org": "QuotaBelowChildren"},
        {
            "team": "its quota of 8 nvidia.com/gpu is above the 4 of queue org",
            "org": "its child queues have quotas of 8 nvidia.com/gpu in total, but its own is 4",
        },
    ),
    (
        "quotas that are above the parent's only together",
        [
            queue("org", resources=gpus(quota=8)),
            queue("a", "org", gpus(quota=6)),
            queue("b", "org", gpus(quota=4)),
        ],
        {"org": "QuotaBelowChildren"},
        {"org": "its child queues have quotas of 10 nvidia.com/gpu in total, but its own is 8"},
    ),
    (
        "an unlimited quota below a limited one",
        [queue("org", resources=gpus(quota=8)), queue("team", "org", gpus(quota=-1))],
        {"team": "QuotaAboveParent", "org": "QuotaBelowChildren"},
        {"team": "its quota of unlimited nvidia.com/gpu is above the 8 of queue org"},
    ),
    (
        "a quota of GPUs where the parent says nothing of them and so has none",
        [queue("org"), queue("team", "org", gpus(quota=1))],
        {"team": "QuotaAboveParent", "org": "QuotaBelowChildren"},
        {},
    ),
    (
        "a quota above the queue's own limit",
        [queue("team", resources={"cpu": {"quota": "4", "limit": "1500m"}})],
        {"team": "QuotaAboveLimit"},
        {"team": "its quota of 4 cpu is above its own limit of 1.5"},
    ),
    (
        "a quota of a model above the parent's",
        [
            queue("org", models={"A100": {"quota": 1}}),
            queue("team", "org", models={"A100": {"quota": 2}}),
        ],
        {"team": "QuotaAboveParent", "org": "QuotaBelowChildren"},
        {"team": "its quota of 2 gpu-model/A100 is above the 1 of queue org"},
    ),
]


@pytest.mark.parametrize(
    ("queues", "reasons", "texts"),
    [case[1:] for case in WARNINGS],
    ids=[case[0] for case in WARNINGS],
)
def test_a_queue_with_a_probable_mistake_is_served_with_a_warning(
    queues: Sequence[Queue], reasons: Mapping[str, str], texts: Mapping[str, str]
) -> None:
    leaf = queues[-1].metadata.name
    engine = engine_with(node("n"), *queues, *gang("g", 2, queue=leaf, cpu="500m"))

    assert set(plan(engine)) == {"g-0", "g-1"}
    found = conditions_of(engine)
    names = [item.metadata.name for item in queues]
    assert found == {
        name: [READY, warned(reasons[name])] if name in reasons else [READY] for name in names
    }
    for name, text in texts.items():
        assert message(engine, name, "Warning") == text


@pytest.mark.parametrize(
    "queues",
    [
        [queue("org", resources=gpus(quota=8)), queue("a", "org", gpus(quota=8))],
        [queue("org", resources=gpus(quota=-1)), queue("a", "org", gpus(quota=8))],
        [queue("org", resources={"cpu": {"quota": 4}}), queue("a", "org", {"cpu": {"limit": 2}})],
        [queue("a", resources={"cpu": {"quota": -1, "limit": 2}})],
        [queue("a", resources=gpus(quota=2, limit=2))],
    ],
    ids=[
        "the quota of its parent",
        "any quota below an unlimited one",
        "no stated quota below a limited one",
        "a limit below an unlimited quota",
        "a limit that is the quota",
    ],
)
def test_queues_without_mistakes_have_no_warning(queues: Sequence[Queue]) -> None:
    found = conditions_of(engine_with(node("n"), *queues))

    assert found == {item.metadata.name: [READY] for item in queues}


def test_a_corrected_queue_is_ready_again() -> None:
    engine = engine_with(node("n"), queue("a", "nobody"), *gang("g", 1, queue="a"))
    said = writes_of(engine)["a"].wanted
    assert said.conditions is not None
    assert said.conditions[0].last_transition_time == THEN
    earlier = structs.replace(said.conditions[0], last_transition_time="2025-06-15T10:00:00Z")
    mended = queue("a", status=structs.replace(said, conditions=[earlier]))
    modify(engine.cluster, mended)

    assert set(plan(engine)) == {"g-0"}
    now_said = writes_of(engine)["a"].wanted.conditions
    assert now_said is not None
    (condition,) = now_said
    assert (condition.status, condition.reason, condition.message) == ("True", "Valid", "")
    assert condition.last_transition_time == THEN


def test_a_warning_is_removed_after_correction_and_other_conditions_stay() -> None:
    other = kube.Condition(type="Budget", status="True")
    over = gpus(quota=8, limit=4)
    engine = engine_with(queue("a", resources=over, status=QueueStatus(conditions=[other])))
    said = writes_of(engine)["a"].wanted
    assert [c.type for c in said.conditions or ()] == ["Budget", "Ready", "Warning"]
    modify(engine.cluster, queue("a", resources=gpus(quota=4, limit=4), status=said))

    write = writes_of(engine)["a"]

    assert [c.type for c in write.wanted.conditions or ()] == ["Budget", "Ready"]
    assert write.is_urgent


def test_unchanged_conditions_are_not_written() -> None:
    queues = [queue("a", "b"), queue("b", "a"), queue("c", resources=gpus(quota=8, limit=4))]
    engine = engine_with(node("n"), *queues)
    writes = writes_of(engine)
    modify(
        engine.cluster,
        *(structs.replace(item, status=writes[item.metadata.name].wanted) for item in queues),
    )

    assert writes_of(engine) == {}


def test_queues_below_a_deleted_queue_wait_until_it_is_recreated() -> None:
    org, team = queue("org"), queue("team", "org")
    engine = engine_with(node("n"), org, team, *gang("g", 1, queue="team"))
    delete(engine.cluster, org)
    assert plan(engine) == {}
    assert conditions_of(engine) == {"team": [unready("ParentDoesNotExist")]}

    modify(engine.cluster, org)

    assert set(plan(engine)) == {"g-0"}
    assert conditions_of(engine) == {"org": [READY], "team": [READY]}


@pytest.mark.parametrize(
    "turned",
    [
        queue("poor", resources={"gpu": {"quota": "none"}}),
        queue("poor", "nobody"),
        queue("poor", "poor"),
    ],
    ids=["a typing mistake in its quota", "a parent that is gone", "a cycle"],
)
def test_nothing_is_reclaimed_from_an_unusable_queue(turned: Queue) -> None:
    runs = gang("runs", 1, queue="poor", gpu=1, on="n", priority=50)
    rich = queue("rich", resources=gpus(quota=1))
    wants = gang("wants", 1, queue="rich", gpu=1, priority=50)
    engine = engine_with(node("n", gpu=1), queue("poor"), rich, *runs, *wants, clock=Clock())
    modify(engine.cluster, turned)

    plan(engine)
    assert engine.report.evictions == []

    modify(engine.cluster, queue("poor"))
    plan(engine)
    assert [eviction.task.name for eviction in engine.report.evictions] == ["runs-0"]
