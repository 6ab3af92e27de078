"""GPUs one by one: plans never overcommit a device, undo restores all, restarts lose nothing."""

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.gpushare import WHOLE
from bindery.api.names import GPU_INDEXES_ANNOTATION as OBSERVED
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.holds import LINGER_S
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.devices import DeviceTable
from bindery.scheduler.model.jobs import TaskStatus
from bindery.scheduler.model.resources import PODS
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    modify,
    node,
    pod,
    session_of,
)
from tests.scheduler.sharedgpus import Share, annotated, placed, recorded, reservation, sharer
from tests.sizes import examples

MEMORY = {"nvidia.com/gpu.memory": "40000"}
shares = st.one_of(
    st.sampled_from(["0.1", "0.25", "0.5", "0.75", "0.9"]).map(lambda f: {"gpu-fraction": f}),
    st.sampled_from(["1", "10000", "20000", "39999"]).map(lambda m: {"gpu-memory": m}),
)
several = st.sampled_from([{}, {"gpu-fraction-num-devices": "2"}])


def columns(table: DeviceTable) -> tuple[bytes, ...]:
    return tuple(each.tobytes() for each in (table._held, table._releasing, table._promised))


def books(cluster: Cluster) -> tuple[Any, ...]:
    """Return everything of devices that a discard must restore."""
    table, nodes = cluster.state.nodes.devices, cluster.state.nodes
    groups = {
        (row, name): (group.device, group.users, group.reservations)
        for row, of_row in table._groups.items()
        for name, group in of_row.items()
    }
    return (
        *columns(table),
        table._members.tobytes(),
        nodes.idle.tobytes(),
        nodes.pipelined.tobytes(),
        {place: frozenset(holders) for place, holders in table._opened_for.items()},
        dict(table.held_by),
        dict(table.promised_to),
        groups,
    )


def check(cluster: Cluster) -> None:
    """Check that columns are the sums of places, and that no device is given away twice."""
    table = cluster.state.nodes.devices
    held: Counter[tuple[int, int]] = Counter()
    for places in table.held_by.values():
        for device in places.devices:
            held[device, places.row] += places.portion
    later = table._capacity - table._held + table._releasing - table._promised
    for (device, row), amount in held.items():
        assert table._held[device, row] == amount <= WHOLE
    assert int(table._held.sum()) == sum(held.values())
    assert (later >= 0).all()
    for row, of_row in table._groups.items():
        devices = [group.device for group in of_row.values()]
        assert len(devices) == len(set(devices)), "two groups on one device"
        for places in table.held_by.values():
            if places.row == row and not places.groups:
                assert not set(devices) & set(places.devices), "a whole device is shared"


@settings(max_examples=examples(35), deadline=None)
@given(data=st.data())
def test_no_plan_overcommits_a_device_and_a_discard_restores_everything(
    data: st.DataObject,
) -> None:
    cluster = Cluster(SchedulerConfiguration(), lambda: NOW)
    add(cluster, node("a", gpu=2, labels=MEMORY), node("b", gpu=3, labels=MEMORY))
    for index in range(data.draw(st.integers(0, 4))):
        group = data.draw(st.sampled_from(["g", "h"]))
        share = {"gpu-fraction": "0.25"}
        add(cluster, reservation(group, "a"))
        add(cluster, sharer(f"r{index}", share, (group,), on="a", phase="Running"))
    for index in range(8):
        share = data.draw(shares) | data.draw(several)
        whole = pod(f"w{index}", 0, data.draw(st.integers(1, 2)))
        add(cluster, whole if data.draw(st.booleans()) else sharer(f"p{index}", share))
    session = session_of(cluster)
    tasks = sorted(cluster.state.tasks.values(), key=lambda task: task.uid)
    before = books(cluster)

    with session.statement() as statement:
        marks = [(statement.savepoint(), before)]
        for _ in range(data.draw(st.integers(1, 14))):
            task = data.draw(st.sampled_from(tasks))
            row = data.draw(st.integers(0, 1))
            with suppress(LedgerRefusalError):
                if task.status is TaskStatus.RUNNING:
                    statement.evict(task, "for a test")
                elif data.draw(st.booleans()):
                    statement.allocate(task, row)
                else:
                    statement.pipeline(task, row)
            check(cluster)
            if data.draw(st.integers(0, 3)) == 0:
                mark, looked = data.draw(st.sampled_from(marks))
                statement.rollback(mark)
                assert books(cluster) == looked
                marks = [each for each in marks if each[0] <= mark]
            marks.append((statement.savepoint(), books(cluster)))

    assert books(cluster) == before


@settings(max_examples=examples(18), deadline=None)
@given(wanted=st.lists(shares, min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_a_restarted_scheduler_restores_the_groups_that_share_gpus(
    wanted: list[Share], seed: int
) -> None:
    nodes = [node("a", gpu=2, labels=MEMORY), node("b", gpu=1, labels=MEMORY)]
    pods = [sharer(f"p{index}", share) for index, share in enumerate(wanted)]
    engine = engine_with(*nodes, *pods)
    requests = [as_created(draft) for draft in engine.cycle()]
    of_pod = {
        each.pod_uid: (each.selected_node, tuple(each.selected_gpu_groups))
        for request in requests
        for each in request.spec.pods
    }
    bound = [
        sharer(each.metadata.name, share, of_pod[each.metadata.uid][1], on=node_name)
        for each, share in zip(pods, wanted, strict=True)
        if (node_name := of_pod.get(each.metadata.uid, ("",))[0]) and seed % 2
    ]
    known = {each.metadata.uid for each in bound}
    everything = [*nodes, *bound, *(p for p in pods if p.metadata.uid not in known), *requests]
    random.Random(seed).shuffle(everything)
    again = engine_with(*everything)

    def sharing(cluster: Cluster) -> dict[object, frozenset[object]]:
        table = cluster.state.nodes.devices
        at = {
            holder: {(cluster.state.nodes.name(p.row), device) for device in p.devices}
            for holder, p in table.held_by.items()
        }
        return {one: frozenset(two for two in at if at[one] & at[two]) for one in at}

    assert sharing(again.cluster) == sharing(engine.cluster)
    check(again.cluster)


def test_a_reservation_counts_no_gpu_but_excludes_pods_with_whole_gpus() -> None:
    cluster = Cluster(SchedulerConfiguration(), lambda: NOW)
    held = reservation("g", "a")
    add(cluster, node("a", gpu=1), held, pod("w", 0, 1))
    session = session_of(cluster)
    nodes = cluster.state.nodes
    gpu = nodes.axis.index("gpu")

    assert nodes.idle[gpu, 0] == 1000
    with session.statement() as statement, pytest.raises(LedgerRefusalError):
        statement.allocate(cluster.state.tasks["uid-w"], 0)  # type: ignore[index]  # a str is a Uid
    delete(cluster, held)
    with session.statement() as statement:
        statement.allocate(cluster.state.tasks["uid-w"], 0)  # type: ignore[index]  # a str is a Uid


@pytest.mark.parametrize(
    ("index", "changes", "device"),
    [("1", {}, 1), ("1", {OBSERVED: "0"}, 1), ("GPU-b", {OBSERVED: "1"}, 1), ("GPU-b", {}, 0)],
)
def test_a_reservation_is_on_the_gpu_that_it_or_an_observer_reports(
    index: str, changes: dict[str, str], device: int
) -> None:
    cluster = Cluster(SchedulerConfiguration(), lambda: NOW)
    add(cluster, node("a", gpu=2, labels=MEMORY))
    held = reservation("g", "a", index=index, phase="Running")

    add(cluster, annotated(held, changes))

    assert cluster.state.nodes.devices.device_of(0, "g") == device


def test_a_gpu_is_held_while_its_reservation_pod_is_terminating() -> None:
    whole, user = pod("w", 0, 1, on="a"), sharer("u", {"gpu-fraction": "0.5"}, ("g",), on="a")
    engine = engine_with(node("a", gpu=4), whole, user, reservation("g", "a", index="1"))
    delete(engine.cluster, user)
    going = reservation("g", "a", index="1", deleting="2025-06-15T15:06:45Z")
    three = pod("three", 0, 3)
    add(engine.cluster, going, three)
    assert placed(engine) == set()

    delete(engine.cluster, going)
    assert placed(engine) == {"three"}


@settings(max_examples=examples(18), deadline=None)
@given(
    index=st.sampled_from(["", "0", "1", "3", "GPU-8a56a4bc"]),
    deleting=st.sampled_from(["2025-06-15T15:06:45Z", "2025-06-15T01:00:00Z"]),
    order=st.permutations(range(4)),
)
def test_a_new_scheduler_holds_a_gpu_for_a_terminating_reservation(
    index: str, deleting: str, order: list[int]
) -> None:
    seen = [
        node("a", gpu=4),
        pod("w", 0, 1, on="a"),
        reservation("g", "a", index=index, deleting=deleting),
        pod("three", 0, 3),
    ]
    engine = engine_with(*(seen[at] for at in order))
    assert placed(engine) == set()

    delete(engine.cluster, pod("three", 0, 3))
    add(engine.cluster, pod("two", 0, 2))
    assert placed(engine) == {"two"}


def test_a_gpu_is_kept_for_the_reservation_of_a_request_with_a_deleted_pod() -> None:
    clock = Clock()
    user, whole = sharer("u", {"gpu-fraction": "0.5"}), pod("w", 0, 1)
    engine = engine_with(node("a", gpu=1), user, clock=clock)
    [draft] = engine.cycle()
    request = as_created(draft)
    add(engine.cluster, request)

    delete(engine.cluster, user)
    add(engine.cluster, whole)
    assert placed(engine) == set()
    [group] = draft.spec.pods[0].selected_gpu_groups
    holder = reservation(group, "a", index="0")
    add(engine.cluster, holder)
    assert placed(engine) == set()

    delete(engine.cluster, request)
    delete(engine.cluster, holder)
    assert placed(engine) == set(), "the creation of another one may be under way"
    clock.now += LINGER_S
    assert placed(engine) == {"w"}
    check(engine.cluster)


@given(order=st.permutations(range(3)), is_there=st.booleans())
def test_a_new_scheduler_keeps_gpus_for_requests_with_deleted_pods(
    order: list[int], is_there: bool
) -> None:
    clock = Clock()
    user, whole = sharer("u", {"gpu-fraction": "0.5"}), pod("w", 0, 1)
    [draft] = engine_with(node("a", gpu=1), user).cycle()
    seen = [node("a", gpu=1), as_created(draft), user if is_there else whole]

    again = engine_with(*(seen[at] for at in order), clock=clock)

    assert placed(again) == set()
    check(again.cluster)
    delete(again.cluster, as_created(draft))
    assert placed(again) == set()
    clock.now += LINGER_S
    assert placed(again) == ({"u"} if is_there else {"w"})


def test_a_gpu_is_kept_for_the_reservation_of_a_request_that_was_deleted_before_its_pod() -> None:
    """As by the deletion of a gang: the binder may still be creating the reservation."""
    clock = Clock()
    user, whole = sharer("u", {"gpu-fraction": "0.5"}), pod("w", 0, 1)
    engine = engine_with(node("a", gpu=1), user, clock=clock)
    [draft] = engine.cycle()
    request = as_created(draft)
    add(engine.cluster, request)

    delete(engine.cluster, request)
    add(engine.cluster, user)  # an update of the pod changes nothing
    delete(engine.cluster, user)
    add(engine.cluster, whole)
    assert placed(engine) == set()
    [group] = draft.spec.pods[0].selected_gpu_groups
    holder = reservation(group, "a", index="0")
    add(engine.cluster, holder)
    clock.now += LINGER_S
    assert placed(engine) == set()
    delete(engine.cluster, holder)
    assert placed(engine) == {"w"}
    check(engine.cluster)


def test_a_pod_that_joins_an_expected_reservation_leaves_room_for_it() -> None:
    """Else its node would refuse one of the two (found by histories, seeds 46 and 48)."""
    half = {"gpu-fraction": "0.5"}
    user = sharer("u", half)
    engine = engine_with(node("a", cpu=4, gpu=1), user)
    [draft] = engine.cycle()
    add(engine.cluster, as_created(draft))
    delete(engine.cluster, as_created(draft))
    delete(engine.cluster, user)

    add(engine.cluster, sharer("all", half, more={"cpu": "4"}))
    assert placed(engine) == set()
    add(engine.cluster, sharer("most", half, more={"cpu": "3"}))
    assert placed(engine) == {"most"}
    check(engine.cluster)


def test_nothing_is_kept_for_the_reservation_of_a_pod_that_was_bound_after_all() -> None:
    """Its node was seen before the outcome of its second request (found by histories, seed 91)."""
    clock, half = Clock(), {"gpu-fraction": "0.5"}
    user = sharer("u", half)
    engine = engine_with(node("a", cpu=4, gpu=1), user, clock=clock)
    [first] = engine.cycle()
    add(engine.cluster, as_created(first))
    delete(engine.cluster, as_created(first))
    clock.now += LINGER_S
    [draft] = engine.cycle()
    request = as_created(draft)
    add(engine.cluster, request)
    [group] = draft.spec.pods[0].selected_gpu_groups

    add(engine.cluster, reservation(group, "a", index="0"))
    modify(engine.cluster, recorded(sharer("u", half, (group,), on="a"), half, (group,)))
    uid = user.metadata.uid
    status = msgspec.structs.replace(request.status, phase="Succeeded", bound_pods=[uid])
    bound = msgspec.structs.replace(request, status=status)
    modify(engine.cluster, bound)
    delete(engine.cluster, bound)
    clock.now += LINGER_S
    list(engine.cycle())
    clock.now += LINGER_S
    list(engine.cycle())

    reservations = [t for t in engine.cluster.state.tasks.values() if t.reserves_gpu]
    assert len(reservations) == 1
    check(engine.cluster)


def test_a_standby_scheduler_expects_no_reservations_of_old_ended_requests() -> None:
    clock = Clock()
    user = sharer("u", {"gpu-fraction": "0.5"})
    [draft] = engine_with(node("a", gpu=1), user).cycle()
    request = as_created(draft)
    engine = engine_with(node("a", gpu=1), user, request, clock=clock)
    delete(engine.cluster, user)
    delete(engine.cluster, request)

    clock.now += LINGER_S
    add(engine.cluster, pod("w", 0, 1))

    assert placed(engine) == {"w"}


def test_a_node_with_more_tenants_than_gpus_gets_no_further_tenants() -> None:
    tenants = [reservation("one", "a"), reservation("two", "a")]
    engine = engine_with(node("a", gpu=1, cpu=64), *tenants)
    add(engine.cluster, sharer("more", {"gpu-fraction": "0.1"}))
    assert placed(engine) == set()

    delete(engine.cluster, tenants[0])
    assert placed(engine) == {"more"}


def test_pods_that_are_being_bound_keep_their_group_when_devices_are_reassigned() -> None:
    engine = engine_with(node("a", gpu=2, cpu=64), sharer("first", {"gpu-fraction": "0.6"}))
    [draft] = engine.cycle()
    [group] = draft.spec.pods[0].selected_gpu_groups
    add(engine.cluster, as_created(draft), reservation(group, "a"))
    crowd = [pod(name, 0, 1, on="a") for name in ("one", "two")]
    add(engine.cluster, *crowd)
    delete(engine.cluster, *crowd)

    add(engine.cluster, *(sharer(name, {"gpu-fraction": "0.6"}) for name in ("second", "third")))
    chosen = [p.selected_gpu_groups for d in engine.cycle() for p in d.spec.pods]

    assert len(chosen) == 1
    assert [group] not in chosen
    check(engine.cluster)


@settings(max_examples=examples(70), deadline=None)
@given(data=st.data())
def test_no_device_is_given_away_twice_after_events_in_any_order(data: st.DataObject) -> None:
    """Watches restart: a deleted object may be observed after its replacement."""
    half = {"gpu-fraction": "0.5"}

    def tenants(name: str) -> list[Any]:
        kind = data.draw(st.sampled_from(["share", "reserved", "whole"]), label=name)
        if kind == "whole":
            return [pod(name, 0, 1, on="a")]
        user = sharer(name, half, (name,), on="a")
        holder = reservation(name, "a", index=data.draw(st.sampled_from(["", "0", "2"])))
        return [holder, user] if kind == "share" else [holder]

    old = [item for number in range(3) for item in tenants(f"old{number}")]
    new = [item for number in range(4) for item in tenants(f"new{number}")]
    engine = engine_with(node("a", gpu=4, cpu=64))
    events = [(add, item) for item in (*old, *new)]
    for act, item in data.draw(st.permutations(events)):
        act(engine.cluster, item)
    for item in data.draw(st.permutations(old)):
        delete(engine.cluster, item)

    check(engine.cluster)
    add(engine.cluster, pod("whole", 0, 1))
    assert placed(engine) == set()


def test_room_is_kept_for_an_expected_reservation() -> None:
    cluster = Cluster(SchedulerConfiguration(tenancy_policy_enforced=True), lambda: NOW)
    add(cluster, node("a", gpu=1, pods=10))
    nodes = cluster.state.nodes
    cpu, memory, pods = (nodes.axis.index(name) for name in ("cpu", "memory", PODS))
    all_memory = int(nodes.idle[memory, 0])

    def free() -> tuple[int, int, int]:
        """Return how many pods fit, and what is taken: milli cores and bytes."""
        taken = all_memory - int(nodes.idle[memory, 0])
        return int(nodes.idle[pods, 0]), 8000 - int(nodes.idle[cpu, 0]), taken

    half = {"gpu-fraction": "0.5"}
    user = recorded(sharer("u", half, on="a"), half, ("g",))
    holder = reservation("g", "a")
    add(cluster, user)
    assert free() == (8, 1, 2**25)
    add(cluster, holder)
    assert free() == (8, 1, 2**25)
    delete(cluster, user)
    assert free() == (9, 1, 2**25)
    delete(cluster, holder)
    assert free() == (10, 0, 0)


def test_all_configured_resources_of_reservations_are_planned() -> None:
    asks = {"resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}
    plugins = [PluginConfiguration(name="predicates"), PluginConfiguration(name="gang")]
    sharing = PluginConfiguration(name="gpusharing", arguments=asks)
    engine = engine_with(
        node("a", cpu=4, gpu=2, memory="8Gi"),
        sharer("small", {"gpu-fraction": "0.9"}, more={"cpu": "3", "memory": "6Gi"}),
        plugins=[*plugins, sharing],
    )
    assert placed(engine) == {"small"}
    nodes = engine.cluster.state.nodes
    cpu, memory = nodes.axis.index("cpu"), nodes.axis.index("memory")
    assert (nodes.idle[cpu, 0], nodes.idle[memory, 0]) == (500, 2**30)


def test_shares_by_memory_are_recounted_when_a_smaller_gpu_appears() -> None:
    cluster = Cluster(SchedulerConfiguration(), lambda: NOW)
    asks = sharer("p", {"gpu-memory": "10000"})
    add(cluster, asks, node("large", gpu=1, labels={"nvidia.com/gpu.memory": "40000"}))
    gpu = cluster.state.nodes.axis.index("gpu")

    def pending() -> int:
        return int(cluster.state.queues.pending[gpu].sum())

    assert pending() == 250
    small = node("small", gpu=1, labels={"nvidia.com/gpu.memory": "20000"})
    add(cluster, small)
    assert pending() == 500
    delete(cluster, small)
    assert pending() == 250
