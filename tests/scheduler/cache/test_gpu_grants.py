"""Sizes of GPU shares are read from fields that their owners cannot write."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api import gpushare
from bindery.api.gpushare import RECORD_ANNOTATION, group_labels, record
from bindery.kube.objects import watched as kube
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import add, as_created, delete, engine_with, node, pod
from tests.scheduler.sharedgpus import annotated, placed, recorded, reservation, sharer
from tests.sizes import examples

NINE = {"gpu-fraction": "0.9"}
TINY = {"gpu-fraction": "0.01"}


def bound(item: kube.Pod, on: str, groups: Iterable[str], **changes: Any) -> kube.Pod:
    """Return `item` as it is once it is bound to the node `on` and belongs to `groups`."""
    labels = {**item.metadata.labels, **group_labels(tuple(groups))}
    metadata = msgspec.structs.replace(item.metadata, labels=labels, **changes)
    spec = msgspec.structs.replace(item.spec, node_name=on)
    status = msgspec.structs.replace(item.status, phase="Running")
    return msgspec.structs.replace(item, metadata=metadata, spec=spec, status=status)


def planned(engine: Engine, item: kube.Pod) -> tuple[str, ...]:
    """Add `item`, plan it and take in its request; return its GPU groups."""
    add(engine.cluster, item)
    (draft,) = engine.cycle()
    add(engine.cluster, as_created(draft))
    return tuple(draft.spec.pods[0].selected_gpu_groups)


def test_a_share_that_its_owner_shrinks_after_the_binding_keeps_its_size() -> None:
    engine = engine_with(node("a", gpu=1))
    first = sharer("first", NINE)
    running = bound(first, "a", planned(engine, first))
    add(engine.cluster, running, annotated(running, TINY), sharer("second", NINE))
    assert placed(engine) == set()


def test_a_share_that_its_owner_changes_before_the_binding_keeps_its_planned_size() -> None:
    engine = engine_with(node("a", gpu=1))
    first = sharer("first", NINE)
    groups = planned(engine, first)
    changed = annotated(first, TINY)
    add(engine.cluster, changed, sharer("second", NINE))
    assert placed(engine) == set()
    add(engine.cluster, bound(changed, "a", groups))
    assert placed(engine) == set()


def test_a_share_stays_in_its_group_when_its_owner_changes_the_group() -> None:
    engine = engine_with(node("a", gpu=2))
    first = sharer("first", NINE)
    running = bound(first, "a", planned(engine, first))
    add(engine.cluster, running, annotated(first, {"gpu-fraction": "nonsense"}))
    add(engine.cluster, bound(annotated(first, TINY), "a", ["another"]), pod("w", 0, 2))
    assert placed(engine) == set()


def test_a_new_scheduler_uses_the_binders_record_and_the_reservation() -> None:
    user = recorded(sharer("u", TINY, ("mine",), on="a"), NINE, ("g",))
    engine = engine_with(node("a", gpu=1), user, reservation("g", "a"), sharer("s", NINE))
    assert placed(engine) == set()


def test_the_record_of_another_pod_is_ignored() -> None:
    stolen = {RECORD_ANNOTATION: record("uid-of-another", NINE, ("g",))}
    user = annotated(sharer("u", TINY, ("g",), on="a"), stolen)
    engine = engine_with(node("a", gpu=1), user, reservation("g", "a"), sharer("s", NINE))
    assert placed(engine) == {"s"}


def test_the_record_is_sufficient_where_a_policy_protects_it() -> None:
    user = recorded(sharer("u", TINY, on="a"), NINE, ("g",))
    shares = node("a", gpu=1), user, sharer("s", NINE)
    assert placed(engine_with(*shares, tenancy_policy_enforced=True)) == set()
    assert placed(engine_with(*shares)) == {"s"}


def test_bound_pods_with_an_invented_group_take_no_gpu_from_other_pods() -> None:
    forged = [
        sharer(f"f{index}", NINE, (f"invented-{index}",), on="a", queue="theirs")
        for index in range(20)
    ]
    honest = [pod(f"w{index}", 0, 1) for index in range(4)]
    engine = engine_with(node("a", cpu=64, gpu=4), *forged, *honest)
    assert placed(engine) == {each.metadata.name for each in honest}


@settings(max_examples=examples(14), deadline=None)
@given(order=st.permutations(range(4)))
def test_another_schedulers_shares_count_by_its_reservation_in_any_order(
    order: list[int],
) -> None:
    seen = [
        node("a", gpu=1),
        sharer("u", NINE, ("g",), on="a", scheduler="kai-scheduler"),
        reservation("g", "a"),
        sharer("s", NINE),
    ]
    engine = engine_with(*(seen[at] for at in order))
    assert placed(engine) == set()


def test_a_share_keeps_its_gpu_when_its_reservation_is_deleted() -> None:
    held = reservation("g", "a")
    engine = engine_with(node("a", gpu=1), sharer("u", NINE, ("g",), on="a"), held)
    delete(engine.cluster, held)
    add(engine.cluster, sharer("s", NINE))
    assert placed(engine) == set()
    delete(engine.cluster, sharer("u", NINE))
    assert placed(engine) == {"s"}


@given(
    text=st.one_of(
        st.text(max_size=30),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["pod", "share", "groups"]), inner, max_size=3)
            ),
        ).map(lambda value: msgspec.json.encode(value).decode()),
    )
)
def test_an_unreadable_record_is_ignored(text: str) -> None:
    assert gpushare.read_record({RECORD_ANNOTATION: text}, "uid") is None


@given(
    portion=st.integers(1, gpushare.WHOLE - 1),
    memory=st.integers(0, 99),
    devices=st.integers(1, 64),
)
def test_a_share_survives_writing_and_reading(portion: int, memory: int, devices: int) -> None:
    share = gpushare.GpuShare(0 if memory else portion, memory, devices)
    text = record("uid", gpushare.as_annotations(share), ("g", "h"))
    granted = gpushare.read_record({RECORD_ANNOTATION: text}, "uid")
    assert granted == gpushare.Grant(share, ("g", "h"))
