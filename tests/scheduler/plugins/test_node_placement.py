"""Binpack and spread, for GPU pods and CPU pods apart."""

import msgspec
import pytest

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.kube.objects import podspec
from bindery.kube.objects.watched import KubeObject
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import Clock, add, configuration, gang, node, plan, pod


def planned(arguments: dict[str, str], *items: KubeObject) -> dict[str, str]:
    plugins = [
        PluginConfiguration(name=plugin.name, arguments=arguments)
        if plugin.name == "nodeplacement"
        else plugin
        for plugin in SchedulerConfiguration().plugins
    ]
    engine = Engine(configuration(plugins), Clock())
    add(engine.cluster, *items)
    return plan(engine)


def used(places: dict[str, str]) -> list[int]:
    """Return how many pods each node has got, most first."""
    nodes = list(places.values())
    return sorted((nodes.count(name) for name in set(nodes)), reverse=True)


GPU_NODES = [node(f"g{i}", 16, gpu=4) for i in range(3)]
CPU_NODES = [node(f"c{i}", 4) for i in range(3)]


@pytest.mark.parametrize(
    ("arguments", "gpus", "cpus"),
    [
        ({}, [4, 2], [4, 2]),
        ({"gpu": "spread"}, [2, 2, 2], [4, 2]),
        ({"cpu": "spread"}, [4, 2], [2, 2, 2]),
    ],
)
def test_pods_are_packed_or_spread_by_the_resource_that_decides(
    arguments: dict[str, str], gpus: list[int], cpus: list[int]
) -> None:
    assert used(planned(arguments, *GPU_NODES, *gang("g", 6, gpu=1))) == gpus
    assert used(planned(arguments, *CPU_NODES, *gang("g", 6))) == cpus


def test_a_fuller_node_is_used_before_an_emptier_node() -> None:
    items = [node("a", 8), node("b", 8), pod("old", cpu=5, on="b"), pod("new")]

    assert planned({}, *items) == {"new": "b"}
    assert planned({"cpu": "spread"}, *items) == {"new": "a"}


def test_a_pod_without_gpus_avoids_nodes_with_gpus() -> None:
    items = [node("a", 2, gpu=1), node("b", 64), pod("p")]

    assert planned({}, *items) == {"p": "b"}
    assert planned({"cpu": "spread"}, *items) == {"p": "b"}


def test_the_first_name_decides_a_tie() -> None:
    assert planned({}, node("n-b"), node("n-a"), pod("p")) == {"p": "n-a"}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("nodeplacement", {"gpu": "scatter"}, "arguments.gpu: "),
        (
            "nodeplacement",
            {"gpus": "spread"},
            "arguments.gpus: plugin nodeplacement: unknown key",
        ),
        ("gang", {"any": 1}, "arguments.any: plugin gang: unknown key"),
        ("gangs", {}, "there is no plugin gangs; did you mean gang?"),
    ],
)
def test_a_plugin_that_cannot_be_created_is_an_error_at_its_place(
    name: str, arguments: dict[str, object], text: str
) -> None:
    wrong = [
        PluginConfiguration(name="priority"),
        PluginConfiguration(name=name, arguments=arguments),
    ]

    with pytest.raises(PluginConfigurationError, match=f"plugin {name}") as caught:
        Engine(configuration(wrong), Clock())

    assert str(caught.value).startswith("plugins[1].")
    assert text in str(caught.value)


# ---- weights of plugins ------------------------------------------------------------------------


def weighted(**weights: float) -> SchedulerConfiguration:
    return configuration(
        [
            PluginConfiguration(name=plugin.name, weight=weights.get(plugin.name, 1.0))
            for plugin in SchedulerConfiguration().plugins
        ]
    )


@pytest.mark.parametrize(
    ("weights", "node_name"),
    [
        ({}, "liked"),
        ({"nodepreference": 0.0}, "busy"),
        ({"nodepreference": 0.01}, "busy"),
        ({"nodepreference": 0.01, "nodeplacement": 0.1}, "liked"),
        ({"nodeplacement": 100.0}, "busy"),
    ],
)
def test_the_scores_of_a_plugin_are_multiplied_by_its_weight(
    weights: dict[str, float], node_name: str
) -> None:
    term = {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}
    engine = Engine(weighted(**weights), Clock())
    affinity = msgspec.convert(
        {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": term}
                ]
            }
        },
        podspec.Affinity,
    )
    add(
        engine.cluster,
        node("busy", 8),
        node("liked", 8, labels={"fast": "1"}),
        pod("old", cpu=4, on="busy"),
        pod("new", affinity=affinity),
    )

    assert plan(engine) == {"new": node_name}


def test_a_weight_of_a_plugin_without_scores_is_an_error() -> None:
    with pytest.raises(PluginConfigurationError, match="weight: plugin gang does not score nodes"):
        Engine(weighted(gang=2.0), Clock())
