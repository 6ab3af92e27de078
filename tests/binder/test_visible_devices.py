"""A pod that chooses GPUs by NVIDIA_VISIBLE_DEVICES is refused where GPUs are shared."""

import copy
import json
from typing import Any

import pytest

from bindery.binder.plugins import visibledevices
from bindery.binder.plugins.gpusharing import admission
from bindery.binder.plugins.gpusharing.arguments import GpuSharingArguments
from bindery.binder.plugins.gpusharing.plugin import GpuSharing
from bindery.binder.plugins.hami.plugin import Hami, HamiArguments
from bindery.binder.webhook.review import Plugins

NAME = "NVIDIA_VISIBLE_DEVICES"


def pod(variable: dict[str, Any], kind: str = "containers", **annotations: str) -> dict[str, Any]:
    container = {
        "name": "c",
        "env": [{"name": "OTHER", "value": "all"}, {"name": NAME, **variable}],
    }
    spec = {"schedulerName": "bindery", "containers": [{"name": "main"}]}
    if kind == "containers":
        spec["containers"] = [container]
    else:
        spec[kind] = [container]
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"value": "all"}, "the value 'all'"),
        ({"value": "0"}, "the value '0'"),
        ({"value": "GPU-1"}, "the value 'GPU-1'"),
        ({"value": "$(CHOSEN)"}, "the value '$(CHOSEN)'"),
        ({}, "the value ''"),
        ({"valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}, "from another object"),
        ({"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}}, "from another"),
        (
            {"value": "none", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}},
            "from another",
        ),
    ],
)  # fmt: skip
def test_a_value_or_a_source_of_the_pods_own_is_refused(
    variable: dict[str, Any], message: str, kind: str
) -> None:
    (found,) = visibledevices.problems(pod(variable, kind))

    assert found.startswith(f"container c sets {NAME} to ")
    assert message in found


@pytest.mark.parametrize("value", ["none", "void"])
def test_the_values_without_a_gpu_are_allowed(value: str) -> None:
    assert visibledevices.problems(pod({"value": value})) == []
    assert visibledevices.problems({"spec": {"containers": [{"name": "c"}]}}) == []
    assert visibledevices.problems({}) == []


@pytest.mark.parametrize("named", [{}, {"gpu-fraction-container-name": "side"}])
def test_the_reference_of_a_share_is_allowed_in_its_container_only(named: dict[str, str]) -> None:
    bare = {
        "metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5", **named}},
        "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
    }
    prepared = admission.prepared(copy.deepcopy(bare))
    assert visibledevices.problems(prepared) == []

    first, second = prepared["spec"]["containers"]
    owner, other = (second, first) if named else (first, second)
    other["env"] = [each for each in owner["env"] if each["name"] == NAME]
    assert len(visibledevices.problems(prepared)) == 1


def test_both_plugins_refuse_it_and_the_user_reads_it_once() -> None:
    plugins = Plugins((Hami(HamiArguments()), GpuSharing(GpuSharingArguments())), "bindery")
    body = json.dumps({"request": {"uid": "7", "object": pod({"value": "all"})}}).encode()

    response = plugins.validate(body)["response"]

    assert not response["allowed"]
    assert response["status"]["message"].count(NAME) == 1


def test_an_argument_of_each_plugin_allows_it() -> None:
    allowing = (
        Hami(HamiArguments(allow_visible_devices=True)),
        GpuSharing(GpuSharingArguments(allow_visible_devices=True)),
    )

    assert [plugin.validate(pod({"value": "all"})) for plugin in allowing] == [[], []]
