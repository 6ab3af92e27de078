"""Objects that were valid under an older definition get a condition and do no harm."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from json import dumps, loads
from pathlib import Path
from typing import Any

import pytest

from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.kube.errors import InvalidError
from bindery.kube.objects.resources import POD_GROUPS, QUEUES, Resource
from bindery.kube.objects.watched import Condition, KubeObject
from devcluster.plane import ControlPlane
from tests.e2e.support import Corner, Gang, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

_SPEC = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"


@pytest.fixture(scope="module", autouse=True)
def any_spec_is_taken(control_plane: ControlPlane) -> Iterator[None]:
    """Let the API server take any spec of a Queue and of a PodGroup."""
    kinds = ("queues.scheduling.bindery.dev", "podgroups.scheduling.bindery.dev")
    strict = {kind: loads(control_plane.kubectl("get", "crd", kind, "-ojson")) for kind in kinds}

    def define(kind: str, schema: Mapping[str, Any]) -> None:
        change = dumps([{"op": "replace", "path": _SPEC, "value": schema}])
        control_plane.kubectl("patch", "crd", kind, "--type=json", f"--patch={change}")

    for kind in kinds:
        define(kind, {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    yield
    for kind, definition in strict.items():
        (version,) = definition["spec"]["versions"]
        define(kind, version["schema"]["openAPIV3Schema"]["properties"]["spec"])


async def create(
    corner: Corner, resource: Resource[Any], name: str, spec: Mapping[str, Any]
) -> None:
    """Create an object, as soon as the API server takes it."""
    namespace = corner.namespace if resource.namespaced else ""
    body = {
        "apiVersion": API_VERSION,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": {NODE_POOL_LABEL: corner.pool}},
        "spec": spec,
    }

    async def taken() -> KubeObject | None:
        try:
            created: KubeObject = await corner.client.create(resource, body, namespace)
        except InvalidError:
            return None
        return created

    await wait_for(taken, f"the API server takes {name}")


async def condition(corner: Corner, resource: Resource[Any], name: str) -> Condition:
    """Wait for the condition that reports the object as invalid."""
    namespace = corner.namespace if resource.namespaced else ""

    async def said() -> Condition | None:
        found = await corner.client.get(resource, name, namespace)
        conditions: list[Condition] = found.status.conditions or []
        return next((c for c in conditions if (c.status, c.reason) == ("False", "Invalid")), None)

    found = await wait_for(said, f"{name} says what is wrong with it")
    assert found is not None
    return found


async def good_gang_binds(corner: Corner) -> None:
    await corner.add_nodes("good", cpu="2")
    gang = Gang("good", 2)
    await corner.submit(gang)
    await corner.wait_bound(gang)


async def test_a_weight_below_zero_is_a_condition_of_the_queue(corner: Corner) -> None:
    name = f"{corner.namespace}-light"
    await create(corner, QUEUES, name, {"resources": {"cpu": {"overQuotaWeight": -1}}})

    said = await condition(corner, QUEUES, name)

    assert said.message == "spec.resources.cpu.overQuotaWeight: -1 is negative"
    gang = Gang("gang", 1, queue=name)
    await corner.submit(gang)
    await corner.wait_condition(gang, "False", "QueueInvalid")
    await good_gang_binds(corner)


async def test_an_unreadable_podgroup_reports_it_until_it_is_corrected(corner: Corner) -> None:
    await create(corner, POD_GROUPS, "odd", {"minMember": "two"})

    said = await condition(corner, POD_GROUPS, "odd")

    assert said.message == "Expected `int`, got `str` - at `$.spec.minMember`"
    odd = Gang("odd", 1)
    await corner.create_pod(odd, 0)
    await corner.wait_pods_say(odd, "$.spec.minMember")
    await good_gang_binds(corner)
    assert await corner.bound_count(odd) == 0

    await corner.add_nodes("more", cpu="1")
    mended = {"spec": {"minMember": 1}}
    await corner.client.patch(POD_GROUPS, "odd", mended, namespace=corner.namespace)
    await corner.wait_bound(odd)
    await corner.wait_condition(odd, "True", "Scheduled")


@pytest.mark.long("more than a minute")
async def test_commands_show_unreadable_objects_and_all_others(
    corner: Corner, control_plane: ControlPlane, tmp_path: Path
) -> None:
    name = f"{corner.namespace}-odd"
    await create(corner, QUEUES, name, {"priority": "high"})
    await create(corner, POD_GROUPS, "odd", {"minMember": "two"})
    good = await corner.add_queue("good", {})
    await corner.add_nodes("a", cpu="1")
    gang = Gang("waits", 2, queue=good)
    await corner.submit(gang, Gang("stuck", 1, queue=name))
    await corner.wait_condition(gang, "False", "Unschedulable")

    async def counted() -> bool:
        return (await corner.client.get(QUEUES, good)).status.gangs.pending == 1

    await wait_for(counted, "the waiting gang to be counted")
    more = tmp_path / "more.yaml"
    more.write_text(dumps({"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": "q"}}))

    def bindery(*arguments: str) -> str:
        kubeconfig = f"--kubeconfig={control_plane.admin_kubeconfig}"
        command = [sys.executable, "-m", "bindery.cli.main", kubeconfig, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    in_namespace = f"--namespace={corner.namespace}"
    rows = {row["name"]: row for row in loads(bindery("get", "queues", "-o", "json"))}
    assert "at `$.spec.priority`" in rows[name]["problem"]
    assert (rows[good]["problem"], rows[good]["waiting"]) == ("", 1)
    gangs = {row["name"]: row for row in loads(bindery("get", "gangs", in_namespace, "-ojson"))}
    assert "at `$.spec.minMember`" in gangs["odd"]["waits"]
    assert gangs["waits"]["reason"] == "Unschedulable"
    assert "at `$.spec.priority`" in bindery("explain", "stuck", in_namespace)
    assert "insufficient cpu" in bindery("explain", "waits", in_namespace)
    drawn = bindery("queues", "--resource=cpu", f"--node-pool={corner.pool}")
    assert f"{name}: QueueInvalid: " in drawn
    assert good in drawn
    bindery("whatif", str(more))
    file = tmp_path / "cluster.yaml"
    bindery("snapshot", f"--output={file}")
    assert "at `$.spec.priority`" in bindery("explain", "stuck", in_namespace, f"--file={file}")
