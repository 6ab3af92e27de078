"""The plugin `fragmentation`: the node and the GPU that the engine chooses for a pod."""

from typing import Any

import pytest

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.kube.objects.watched import KubeObject
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    configuration,
    engine_with,
    gang,
    node,
    plan,
    pod,
)
from tests.scheduler.sharedgpus import reservation, sharer

HALVES = {"workload": [{"cpu": "1", "gpus": 0.5}]}
WHOLES = {"workload": [{"cpu": "1", "gpus": 1}]}
PAIRS = {"workload": [{"cpu": "1", "gpus": 2}]}


def engine(arguments: dict[str, Any], *items: KubeObject, **placement: str) -> Engine:
    given = {"fragmentation": arguments, "nodeplacement": placement}
    plugins = [
        PluginConfiguration(name=plugin.name, arguments=given.get(plugin.name, {}))
        for plugin in SchedulerConfiguration().plugins
    ]
    made = Engine(configuration(plugins), Clock())
    add(made.cluster, *items)
    return made


def devices(made: Engine, name: str) -> tuple[int, ...]:
    """Return the GPUs that the placed pod holds."""
    return made.cluster.state.nodes.devices.held_by[f"uid-{name}"].devices


def pods_in_pairs(count: int) -> list[KubeObject]:
    """Return pods on a node elsewhere, so that the scheduler learns pairs of GPUs."""
    elsewhere = node("z", 1000, gpu=2 * count, labels={"elsewhere": ""})
    return [elsewhere, *(pod(f"old-{i}", 1, gpu=2, on="z") for i in range(count))]


# a: three of four GPUs free; b: two. Binpack takes b, which breaks its pair.
UNEVEN = [
    node("a", 64, gpu=4),
    node("b", 64, gpu=4),
    pod("on-a", 1, gpu=1, on="a"),
    pod("on-b", 1, gpu=2, on="b"),
]


def test_a_pod_takes_the_gpu_that_no_pair_needs() -> None:
    assert plan(engine(PAIRS, *UNEVEN, pod("p", 1, gpu=1))) == {"p": "a"}


def test_an_explicit_strategy_overrides_the_plugin() -> None:
    assert plan(engine(PAIRS, *UNEVEN, pod("p", 1, gpu=1), gpu="binpack")) == {"p": "b"}
    assert plan(engine(PAIRS, *UNEVEN, pod("p", 1, gpu=1), gpu="spread")) == {"p": "a"}
    free = [node("c", 64, gpu=4), *UNEVEN, pod("p", 1, gpu=1)]
    assert plan(engine(PAIRS, *free, gpu="spread")) == {"p": "c"}


def test_the_workload_is_learned_from_50_pods_with_gpus() -> None:
    known, new = pods_in_pairs(49), pod("p", 1, gpu=1)
    # The two pods on a and b, and the new pod, are pods with GPUs too.
    assert plan(engine({}, *UNEVEN, *known[:-3], new)) == {"p": "b"}
    assert plan(engine({}, *UNEVEN, *known[:-2], new)) == {"p": "a"}


def test_the_first_of_nearly_equal_places_by_name_is_used() -> None:
    nodes = [node(f"n{i}", 64, gpu=4) for i in range(4)]
    items = [*nodes, pod("on", 1, gpu=2, on="n2"), pod("p", 1, gpu=2)]
    assert plan(engine(PAIRS, *items)) == {"p": "n0"}


def test_gpus_of_nodes_that_lack_cpu_are_filled_first() -> None:
    # b has too little CPU left for the typical pod after this one.
    nodes = [node("a", 64, gpu=2), node("b", "1500m", gpu=2)]
    tight = engine({"workload": [{"cpu": "2", "gpus": 1}]}, *nodes, pod("p", 1, gpu=1))
    assert plan(tight) == {"p": "b"}


def test_kinds_that_may_not_use_a_node_lose_nothing_when_it_is_filled() -> None:
    kind = {"cpu": "1", "gpus": 1, "nodeSelector": {"model": "A100"}}
    nodes = [node("a", 64, gpu=4, labels={"model": "A100"}), node("b", 64, gpu=4)]
    assert plan(engine({"workload": [kind]}, *nodes, pod("p", 1, gpu=1))) == {"p": "b"}


def test_taints_affinity_and_tolerations_of_kinds_count() -> None:
    terms = [{"matchExpressions": [{"key": "model", "operator": "In", "values": ["A100"]}]}]
    tolerations = [{"key": "team", "operator": "Exists"}]
    kind = {
        "cpu": "1",
        "gpus": 1,
        "requiredAffinity": {"nodeSelectorTerms": terms},
        "tolerations": tolerations,
    }
    nodes = [node("a", 64, gpu=4, labels={"model": "A100"}), node("b", 64, gpu=4)]
    assert plan(engine({"workload": [kind]}, *nodes, pod("p", 1, gpu=1))) == {"p": "b"}


def test_pods_without_gpus_are_placed_where_no_gpus_are_idle() -> None:
    nodes = [node("a", 64, gpu=4), node("b", 64, gpu=4)]
    busy = pod("on", 1, gpu=3, on="b")
    assert plan(engine(WHOLES, *nodes, busy, pod("p", 1))) == {"p": "b"}
    # By CPU, a is fuller.
    fuller = pod("cpu", 32, on="a")
    assert plan(engine(WHOLES, *nodes, busy, fuller, pod("p", 1))) == {"p": "b"}
    assert plan(engine(WHOLES, *nodes, busy, fuller, pod("p", 1), cpu="binpack")) == {"p": "a"}
    assert plan(engine(WHOLES, *nodes, busy, node("z", 8), pod("p", 1))) == {"p": "z"}


# ---- shares of GPUs ----------------------------------------------------------------------------


def shared(name: str, on: str, share: str, index: int) -> list[KubeObject]:
    """Return a pod with a share of the GPU `index` of a node, and the pod that reserves it."""
    user = sharer(name, {"gpu-fraction": share}, (f"g-{name}",), on=on)
    return [user, reservation(f"g-{name}", on, index=str(index))]


def test_a_share_opens_a_gpu_if_the_shared_one_is_needed_for_a_half() -> None:
    nodes = [node("a", 64, gpu=1), node("b", 64, gpu=1)]
    items = [*nodes, *shared("s", "b", "0.5", 0), sharer("p", {"gpu-fraction": "0.3"})]
    assert plan(engine(HALVES, *items))["p"] == "a"
    assert plan(engine(HALVES, *items, gpu="binpack"))["p"] == "b"


def test_a_share_takes_the_rest_of_a_gpu_that_no_typical_pod_can_use() -> None:
    nodes = [node("a", 64, gpu=1), node("b", 64, gpu=1)]
    items = [*nodes, *shared("s", "b", "0.6", 0), sharer("p", {"gpu-fraction": "0.3"})]
    assert plan(engine(HALVES, *items))["p"] == "b"


def test_the_chosen_gpu_within_a_node_is_the_least_fragmenting() -> None:
    items = [
        node("n", 64, gpu=3),
        *shared("s", "n", "0.5", 0),
        *shared("t", "n", "0.3", 1),
        sharer("p", {"gpu-fraction": "0.2"}),
    ]
    fragmentation = engine(HALVES, *items)
    plan(fragmentation)
    assert devices(fragmentation, "p") == (1,)  # leaves a half on each of the shared GPUs
    binpack = engine(HALVES, *items, device="binpack")
    plan(binpack)
    assert devices(binpack, "p") == (0,)
    spread = engine(HALVES, *items, device="spread")
    plan(spread)
    assert devices(spread, "p") == (2,)


def test_pods_of_a_gang_of_shares_are_placed_one_by_one_on_the_latest_state() -> None:
    members = [sharer(f"p-{i}", {"gpu-fraction": "0.5"}, group="g") for i in range(4)]
    items = [*(node(f"n{i}", 64, gpu=1) for i in range(4)), gang("g", 4)[0], *members]
    assert sorted(plan(engine(WHOLES, *items)).values()) == ["n0", "n0", "n1", "n1"]


def test_equal_pods_have_the_same_plan_in_a_new_process() -> None:
    items = [*UNEVEN, *pods_in_pairs(60), *(pod(f"p{i}", 1, gpu=1) for i in range(5))]
    assert plan(engine({}, *items)) == plan(engine({}, *reversed(items)))


def test_a_node_that_changes_is_measured_again() -> None:
    made = engine(WHOLES, node("a", 64, gpu=4), node("b", 64, gpu=4), pod("p", 1, gpu=4))
    assert plan(made) == {"p": "a"}
    add(made.cluster, node("0", 64, gpu=8), pod("q", 1, gpu=8), pod("r", 1, gpu=2))
    assert plan(made) == {"q": "0", "r": "b"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ({"gpus": 1.5}, "more than one GPU must be whole"),
        ({"cpu": "much"}, "much"),
        ({"gpu": 1}, "unknown key"),
        ({"gpus": 1, "tolerations": [{"key": 1}]}, "tolerations"),
        ({"gpus": 1, "requiredAffinity": {"nodeSelectorTerms": 3}}, "array"),
    ],
)
def test_an_unreadable_workload_is_an_error_with_its_place(kind: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginConfigurationError, match=text):
        engine({"workload": [kind]})


def test_the_plugin_changes_nothing_without_gpus() -> None:
    items = [node("a", 8), node("b", 8), pod("old", cpu=5, on="b"), pod("new")]
    assert plan(engine_with(*items)) == plan(engine({"minimumPods": 0}, *items)) == {"new": "b"}
