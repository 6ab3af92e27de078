"""Nodes are requested for gangs without room, with the chart's role, on the real API server.

A stand-in answers the requests; no cluster-autoscaler runs.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bindery.api.configuration import DEFAULT_PLUGINS, PluginConfiguration
from bindery.api.names import PROVISIONING_REQUEST_ANNOTATION
from bindery.api.times import timestamp
from bindery.kube.objects.provisioning import POD_TEMPLATES, PROVISIONING_REQUESTS
from bindery.kube.objects.resources import Resource
from devcluster.components import Component, Components
from devcluster.install import Installation, install
from devcluster.plane import ControlPlane
from tests.e2e.provisioningkind import DEFINITION, DEFINITION_NAME, StandInAutoscaler
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for
from tests.required import lacking

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

PLUGINS = (
    *(PluginConfiguration(name=name) for name in DEFAULT_PLUGINS),
    PluginConfiguration(name="provisioning", arguments={"answerSeconds": 3600}),
)
ASKS = {PROVISIONING_REQUEST_ANNOTATION: "true"}


@pytest.fixture(scope="module")
def installation(control_plane: ControlPlane) -> Iterator[Installation]:
    """The chart with the plugin, which has further rights; afterwards the chart without it."""
    if control_plane.is_shared:
        lacking("this cluster may have the kind already")
    control_plane.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(DEFINITION))
    control_plane.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", f"crd/{DEFINITION_NAME}"
    )
    plugins = [each.to_wire() for each in PLUGINS]
    yield install(control_plane, {"scheduler": {"configuration": {"plugins": plugins}}})
    install(control_plane)
    control_plane.kubectl("delete", f"crd/{DEFINITION_NAME}")


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    configuration = scheduler_configuration(pool).model_copy(update={"plugins": PLUGINS})
    return module_components.start_scheduler(configuration).wait_ready()


@pytest.fixture
def autoscaler(corner: Corner) -> StandInAutoscaler:
    return StandInAutoscaler(corner)


async def contested(corner: Corner) -> tuple[Gang, Gang]:
    """Fill a node; return the gang on it, and one of higher priority that asks for nodes."""
    low = Gang("low", size=2)
    await corner.add_nodes("full")
    await corner.submit(low)
    await corner.wait_bound(low)
    group = {"priorityClassName": "build-preemptible"}
    high = Gang("high", size=2, group=group, annotations=ASKS)
    await corner.submit(high)
    return low, high


async def wait_nothing_requested(corner: Corner) -> None:
    async def nothing() -> bool:
        kinds: tuple[Resource[Any], ...] = (PROVISIONING_REQUESTS, POD_TEMPLATES)
        return not any([await corner.client.list(k, namespace=corner.namespace) for k in kinds])

    await wait_for(nothing, "no requests and no templates are left")


async def test_a_gang_gets_its_requested_nodes_and_nothing_is_evicted(
    corner: Corner, autoscaler: StandInAutoscaler
) -> None:
    low, high = await contested(corner)

    request = await autoscaler.request("high")
    (pods,) = request.spec.pod_sets
    assert pods.count == 2
    await corner.client.get(POD_TEMPLATES, pods.pod_template_ref.name, corner.namespace)
    assert request.group.uid == (await corner.group(high)).metadata.uid
    await corner.wait_pods_say(high, "it asks for nodes")

    await autoscaler.say("high", timestamp(time.time()), "Accepted")
    await corner.wait_pods_say(high, "its nodes are on their way")
    conditions = [pod.status.conditions or [] for pod in await corner.pods(high)]
    assert [each.reason for (each,) in conditions] == ["NodesRequested"] * 2
    assert await corner.bound_count(low) == 2

    await corner.add_nodes("new")
    await corner.wait_bound(high)
    await wait_nothing_requested(corner)
    assert await corner.bound_count(low) == 2


async def test_pods_are_evicted_if_the_provisioning_request_fails(
    corner: Corner, autoscaler: StandInAutoscaler
) -> None:
    low, high = await contested(corner)
    await autoscaler.request("high")
    now = timestamp(time.time())
    await autoscaler.say("high", now, "Accepted")
    await corner.wait_pods_say(high, "its nodes are on their way")
    assert await corner.bound_count(low) == 2

    await autoscaler.say("high", now, "Accepted", "Failed")

    await corner.wait_bound(high)
    assert not await corner.pods(low)
    await wait_nothing_requested(corner)


async def test_a_foreign_request_of_the_same_name_is_kept_and_reported_by_an_event(
    corner: Corner,
) -> None:
    spec = {
        "provisioningClassName": "theirs",
        "podSets": [{"count": 1, "podTemplateRef": {"name": "theirs"}}],
    }
    body = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {"name": "taken"},
        "spec": spec,
    }
    theirs = await corner.client.create(PROVISIONING_REQUESTS, body, corner.namespace)

    await corner.submit(Gang("taken", size=1, annotations=ASKS))

    await wait_for(lambda: corner.events("ProvisioningRequestRefused"), "the event is there")
    found = await corner.client.get(PROVISIONING_REQUESTS, "taken", corner.namespace)
    assert found == theirs
    assert not await corner.client.list(POD_TEMPLATES, namespace=corner.namespace)
