"""The real API server accepts the PodGroups of every golden file unchanged."""

from typing import Any

import pytest

from bindery.grouper.table import load, plan
from bindery.kube.client import Client
from bindery.kube.objects.models import validated
from bindery.kube.objects.podgroups import PodGroupSpec
from bindery.kube.objects.resources import Resource
from devcluster.install import Installation
from tests.administrator import Administrator, Plain
from tests.grouper import goldens

TABLE = load()
POD_GROUPS = Resource("scheduling.bindery.dev", "v1alpha1", "podgroups", "PodGroup", True, Plain)


@pytest.mark.e2e
def test_every_pod_group_is_stored_as_planned(
    installation: Installation, administrator: Administrator, namespace: str
) -> None:
    planned: dict[str, Any] = {}
    for name in goldens.names():
        golden = goldens.load_golden(name)
        for index, group in enumerate(plan(golden.owners, golden.pods, TABLE).groups):
            written: Any = group.to_object()
            written["metadata"] |= {"namespace": namespace, "name": f"{name}-{index}"}
            # Owners do not exist here: the garbage collector would delete what names them.
            del written["metadata"]["ownerReferences"]
            planned[f"{name}-{index}"] = written

    async def store(client: Client) -> dict[str, Any]:
        for written in planned.values():
            await client.create(POD_GROUPS, written, namespace)
        found = await client.list(POD_GROUPS, namespace=namespace)
        return {item.metadata.name: item.spec for item in found}

    stored = administrator(store)

    assert len(planned) > 60
    for name, written in planned.items():
        found = validated(PodGroupSpec, stored[name])
        assert found == validated(PodGroupSpec, written["spec"]), name
