"""What RequestWriter leaves on a real API server of Statements that build on each other."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from schedulerworld import engine_with, gang, node

from bindery.controlplane.install import Installation
from bindery.kube.bindrequests import BindRequest
from bindery.kube.client import Client
from bindery.kube.resources import BIND_REQUESTS
from bindery.scheduler.commit.drafts import BindRequestDraft
from bindery.scheduler.commit.writer import RequestWriter

pytestmark = pytest.mark.e2e


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[Client]:
    kubeconfig = installation.control_plane.admin_kubeconfig
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
def writer(client: Client) -> RequestWriter:
    return RequestWriter(client, wake=lambda: None)


def drafts(namespace: str) -> list[BindRequestDraft]:
    """Return the two parts of a gang's Statement, then those of two extra pods, in `namespace`."""
    engine = engine_with(node("n"), *gang("g", 4, 2), bind_request={"max_pods": 1})
    found = [
        # Without their owners, whom the garbage collector would miss.
        replace(draft, namespace=namespace, owner=replace(draft.owner, kind=""))
        for draft in engine.cycle()
    ]
    assert [draft.spec.statement.parts for draft in found] == [2, 2, 1, 1]
    return found


async def requests_in(client: Client, namespace: str) -> list[BindRequest]:
    return await client.list(BIND_REQUESTS, namespace=namespace)


async def test_a_statement_is_written_after_the_one_on_which_it_builds(
    client: Client, namespace: str, writer: RequestWriter
) -> None:
    for draft in drafts(namespace):
        writer.submit(draft)
    await writer.drain()

    found = await requests_in(client, namespace)
    versions = {
        is_extra: [
            int(item.metadata.resource_version)
            for item in found
            if (item.spec.statement.after is not None) == is_extra
        ]
        for is_extra in (False, True)
    }
    assert len(versions[False]) == len(versions[True]) == 2
    assert max(versions[False]) < min(versions[True])


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_builds_on_a_refused_statement_is_refused_with_it(
    client: Client, namespace: str, writer: RequestWriter, at_once: bool
) -> None:
    first, second, *extras = drafts(namespace)
    body = second.to_object()
    body["spec"] = {**extras[0].spec.to_wire(), "statement": {"id": "of-another-scheduler"}}
    await client.create(BIND_REQUESTS, body, namespace)

    for draft in (first, second):
        writer.submit(draft)
    if not at_once:
        await writer.drain()
    for draft in extras:
        writer.submit(draft)
    await writer.drain()

    assert [item.metadata.name for item in await requests_in(client, namespace)] == [second.name]
    assert {refused.draft.name for refused in writer.refused} == {
        draft.name for draft in (first, second, *extras)
    }
