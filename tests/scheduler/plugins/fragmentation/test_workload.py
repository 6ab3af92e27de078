"""The typical workload: a function of the pods that exist, and of nothing else."""

import gc
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.gpushare import WHOLE
from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.plugins.fragmentation.gradient import MOST_WEIGHT
from bindery.scheduler.plugins.fragmentation.workload import (
    MOST_KINDS,
    NO_GPU,
    Kinds,
    PodKind,
    TypicalPods,
    learn,
    typical,
)
from bindery.scheduler.plugins.fragmentation.workload import given as given_weights
from tests.scheduler.schedulerworld import add, delete, engine_with, modify, node, pod
from tests.scheduler.sharedgpus import sharer
from tests.sizes import examples

ONE, HALF, PAIR = PodKind(4000, WHOLE, 1), PodKind(2000, WHOLE // 2, 1), PodKind(8000, WHOLE, 2)


def created(item: Pod, day: str) -> Pod:
    meta = msgspec.structs.replace(item.metadata, creation_timestamp=f"{day}T12:00:00Z")
    return msgspec.structs.replace(item, metadata=meta)


def learned(cluster: Cluster, half_life_days: int = 7) -> TypicalPods:
    state = cluster.state
    return learn(state.pod_counts.by_day, state.axis, Kinds(), half_life_days, 1)


@pytest.mark.parametrize(
    ("sums", "kinds"),
    [
        pytest.param({}, [], id="no pods"),
        pytest.param({ONE: 1}, [(ONE, 1)], id="one pod"),
        pytest.param({ONE: 1, HALF: 8}, [(HALF, 8), (ONE, 1)], id="the most frequent first"),
        pytest.param({ONE: 99, PAIR: 1}, [(ONE, 108)], id="rare kinds are left out"),
        pytest.param({ONE: 4, HALF: 4}, [(HALF, 4), (ONE, 4)], id="ties in a fixed order"),
        pytest.param({ONE: 1000, HALF: 1020}, [(HALF, 1024), (ONE, 1024)], id="rounded counts"),
        pytest.param({ONE: 0, HALF: 1}, [(HALF, 1)], id="a kind without pods"),
    ],
)
def test_the_typical_kinds_have_the_weights_of_the_pods(
    sums: dict[PodKind, int], kinds: list[Any]
) -> None:
    assert list(typical(sums).weights) == kinds


def test_weights_stay_small_for_any_number_of_kinds_and_pods() -> None:
    many = typical({PodKind(cpu, WHOLE, 1): 10**9 for cpu in range(1000)})

    assert len(many.weights) == MOST_KINDS
    assert many.workload().total_weight <= MOST_WEIGHT


def test_a_pod_counts_half_after_one_half_life() -> None:
    new = [created(pod(f"new-{i}", 1, gpu=1), "2026-03-15") for i in range(4)]
    old = [created(pod(f"old-{i}", 2, gpu=2), "2026-03-08") for i in range(4)]

    ((first, weight), (second, half)) = learned(engine_with(*new, *old).cluster).weights

    assert (first.devices, second.devices, weight) == (1, 2, 2 * half)


def test_pods_that_differ_only_in_irrelevant_fields_are_one_kind() -> None:
    pods = [
        pod("a", 1, gpu=1, more={"memory": "1Gi"}),
        pod("b", 1, gpu=1, more={"memory": "2Gi"}),
        pod("c", 1, gpu=1, phase="Succeeded"),
        pod("cpu-only", 1),
        pod("cpu-only-too", 7, node_selector={"disk": "ssd"}),
        pod("another scheduler's", 1, gpu=4, scheduler="other", on="n"),
    ]

    weights = dict(learned(engine_with(node("n", 64, gpu=8), *pods).cluster).weights)

    assert weights.keys() == {PodKind(1000, WHOLE, 1), NO_GPU}
    assert weights[PodKind(1000, WHOLE, 1)] / weights[NO_GPU] == pytest.approx(3 / 2, rel=0.1)


def test_pods_of_another_node_pool_do_not_count() -> None:
    pods = [pod(f"p{i}", 1, gpu=1, on="n") for i in range(3)]
    other = pod("other", 1, gpu=4, on="n", labels={NODE_POOL_LABEL: "other"})

    (kind,) = dict(learned(engine_with(node("n", 64, gpu=8), *pods, other).cluster).weights)

    assert kind.devices == 1


def test_given_weights_are_used_as_they_are_unless_they_are_too_large() -> None:
    assert given_weights([(ONE, 3), (HALF, 7), (ONE, 2)]).weights == ((HALF, 7), (ONE, 5))
    large = given_weights([(ONE, 2**31), (HALF, 2**30), (PAIR, 1)])
    assert large.workload().total_weight <= MOST_WEIGHT
    assert [kind for kind, _ in large.weights] == [ONE, HALF, PAIR]


def test_pods_with_a_constraint_on_nodes_are_a_separate_kind() -> None:
    pods = [pod("a", 1, gpu=1), pod("b", 1, gpu=1, node_selector={"model": "A100"})]
    assert len(learned(engine_with(*pods).cluster).weights) == 2


def test_a_share_by_memory_is_a_portion_of_the_smallest_devices() -> None:
    nodes = [
        node("large", 8, gpu=1, labels={"nvidia.com/gpu.memory": "40000"}),
        node("small", 8, gpu=1, labels={"nvidia.com/gpu.memory": "20000"}),
    ]
    ((kind, _),) = learned(engine_with(*nodes, sharer("s", {"gpu-memory": "5000"})).cluster).weights
    assert kind.portion == WHOLE // 4


some_pods = st.lists(
    st.tuples(
        st.sampled_from(["1", "2"]), st.integers(0, 2), st.sampled_from([1, 2, 9]), st.booleans()
    ),
    max_size=12,
)


@settings(max_examples=examples(21))
@given(some_pods, st.randoms(use_true_random=False))
def test_a_new_leader_learns_the_same_workload_from_the_pods(
    drawn: Sequence[tuple[str, int, int, bool]], chance: random.Random
) -> None:
    pods = [
        created(pod(f"p{i}", cpu, gpu=gpus), f"2026-03-{day:02}")
        for i, (cpu, gpus, day, _) in enumerate(drawn)
    ]
    veteran = engine_with(node("n", 64, gpu=8)).cluster
    add(veteran, *pods)
    for item, (_, _, _, stays) in zip(pods, drawn, strict=True):
        if not stays:
            delete(veteran, item)
        elif chance.random() < 0.5:
            status = msgspec.structs.replace(item.status, phase="Succeeded")
            modify(veteran, msgspec.structs.replace(item, status=status))
    left = [item for item, (*_, stays) in zip(pods, drawn, strict=True) if stays]
    chance.shuffle(left)
    heir = engine_with(*left, node("n", 64, gpu=8)).cluster

    assert learned(veteran) == learned(heir)


def test_the_constraints_of_kinds_are_deleted_with_their_pods() -> None:
    pods = [pod(f"p{i}", gpu=1, node_selector={"rack": f"r{i}"}) for i in range(30)]
    cluster, kinds = engine_with(node("n", 64, gpu=8), *pods).cluster, Kinds()
    state = cluster.state
    found = learn(state.pod_counts.by_day, state.axis, kinds, minimum_pods=1)
    assert all(kinds.constraint(key).node_selector for key in found.constraints)
    assert len(kinds._constraints) == 31

    delete(cluster, *pods)
    del found
    learn(state.pod_counts.by_day, state.axis, kinds, minimum_pods=1)
    gc.collect()

    assert list(kinds._constraints) == [b""]
