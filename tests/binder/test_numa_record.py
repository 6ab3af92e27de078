"""The binder plugin numa: the predicted zones become a record on the pod."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.interface import BindContext, PluginError
from bindery.binder.plugins.numa import Numa
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    StatementSpec,
)


def context(data: Mapping[str, Any]) -> BindContext:
    binding = PodBinding(
        pod_name="p", pod_uid="u", selected_node="n", plugin_data={"numa": dict(data)}
    )
    spec = StatementSpec(pods=[binding], id="s")
    pod = PodView("team", "p", "u", node="", ending=False)
    client: Any = None  # no step calls the API
    return BindContext(client, pod, CommittedStatement(spec=spec), binding, data)


def test_the_predicted_zones_are_recorded_with_the_uid_of_the_pod() -> None:
    data = {"zones": [1], "held": {"1": {"cpu": 4, "memory": 1024}}}
    plugin, planned = Numa(), context(data)

    asyncio.run(plugin.pre_bind(planned))
    text = plugin.binding_annotations(planned)[NUMA_ZONES_ANNOTATION]

    assert json.loads(text) == {**data, "pod": "u"}
    found = numaplacement.from_record(text, "u")
    assert found is not None
    assert found.zones == [1]
    assert numaplacement.from_record(text, "another") is None


def test_only_pods_with_predicted_zones_concern_the_plugin() -> None:
    assert Numa().concerns(context({"zones": [0]}).binding)
    assert not Numa().concerns(PodBinding(pod_name="p", pod_uid="u", selected_node="n"))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"zones": "0"},
        {"zones": [-1]},
        {"zones": [0], "held": {"0": {"cpu": -4}}},
        {"zones": [0], "held": {"first": {"cpu": 4}}},
    ],
)
def test_data_other_than_a_prediction_is_refused(data: Mapping[str, Any]) -> None:
    with pytest.raises(PluginError, match="no readable NUMA zones"):
        asyncio.run(Numa().pre_bind(context(data)))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"zones":[0],"pod":"other"}'])
def test_an_unreadable_record_is_read_as_none(text: str | None) -> None:
    assert numaplacement.from_record(text, "u") is None


def test_zones_are_listed_as_text() -> None:
    texts = [numaplacement.zones_text(zones) for zones in ([], [0], [0, 1], [0, 1, 3])]

    assert texts == ["no NUMA zone", "NUMA zone 0", "NUMA zones 0 and 1", "NUMA zones 0, 1 and 3"]
