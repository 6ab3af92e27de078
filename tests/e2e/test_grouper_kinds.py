"""Owners of unknown or unreadable kinds, deleted owners, and kinds that are installed later."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bindery.api.configuration import GrouperConfiguration, LeaderElection
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import PODS, Resource
from devcluster.components import Component, Components
from devcluster.plane import ControlPlane
from tests.administrator import Plain
from tests.e2e.support import Corner, samples, wait_for
from tests.e2e.traps import ready
from tests.e2e.workloads import JOBS, Maker

pytestmark = pytest.mark.e2e

PLAIN_PODS = Resource("", "v1", "pods", "Pod", True, Plain)
ROWS = """
apiVersion: scheduling.bindery.dev/v1alpha1
kind: GrouperTable
rows:
  - match: {group: GROUP, kind: Training}
    min: spec.workers
"""


@pytest.fixture
def group() -> str:
    """An API group that no other test has."""
    return f"{secrets.token_hex(4)}.example.com"


@pytest.fixture
def maker(corner: Corner) -> Maker:
    return Maker(corner)


@pytest.fixture
def definition(control_plane: ControlPlane, group: str) -> Iterator[str]:
    """The definition of the kind, as text; it is removed at the end."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"trainings.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Training", "plural": "trainings"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    yield json.dumps(body)
    control_plane.kubectl("delete", "crd", f"trainings.{group}", "--ignore-not-found")


@pytest.fixture
async def grouper(components: Components, group: str, tmp_path: Path) -> Component:
    rows = tmp_path / "rows.yaml"
    rows.write_text(ROWS.replace("GROUP", group), encoding="utf-8")
    configuration = GrouperConfiguration(
        row_files=(str(rows),), leader_election=LeaderElection(enabled=False)
    )
    return await ready(components.start_grouper(configuration))


async def create_owner(maker: Maker, resource: Resource[Plain], name: str) -> Plain:
    """Create an object of the kind, once it is served."""

    async def created() -> Plain | None:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": {"workers": 2},
        }
        try:
            return await maker.create(resource, body)
        except NotFoundError:  # it is not served yet
            return None

    owner = await wait_for(created, "the kind is served")
    assert owner is not None
    return owner


def controlled(body: dict[str, Any], api_version: str, kind: str, uid: str) -> dict[str, Any]:
    """Return `body` with a controller called `big`."""
    reference = {"apiVersion": api_version, "kind": kind, "name": "big", "uid": uid}
    body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return body


async def create_pods(maker: Maker, count: int, api_version: str, kind: str, uid: str) -> None:
    """Create pods that an object called `big` controls."""
    for number in range(count):
        template = maker.template("big-pods")
        meta = {**template["metadata"], "name": f"big-{number}"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        await maker.create(PLAIN_PODS, controlled(pod, api_version, kind, uid))


async def events(maker: Maker, reason: str) -> list[str]:
    """Return kind and name of what the events with this reason are about."""
    found = await maker.corner.events(reason)
    return sorted(f"{each.regarding['kind']}/{each.regarding['name']}" for each in found)


def refusals(grouper: Component, resource: str) -> list[str]:
    """Return the verbs of the grouper's requests for `resource` that were refused.

    Requests for other resources may be: a namespace that ends refuses new objects, by 403 too.
    """
    return [
        each.labels["verb"]
        for each in samples(grouper)
        if each.name == "bindery_api_requests_total"
        and each.labels["resource"] == resource
        and each.labels["code"] in ("401", "403")
    ]


async def test_pods_and_jobs_of_an_unreadable_owner_are_grouped_until_it_is_readable(
    maker: Maker, grouper: Component, control_plane: ControlPlane, group: str, definition: str
) -> None:
    """The kind is installed while the grouper runs, and its role knows nothing of it."""
    await asyncio.to_thread(control_plane.kubectl, "apply", "--filename=-", stdin=definition)
    trainings = Resource(group, "v1", "trainings", "Training", True, Plain)
    owner = await create_owner(maker, trainings, "big")
    at = (trainings.api_version, "Training", owner.metadata.uid)
    for name in ("first", "second"):
        await maker.create(JOBS, controlled(maker.job(name, 1), *at))
    await create_pods(maker, 3, *at)

    written = {each.metadata.owner_references[0].name: each for each in await maker.wait_groups(3)}
    assert set(written) == {"big", "first", "second"}
    assert written["big"].spec["members"] == [{"controller": owner.metadata.uid}]
    assert [each.spec["minMember"] for each in written.values()] == [1, 1, 1]

    async def told() -> list[str]:
        return await events(maker, "OwnerNotReadable")

    assert await wait_for(told, "an event says that the owner cannot be read") == ["Training/big"]
    assert refusals(grouper, "trainings") == [], "it asks for its right first"

    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"trainings.{group}"},
        "rules": [{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"trainings.{group}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"trainings.{group}",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": "bindery-grouper", "namespace": "bindery-system"}
        ],
    }
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
    await asyncio.to_thread(control_plane.kubectl, "apply", "--filename=-", stdin=text)

    async def corrected() -> bool:
        groups = await maker.groups()
        owners = [each.metadata.owner_references[0].uid for each in groups]
        return owners == [owner.metadata.uid] and groups[0].spec["minMember"] == 2

    try:
        await wait_for(corrected, "the PodGroup comes from the owner, and the others are gone")
    finally:
        await asyncio.to_thread(control_plane.kubectl, "delete", "--filename=-", stdin=text)


async def test_the_group_of_a_kind_that_is_not_installed_is_deleted_with_its_last_pod(
    maker: Maker, grouper: Component, group: str
) -> None:
    """The garbage collector does not delete what an object of such a kind owns."""
    await create_pods(maker, 3, f"{group}/v1", "Lost", secrets.token_hex(8))

    (written,) = await maker.wait_groups(1)
    assert written.spec["minMember"] == 1
    for pod in await maker.pods("big-pods"):
        await maker.corner.delete_pod(pod.metadata.name)

    await maker.wait_groups(0)


async def test_no_group_is_created_for_pods_left_by_a_deleted_job(
    maker: Maker, grouper: Component
) -> None:
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    client, namespace = maker.corner.client, maker.corner.namespace
    await maker.create(JOBS, maker.job("train", 4))
    await maker.wait_groups(1)
    pods = await maker.pods("train")
    for pod in pods:
        await client.patch(PODS, pod.metadata.name, finalizers, namespace=namespace)

    await client.delete(JOBS, "train", namespace)
    await maker.wait_groups(0)  # the garbage collector has deleted it
    await maker.create(JOBS, maker.job("marker", 1))
    await maker.wait_groups(1)

    try:
        assert len(await maker.pods("train")) == len(pods) == 4
        assert [each.metadata.owner_references[0].name for each in await maker.groups()] == [
            "marker"
        ]
        assert await events(maker, "OwnerNotReadable") == []
    finally:
        for pod in pods:
            nothing = {"metadata": {"finalizers": None}}
            await client.patch(PODS, pod.metadata.name, nothing, namespace=namespace)
