"""Kinds that the grouper does not know, may not read, or that are installed while it runs."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from administrator import Plain
from support import EVENTS, Corner, wait_for
from traps import ready
from workloads import JOBS, Maker

from bindery.api.configuration import GrouperConfiguration, LeaderElection
from bindery.controlplane.components import Component, Components
from bindery.controlplane.plane import ControlPlane
from bindery.kube.errors import NotFoundError
from bindery.kube.resources import Resource

pytestmark = pytest.mark.e2e

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


async def create_owned(maker: Maker, resource: Resource[Plain], name: str) -> Plain:
    """Create an object of the kind and a Job of two pods that it controls; return the object."""
    spec = {"workers": 2}

    async def created() -> Plain | None:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        try:
            return await maker.create(resource, body)
        except NotFoundError:  # it is not served yet
            return None

    owner = await wait_for(created, "the kind is served")
    assert owner is not None
    reference = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": owner.metadata.uid,
        "controller": True,
    }
    job: dict[str, Any] = maker.job(f"{name}-job", 1)
    job["metadata"]["ownerReferences"] = [reference]
    await maker.create(JOBS, job)
    return owner


async def reasons(maker: Maker) -> set[tuple[str, str]]:
    """Return kind and reason of all events about owners."""
    found = await maker.corner.client.list(EVENTS, namespace=maker.corner.namespace)
    return {(event.regarding.get("kind", ""), event.reason) for event in found}


async def test_an_owner_that_may_not_be_read_is_passed_over_until_it_may(
    maker: Maker, grouper: Component, control_plane: ControlPlane, group: str, definition: str
) -> None:
    """The kind is installed while the grouper runs, and its role knows nothing of it."""
    await asyncio.to_thread(control_plane.kubectl, "apply", "--filename=-", stdin=definition)
    trainings = Resource(group, "v1", "trainings", "Training", True, Plain)
    owner = await create_owned(maker, trainings, "big")

    (written,) = await maker.wait_groups(1)
    assert written.metadata.owner_references[0].kind == "Job"
    assert written.spec["minMember"] == 1

    async def told() -> bool:
        return ("Job", "OwnerNotReadable") in await reasons(maker)

    await wait_for(told, "an event says that the owner cannot be read")

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
        await wait_for(corrected, "the PodGroup comes from the owner, and the old one is gone")
    finally:
        await asyncio.to_thread(control_plane.kubectl, "delete", "--filename=-", stdin=text)
