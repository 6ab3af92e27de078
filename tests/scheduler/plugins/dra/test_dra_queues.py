"""Devices of resource claims in the GPUs of queues: the charged queue, the time, the total."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.kube.objects.bindrequests import StatementStatus
from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.devices import DeviceClass, ResourceSlice
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scheduler.cache.claim_gpus import ClaimGpus
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Uid
from tests.scheduler.schedulerworld import (
    add,
    as_created,
    delete,
    engine_with,
    modify,
    node,
    places,
    plan,
    pod,
    queue,
    shared_request,
)
from tests.sizes import examples

CLASS = "gpu.nvidia.com"
NAMESPACE = "team"


def claim(name: str, count: int = 1, held: Sequence[str] = (), of: str = CLASS) -> ResourceClaim:
    """Return a claim for `count` devices; `held`: its allocated devices, on node n."""
    asked = {"name": "gpu", "exactly": {"deviceClassName": of, "count": count}}
    body: dict[str, Any] = {
        "metadata": {"namespace": NAMESPACE, "name": name, "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [asked]}},
    }
    if held:
        results = [{"request": "gpu", "driver": "d", "pool": "n", "device": each} for each in held]
        body["status"] = {"allocation": {"devices": {"results": results}}}
    return msgspec.convert(body, ResourceClaim)


def with_claims(item: Pod, *names: str) -> Pod:
    asked = [PodResourceClaim(name=name, resource_claim_name=name) for name in names]
    return msgspec.structs.replace(
        item, spec=msgspec.structs.replace(item.spec, resource_claims=asked)
    )


def devices(
    *named: dict[str, Any], node_name: str = "n", counters: dict[str, str] | None = None
) -> list[KubeObject]:
    """Return the class, and a slice with these devices."""
    spec: dict[str, Any] = {
        "driver": "d",
        "nodeName": node_name,
        "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
        "devices": list(named),
    }
    if counters is not None:
        amounts = {name: {"value": value} for name, value in counters.items()}
        spec["sharedCounters"] = [{"name": "card", "counters": amounts}]
    return [
        msgspec.convert({"metadata": {"name": CLASS}, "spec": {}}, DeviceClass),
        msgspec.convert({"metadata": {"name": node_name}, "spec": spec}, ResourceSlice),
    ]


def held(engine: Engine, name: str) -> float:
    """Return the GPUs that a queue holds by the sums of the cache."""
    state = engine.cluster.state
    return int(state.queues.allocated[state.axis.index("gpu"), state.queues.row(name)]) / 1000


def asked(engine: Engine, name: str) -> float:
    state = engine.cluster.state
    return int(state.queues.pending[state.axis.index("gpu"), state.queues.row(name)]) / 1000


def offered(engine: Engine) -> float:
    with engine.session() as session:
        return float(session.shares.total[session.state.axis.index("gpu")]) / 1000


def test_a_running_pod_counts_its_devices_in_any_order_of_events() -> None:
    running = with_claims(pod("p", 1, queue="q", on="n"), "c")
    mine = claim("c", 2, held=["gpu-0", "gpu-1"])
    items = [node("n"), queue("q"), running, mine]

    for order in (items, items[::-1], [running, mine, *items[:2]]):
        assert held(engine_with(*order), "q") == 2


def test_a_waiting_pod_requests_the_devices_that_its_claim_will_take() -> None:
    engine = engine_with(node("n"), queue("q"), with_claims(pod("p", 1, queue="q"), "c"))
    assert asked(engine, "q") == 0

    add(engine.cluster, claim("c", 3))
    assert asked(engine, "q") == 3

    modify(engine.cluster, claim("c", 3, held=["gpu-0"]))
    assert asked(engine, "q") == 1

    delete(engine.cluster, claim("c", 3, held=["gpu-0"]))
    assert asked(engine, "q") == 0


def test_devices_of_other_classes_and_with_admin_access_do_not_count() -> None:
    watching = msgspec.to_builtins(claim("admin"))
    watching["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    engine = engine_with(
        node("n"),
        queue("q"),
        claim("nic", of="nic.example.com"),
        msgspec.convert(watching, ResourceClaim),
        with_claims(pod("p", 1, queue="q"), "nic", "admin"),
    )
    assert asked(engine, "q") == 0


def test_a_shared_claim_moves_to_the_next_pod_and_to_its_queue() -> None:
    first = with_claims(pod("a", 1, queue="one", on="n"), "c")
    second = with_claims(pod("b", 1, queue="two", on="n"), "c")
    waiting = with_claims(pod("0", 1, queue="one"), "c")
    engine = engine_with(
        node("n"), queue("one"), queue("two"), claim("c", held=["x"]), first, second, waiting
    )
    assert (held(engine, "one"), held(engine, "two"), asked(engine, "one")) == (1, 0, 0)

    delete(engine.cluster, first)
    assert (held(engine, "one"), held(engine, "two"), asked(engine, "one")) == (0, 1, 0)

    delete(engine.cluster, second)
    assert (held(engine, "one"), held(engine, "two"), asked(engine, "one")) == (0, 0, 1)

    delete(engine.cluster, waiting)
    assert (asked(engine, "one"), asked(engine, "two")) == (0, 0)


def test_the_limit_applies_to_pods_that_share_one_claim() -> None:
    def pods(*names: str) -> list[Pod]:
        return [with_claims(pod(name, 1, queue="q"), "c") for name in names]

    ground = [node("n", gpu=1), *devices({"name": "gpu-0"}), claim("c")]
    full = engine_with(*ground, queue("q", gpu=0), *pods("a", "b"))
    roomy = engine_with(*ground, queue("q", gpu=1), *pods("a", "b"))

    assert plan(full) == {}
    assert plan(roomy) == {"a": "n", "b": "n"}


def test_the_total_of_queues_includes_the_devices_of_ready_nodes() -> None:
    engine = engine_with(
        node("n", gpu=2),
        node("down", ready=False),
        *devices({"name": "gpu-0"}, {"name": "gpu-1"}),
        *devices({"name": "gpu-0"}, node_name="down")[1:],
        *devices({"name": "gpu-0"}, node_name="unknown")[1:],
    )
    assert offered(engine) == 4

    modify(engine.cluster, *devices({"name": "gpu-0"})[1:])
    assert offered(engine) == 3


def test_a_gpu_and_its_partitions_count_as_often_as_they_can_be_allocated() -> None:
    def using(name: str, slices: str) -> dict[str, Any]:
        amounts = {"counterSet": "card", "counters": {"slices": {"value": slices}}}
        return {"name": name, "consumesCounters": [amounts]}

    parts = [using(f"part-{at}", "3") for at in range(4)]
    engine = engine_with(node("n"), *devices(using("whole", "8"), *parts, counters={"slices": "8"}))
    assert offered(engine) == 2


some_pods = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.lists(st.sampled_from("xyz"), unique=True, max_size=3),
        st.sampled_from(["waits", "runs", "ended", "gone"]),
    ),
    max_size=12,
)


@settings(max_examples=examples(70))
@given(some_pods, st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), max_size=6))
def test_each_claim_with_pods_counts_once_and_every_change_is_reported(
    pods: list[tuple[str, list[str], str]], claims: list[tuple[str, int]]
) -> None:
    counts = ClaimGpus(lambda name: name == CLASS)
    users: dict[str, list[str]] = {}
    gpus: dict[str, int] = {}
    seen = dict.fromkeys("abcd", 0)

    def changed(reported: set[Uid], itself: str = "") -> None:
        for name in "abcd":
            uid = Uid(f"uid-{name}")
            now = counts.of(uid)
            if uid not in reported and name != itself:
                assert now == seen[name], "a change of another pod is reported"
            seen[name] = now
        used = {each for names in users.values() for each in names}
        assert sum(seen.values()) == sum(gpus.get(each, 0) for each in used)

    for name, names, state in pods:
        if state in ("ended", "gone"):
            users.pop(name, None)
            changed(counts.forget_pod(Uid(f"uid-{name}")), name)
        else:
            item = with_claims(pod(name, 1, on="n" if state == "runs" else ""), *names)
            users[name] = names
            changed(counts.put_pod(item), name)
        if claims:
            key, count = claims.pop()
            gpus[key] = count
            sized = claim(key, max(count, 1), of=CLASS if count else "other")
            changed(counts.put_claim(sized, gone=False))


def test_devices_of_a_pod_that_is_gone_stay_taken_until_its_request_ends() -> None:
    """The binder may still allocate them: it learns later that the pod is gone."""
    engine = engine_with(
        node("n"), queue("q"), *devices({"name": "gpu-0"}), claim("one"), claim("two")
    )
    first, second = (
        with_claims(pod(name, 1, queue="q"), each) for name, each in (("p", "one"), ("r", "two"))
    )
    add(engine.cluster, first)
    [draft] = engine.cycle()

    delete(engine.cluster, first)
    add(engine.cluster, second)
    assert plan(engine) == {}

    engine.refused(draft)
    assert plan(engine) == {"r": "n"}


@pytest.mark.parametrize("is_node_seen_first", [True, False])
def test_devices_of_a_bound_pod_that_is_gone_are_free_when_its_claim_is(
    is_node_seen_first: bool,
) -> None:
    """The outcome of its request may be seen last, and the request stays for some seconds."""
    engine = engine_with(
        node("n"), queue("q"), *devices({"name": "gpu-0"}), claim("one"), claim("two")
    )
    first, second = (
        with_claims(pod(name, 1, queue="q"), each) for name, each in (("p", "one"), ("r", "two"))
    )
    add(engine.cluster, first)
    [draft] = engine.cycle()
    created = as_created(draft)
    add(engine.cluster, shared_request("batch", created))
    modify(engine.cluster, claim("one", held=["gpu-0"]))
    if is_node_seen_first:
        on_node = msgspec.structs.replace(first.spec, node_name="n")
        modify(engine.cluster, msgspec.structs.replace(first, spec=on_node))
    delete(engine.cluster, first)
    bound = StatementStatus(phase="Succeeded", bound_pods=[first.metadata.uid])
    batch = shared_request("batch", msgspec.structs.replace(created, status=bound))
    modify(engine.cluster, batch)
    delete(engine.cluster, claim("one"))

    add(engine.cluster, second)
    [draft] = engine.cycle()
    assert places([draft]) == {"r": "n"}
    engine.refused(draft)

    delete(engine.cluster, batch)
    assert plan(engine) == {"r": "n"}
