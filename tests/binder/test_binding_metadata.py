"""The metadata that the binding writes to a pod."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from bindery.binder.outcome.bindingmetadata import BindingMetadata, recorded
from bindery.binder.outcome.outcome import PodFailure
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.plugins.interface import BindContext, BinderPlugin, PluginError
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    PodGroupReference,
    ReceivedGPU,
    StatementSpec,
)
from bindery.kube.objects.watched import Meta


class Recorder:
    """A plugin that records the scheduler's data for the pod in annotations."""

    def __init__(self, name: str, problem: Exception | None = None) -> None:
        self.name, self.problem = name, problem

    def concerns(self, binding: PodBinding) -> bool:
        return self.name in binding.plugin_data

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        if self.problem is not None:
            raise self.problem
        return {f"{self.name}.example/part": str(context.data["part"])}


def metadata(
    *plugins: BinderPlugin, pool: str = "", **binding: Any
) -> BindingMetadata | PodFailure:
    chain = PluginChain(
        plugins, lambda _namespace, _priority: cast("Client", None), lambda *_measured: None
    )
    bound = PodBinding(pod_name="p", pod_uid="u", selected_node="n", **binding)
    request = CommittedStatement(
        metadata=Meta(labels={"scheduling.bindery.dev/node-pool": pool} if pool else {}),
        spec=StatementSpec(pods=[bound], id="s"),
    )
    view = PodView("team", "p", "u", node="", ending=False)
    return chain.binding_metadata(chain.contexts(view, request, bound))


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        ({}, {}),
        ({"received_gpu": ReceivedGPU(count=2)}, {"received-resource-type": "Regular"}),
        (
            {"received_resource_type": "MigInstance"},
            {"received-resource-type": "MigInstance"},
        ),
        (
            {
                "received_resource_type": "Fraction",
                "received_gpu": ReceivedGPU(count=1, portion="0.50"),
            },
            {"received-resource-type": "Fraction"},
        ),
    ],
)
def test_the_form_of_allocated_gpus_is_recorded_on_the_pod(
    binding: dict[str, Any], expected: dict[str, str]
) -> None:
    assert metadata(**binding) == BindingMetadata({}, expected)


def test_a_pod_gets_the_node_pool_label_of_its_bind_request() -> None:
    assert metadata(pool="blue") == BindingMetadata({"scheduling.bindery.dev/node-pool": "blue"})


def test_plugins_add_metadata_to_the_pods_that_concern_them() -> None:
    found = metadata(
        Recorder("a"),
        Recorder("b"),
        received_gpu=ReceivedGPU(count=1),
        plugin_data={"b": {"part": 7}},
    )

    assert found == BindingMetadata(
        {}, {"received-resource-type": "Regular", "b.example/part": "7"}
    )


def test_a_plugin_that_fails_prevents_the_binding_of_the_pod() -> None:
    refused = metadata(
        Recorder("a", PluginError("no", reason="NotYet", permanent=True)), plugin_data={"a": {}}
    )
    broken = metadata(Recorder("a"), plugin_data={"a": {}})

    assert refused == PodFailure("NotYet", "a: no", permanent=True)
    assert isinstance(broken, PodFailure)
    assert (broken.reason, broken.permanent) == ("PluginFailed", False)
    assert "KeyError" in broken.message


def test_a_statement_without_grants_records_no_metadata() -> None:
    binding = PodBinding(pod_name="p", pod_uid="u", selected_node="n")
    spec = StatementSpec(pods=[binding], id="s")

    assert recorded(CommittedStatement(spec=spec), binding) == BindingMetadata()


def test_the_charged_queue_is_recorded() -> None:
    bound = PodBinding(pod_name="p", pod_uid="u", selected_node="n")
    gang = PodGroupReference(name="g", uid="uid-g")
    spec = StatementSpec(pods=[bound], id="s", queue="research", pod_group=gang)

    written = recorded(CommittedStatement(spec=spec), bound)

    assert written.annotations == {
        "scheduling.bindery.dev/charged-queue": "research",
        "scheduling.bindery.dev/charged-pod-group": "uid-g",
        "scheduling.bindery.dev/charged-preemptibility": "Preemptible",
    }


def test_the_grants_of_the_scheduler_to_the_pod_are_recorded() -> None:
    levels = {"topology": {"levels": ["dc/rack"]}}
    bound = PodBinding(
        pod_name="p", pod_uid="u", selected_node="n", non_preemptible=True, plugin_data=levels
    )
    spec = StatementSpec(pods=[bound], id="s", queue="research")

    written = recorded(CommittedStatement(spec=spec), bound)

    assert written.annotations == {
        "scheduling.bindery.dev/charged-queue": "research",
        "scheduling.bindery.dev/charged-preemptibility": "NonPreemptible",
        "scheduling.bindery.dev/exclusive-domains": '{"levels":["dc/rack"],"pod":"u"}',
    }
