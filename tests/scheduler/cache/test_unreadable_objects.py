"""Objects with a malformed spec: a condition has the mistake, and other objects are planned.

The API server refuses most of it today; an older definition may have let it in.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.resources import POD_GROUPS, QUEUES
from bindery.kube.objects.watched import Condition
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Malformed
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.conditions import ConditionWrite, ReportedKind, pending_writes
from bindery.scheduler.status.queues import QueueStatuses
from tests.scheduler.schedulerworld import NOW, delete, engine_with, gang, modify, node, plan, pod

_FIELDS = st.sampled_from(
    [
        "minMember",
        "queue",
        "priorityClassName",
        "roles",
        "subGroups",
        "minSubGroup",
        "preemptibility",
        "preemptionDelaySeconds",
        "stalenessGracePeriodSeconds",
        "expectedRuntimeSeconds",
        "name",
        "parent",
        "priority",
        "state",
        "resources",
        "models",
        "reclaimable",
        "preemptMinRuntimeSeconds",
        "quota",
        "overQuotaWeight",
        "limit",
        "gpu",
        "cpu",
    ]
)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["other", "odd", "-1", "5G", "1e400", "Closed"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_FIELDS, below, max_size=4),
    max_leaves=12,
)
_SPECS = _JSON | st.dictionaries(_FIELDS | st.text(max_size=4), _JSON, max_size=6)


def body(name: str, spec: Any, namespace: str = "", *conditions: Condition) -> bytes:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    item = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
    return msgspec.json.encode({"type": "ADDED", "object": item})


def read_group(spec: Any, *conditions: Condition) -> PodGroup | Malformed:
    _, found = LenientDecoder(POD_GROUPS).event(body("odd", spec, "team", *conditions))
    return found


def broken_group(*conditions: Condition) -> PodGroup:
    found = read_group({"minMember": "two"}, *conditions)
    assert isinstance(found, PodGroup)
    return found


def told(group: PodGroup, write: ConditionWrite) -> PodGroup:
    """Return `group` as it is once `write` has been written."""
    assert write.figures is not None, "written with each state of a gang"
    status = structs.replace(
        group.status,
        conditions=list(write.all_conditions),
        state=str(write.state),
        pods=write.figures.pods,
        since=write.figures.since,
        ran_seconds=write.figures.ran_seconds,
        assigned_queue=write.figures.assigned_queue,
    )
    return structs.replace(group, status=status)


def group_write(engine: Engine) -> ConditionWrite | None:
    plan(engine)
    writes = pending_writes(engine.cluster, engine.report, NOW)
    return next(
        (w for w in writes if w.subject is ReportedKind.POD_GROUP and w.meta.name == "odd"), None
    )


@given(spec=_SPECS)
def test_a_podgroup_with_any_spec_is_kept_and_another_gang_is_planned(spec: Any) -> None:
    found = read_group(spec)
    assert isinstance(found, PodGroup)
    engine = engine_with(node("n"), found, pod("odd-0", group="odd"), *gang("good", 2))

    assert {"good-0", "good-1"} <= plan(engine).keys()
    list(pending_writes(engine.cluster, engine.report, NOW))


@example(spec={"priority": 2**63})
@given(spec=_SPECS)
def test_a_queue_with_any_spec_is_kept_and_another_queues_gang_is_planned(spec: Any) -> None:
    _, found = LenientDecoder(QUEUES).event(body("odd", spec))
    assert isinstance(found, Queue)
    other = Queue(metadata=structs.replace(found.metadata, name="other", uid="uid-other"))
    of_odd = gang("odd", 2, queue="odd")
    engine = engine_with(node("n"), found, other, *of_odd, *gang("good", 2, queue="other"))

    assert {"good-0", "good-1"} <= plan(engine).keys()
    QueueStatuses(engine.cluster, "").writes(engine.report, NOW)


@pytest.mark.parametrize("spec", [None, [], "text", 3, {"minMember": "two"}, {"roles": [1]}])
def test_an_unreadable_podgroup_without_pods_has_a_condition(spec: Any) -> None:
    found = read_group(spec)
    assert isinstance(found, PodGroup)

    write = group_write(engine_with(node("n"), found))

    assert write is not None
    assert (write.condition.status, write.condition.reason) == ("False", "Invalid")
    assert write.condition.message.startswith("Expected ")
    assert write.is_urgent


def test_the_pods_of_an_unreadable_podgroup_wait_for_that_reason() -> None:
    engine = engine_with(node("n"), broken_group(), pod("odd-0", group="odd"))

    assert plan(engine) == {}
    writes = list(pending_writes(engine.cluster, engine.report, NOW))
    assert {write.subject for write in writes} == {ReportedKind.POD, ReportedKind.POD_GROUP}
    assert all("$.spec.minMember" in write.condition.message for write in writes)


@pytest.mark.parametrize(
    ("pods", "says"),
    [
        ([], ("False", "NotEnoughPods")),
        ([pod("odd-0", group="odd", on="n")], ("True", "Scheduled")),
        ([pod("odd-0", group="odd")], ("True", "Scheduled")),
    ],
    ids=["without pods", "while it runs", "while it waits"],
)
def test_a_corrected_podgroup_is_no_longer_invalid(pods: list[Any], says: tuple[str, str]) -> None:
    engine = engine_with(node("n"), broken_group(), *pods)
    said = group_write(engine)
    assert said is not None
    mended = structs.replace(told(broken_group(), said), unreadable="")
    modify(engine.cluster, mended)

    write = group_write(engine)

    assert write is not None
    assert (write.condition.status, write.condition.reason) == says
    modify(engine.cluster, told(mended, write))
    assert group_write(engine) is None


def test_an_unreadable_podgroup_is_written_once_and_not_after_its_deletion() -> None:
    engine = engine_with(node("n"), broken_group())
    said = group_write(engine)
    assert said is not None
    as_told = told(broken_group(), said)
    modify(engine.cluster, as_told)
    assert group_write(engine) is None

    delete(engine.cluster, as_told)
    assert group_write(engine) is None
