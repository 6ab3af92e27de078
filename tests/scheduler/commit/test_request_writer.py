"""Objects that RequestWriter writes on a real API server, with the rights of the chart's role."""

import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bindery.api.configuration import BindRequestConfiguration
from bindery.kube.client import Client
from bindery.kube.lease import Leadership
from bindery.kube.objects.bindrequests import (
    BindRequest,
    CommittedStatement,
    PodBinding,
    StatementKey,
)
from bindery.kube.objects.declaring import to_wire
from bindery.kube.objects.resources import BIND_REQUESTS, CONFIG_MAPS, NAMESPACES
from bindery.kube.objects.watched import ConfigMap
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import BindRequestDraft
from bindery.scheduler.commit.stale import StaleRequest
from bindery.scheduler.commit.writer import CONCURRENT_CREATIONS, RequestWriter
from devcluster.install import Installation
from tests.kube.faultproxy import Fault
from tests.scheduler.createdrequests import FIRST, CreationProxy, Mishap
from tests.scheduler.drafted import draft
from tests.scheduler.schedulerworld import engine_with, gang, node

pytestmark = pytest.mark.e2e

UNWRITABLE = PodBinding(
    pod_name="a", pod_uid="a", selected_node="node", plugin_data={"plugin": object()}
)


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[Client]:
    kubeconfig = installation.control_plane.admin_kubeconfig
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
async def proxy(installation: Installation, tmp_path: Path) -> AsyncIterator[CreationProxy]:
    async with CreationProxy(installation.kubeconfigs["scheduler"], tmp_path).serve() as serving:
        assert isinstance(serving, CreationProxy)
        yield serving


@pytest.fixture
async def scheduler_client(proxy: CreationProxy) -> AsyncIterator[Client]:
    async with Client.connect(proxy.kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
def writer(scheduler_client: Client) -> RequestWriter:
    return RequestWriter(scheduler_client, wake=lambda: None)


def drafts(namespace: str) -> list[StatementDraft]:
    """Return the two parts of a gang's Statement, then those of two extra pods, in `namespace`."""
    engine = engine_with(node("n"), *gang("g", 4, 2), bind_request={"max_pods": 1})
    found = [
        # Without their owners, which the garbage collector would miss.
        replace(draft, namespace=namespace, owner=replace(draft.owner, kind=""))
        for draft in engine.cycle()
    ]
    assert [draft.spec.parts for draft in found] == [2, 2, 1, 1]
    return found


def single(name: str, namespace: str, **fields: Any) -> StatementDraft:
    return draft(name, namespace=namespace, owner_kind="", **fields)


def submit_first(writer: RequestWriter, namespace: str) -> None:
    """Submit as many Statements as may be created at once; the proxy holds their creations."""
    for index in range(CONCURRENT_CREATIONS):
        writer.submit(single(f"{FIRST}-{index}", namespace))


async def written(
    writer: RequestWriter, proxy: CreationProxy, namespace: str, further: Sequence[StatementDraft]
) -> None:
    """Write `further` while all places for creations are taken at first."""
    submit_first(writer, namespace)
    for each in further:
        writer.submit(each)
    proxy.released.set()
    await writer.drain()


async def requests_in(client: Client, namespace: str) -> list[BindRequest]:
    return await client.list(BIND_REQUESTS, namespace=namespace)


async def carried(client: Client, namespace: str) -> list[list[str]]:
    """Return the Statements of each request, without the requests that begin with `FIRST`."""
    found = [
        [each.key.statement.removesuffix("-1") for each in stored.each()]
        for stored in await requests_in(client, namespace)
    ]
    return sorted(names for names in found if not names[0].startswith(FIRST))


def refused(writer: RequestWriter) -> dict[str, str]:
    """Return the refused Statements with the problem of each."""
    return {each.draft.spec.id.removesuffix("-1"): each.problem for each in writer.refused}


# ---- one after the other -------------------------------------------------------------------------


async def test_a_statement_is_written_after_its_prerequisite(
    client: Client, namespace: str, writer: RequestWriter
) -> None:
    for each in drafts(namespace):
        writer.submit(each)
    await writer.drain()

    found = [each for stored in await requests_in(client, namespace) for each in stored.each()]
    versions = {
        is_extra: [
            int(item.metadata.resource_version)
            for item in found
            if (item.spec.after is not None) == is_extra
        ]
        for is_extra in (False, True)
    }
    assert len(versions[False]) == len(versions[True]) == 2
    assert max(versions[False]) < min(versions[True])


@pytest.mark.parametrize("at_once", [True, False])
async def test_dependents_of_a_refused_statement_are_refused_with_it(
    client: Client, namespace: str, writer: RequestWriter, at_once: bool
) -> None:
    first, second, *extras = drafts(namespace)
    body = BindRequestDraft((second,)).to_object()
    statement = {**to_wire(extras[0].spec), "id": "of-another-scheduler"}
    body["spec"] = {"statements": [statement]}
    await client.create(BIND_REQUESTS, body, namespace)

    for each in (first, second):
        writer.submit(each)
    if not at_once:
        await writer.drain()
    for each in extras:
        writer.submit(each)
    await writer.drain()

    assert [item.metadata.name for item in await requests_in(client, namespace)] == [second.name]
    assert {each.draft.name for each in writer.refused} == {
        each.name for each in (first, second, *extras)
    }


# ---- sharing -------------------------------------------------------------------------------------


async def test_statements_share_a_request_only_while_sixteen_are_being_created(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    await written(writer, proxy, namespace, [single(name, namespace) for name in "abcde"])

    assert await carried(client, namespace) == [["a", "b", "c", "d", "e"]]
    assert len(await requests_in(client, namespace)) == CONCURRENT_CREATIONS + 1
    assert writer.refused == []

    writer.submit(single("f", namespace))
    writer.submit(single("g", namespace))
    await writer.drain()

    assert await carried(client, namespace) == [["a", "b", "c", "d", "e"], ["f"], ["g"]]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (BindRequestConfiguration(max_statements=2), [["a", "b"], ["c", "d"], ["e"]]),
        (BindRequestConfiguration(max_statements=1), [["a"], ["b"], ["c"], ["d"], ["e"]]),
    ],
    ids=["two", "one"],
)
async def test_the_configuration_limits_the_statements_of_a_request(
    client: Client,
    namespace: str,
    scheduler_client: Client,
    proxy: CreationProxy,
    configuration: BindRequestConfiguration,
    expected: list[list[str]],
) -> None:
    writer = RequestWriter(scheduler_client, lambda: None, lambda: configuration)

    await written(writer, proxy, namespace, [single(name, namespace) for name in "abcde"])

    assert await carried(client, namespace) == expected


async def test_a_request_has_no_more_than_100_pods(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    sizes = {"a": 40, "b": 60, "c": 1}
    further = [single(name, namespace, pods=pods) for name, pods in sizes.items()]

    await written(writer, proxy, namespace, further)

    assert await carried(client, namespace) == [["a", "b"], ["c"]]


# ---- trouble -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["a", "b"], ids=["the first", "another"])
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ({"priority": 2**70}, "priority"),
        ({"pods": (UNWRITABLE,)}, "unexpected error"),
    ],
    ids=["the API server refuses it", "it cannot be written"],
)
async def test_a_fault_of_one_statement_does_not_refuse_the_others_of_its_request(
    client: Client,
    namespace: str,
    writer: RequestWriter,
    proxy: CreationProxy,
    bad: str,
    fault: dict[str, object],
    problem: str,
) -> None:
    further = [single(name, namespace) for name in "abde"]
    further.insert(2, single("c", namespace, after=f"{bad}-1"))
    index = "ab".index(bad)
    spec = msgspec.structs.replace(further[index].spec, **fault)
    further[index] = replace(further[index], spec=spec)

    await written(writer, proxy, namespace, further)

    good = sorted({"a", "b", "d", "e"} - {bad})
    assert await carried(client, namespace) == [[name] for name in good]
    found = refused(writer)
    assert set(found) == {bad, "c"}
    assert problem in found[bad]
    assert found["c"] == found[bad], "it builds on the refused one"


async def test_a_name_taken_by_another_scheduler_affects_only_one_statement(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    theirs = replace(single("theirs", namespace), name=single("a", namespace).name)
    await client.create(BIND_REQUESTS, BindRequestDraft((theirs,)).to_object(), namespace)

    await written(writer, proxy, namespace, [single(name, namespace) for name in "abc"])

    assert await carried(client, namespace) == [["b"], ["c"], ["theirs"]]
    assert refused(writer) == {"a": ""}


@pytest.mark.parametrize(
    "mishaps",
    [
        [Mishap.LOST],
        [Mishap.LOST, Mishap.LOST],
        [Mishap.LOST, Mishap.REFUSED],
    ],
    ids=["lost", "lost twice", "lost, then refused"],
)
@pytest.mark.parametrize("is_readable", [True, False], ids=["readable", "unreadable at first"])
async def test_no_statement_is_carried_by_two_requests_after_a_lost_answer(
    client: Client,
    namespace: str,
    writer: RequestWriter,
    proxy: CreationProxy,
    mishaps: list[Mishap],
    is_readable: bool,
) -> None:
    name = single("a", namespace).name
    proxy.mishaps[name] = list(mishaps)
    if not is_readable:
        proxy.break_next(Fault("GET", f"/bindrequests/{name}", status=403))

    await written(writer, proxy, namespace, [single(name, namespace) for name in "abc"])

    assert await carried(client, namespace) == [["a", "b", "c"]]
    assert writer.refused == []


async def test_statements_in_a_terminating_namespace_are_refused_at_once(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    keeper = {"metadata": {"name": "keeper", "finalizers": ["bindery.dev/test"]}}
    await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **keeper}, namespace)
    await client.delete(NAMESPACES, namespace)
    try:
        await written(writer, proxy, namespace, [single(name, namespace) for name in "abc"])

        assert set("abc") < set(refused(writer))
        assert writer.ending == {namespace}
        together = [body for body in proxy.bodies if len(body["spec"]["statements"]) > 1]
        assert len(proxy.bodies) == CONCURRENT_CREATIONS + len(together)
    finally:
        free = {"metadata": {"finalizers": None}}
        found: ConfigMap = await client.patch(CONFIG_MAPS, "keeper", free, namespace=namespace)
        assert found.metadata.name == "keeper"


# ---- the end of a term ---------------------------------------------------------------------------


def leadership() -> Leadership:
    return Leadership(7, time.monotonic, math.inf)


async def test_nothing_of_the_backlog_is_written_after_the_lease_is_lost(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    term = leadership()
    writer.begin(term)
    submit_first(writer, namespace)
    for name in "abc":
        writer.submit(single(name, namespace))
    await proxy.wait_for_creations(CONCURRENT_CREATIONS)

    term.end()
    proxy.released.set()
    await writer.drain()

    assert await carried(client, namespace) == []
    assert set(refused(writer)) == set("abc")
    assert all("no longer leads" in problem for problem in refused(writer).values())


async def test_stop_refuses_the_backlog_and_the_next_term_has_all_slots(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    submit_first(writer, namespace)
    for name in "abc":
        writer.submit(single(name, namespace))
    await proxy.wait_for_creations(CONCURRENT_CREATIONS)

    await writer.stop(grace_s=0.0)

    assert set(refused(writer)) == set("abc"), "what was sent may exist, and stays held"
    proxy.released.set()
    writer.begin(leadership())
    for index in range(CONCURRENT_CREATIONS):
        writer.submit(single(f"next-{index}", namespace))
    await writer.drain()
    found = await carried(client, namespace)
    assert found == sorted([f"next-{index}"] for index in range(CONCURRENT_CREATIONS))


async def test_a_writer_with_enough_grace_time_writes_its_backlog(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    submit_first(writer, namespace)
    writer.submit(single("a", namespace))
    proxy.released.set()

    await writer.stop(grace_s=60.0)

    assert await carried(client, namespace) == [["a"]]
    assert writer.refused == []


# ---- looking up and clearing ---------------------------------------------------------------------


async def test_statements_are_looked_up_in_the_request_that_carries_them(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    await written(writer, proxy, namespace, [single(name, namespace) for name in "abc"])
    proxy.released.clear()
    submit_first(writer, namespace)  # they exist already
    waiting = single("d", namespace)
    writer.submit(waiting)
    gone = StatementKey(namespace, "gone-1", 0)

    keys = [single(name, namespace).key for name in "abc"]
    for _ in range(3):
        writer.look_up([*keys, gone, waiting.key, single(f"{FIRST}-0", namespace).key])
    proxy.released.set()
    await writer.drain()

    assert writer.missing == [gone]
    assert proxy.count("GET", "/bindrequests?") == 1, "one look-up at a time"


async def stale(client: Client, namespace: str, *names: str) -> list[StaleRequest]:
    """Return removals of Statements that have neighbours."""
    statements: list[CommittedStatement] = [
        each for stored in await requests_in(client, namespace) for each in stored.each()
    ]
    return [
        StaleRequest(each, "GroupGone", "its PodGroup was deleted", has_neighbours=True)
        for each in statements
        if each.key.statement.removesuffix("-1") in names
    ]


async def test_statements_are_withdrawn_from_a_request_each_once(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    await written(writer, proxy, namespace, [single(name, namespace) for name in "abc"])
    found = await stale(client, namespace, "a", "b")

    writer.clear(found)  # both at once: one of them meets a conflict
    writer.clear(found)
    await writer.drain()

    (shared,) = [r for r in await requests_in(client, namespace) if len(r.spec.statements) == 3]
    assert sorted(shared.spec.withdrawn) == ["a-1", "b-1"]
    assert [each.is_withdrawn for each in shared.each()] == [True, True, False]
    patches = proxy.count("PATCH", "/bindrequests/")
    writer.clear(found)
    await writer.drain()
    assert proxy.count("PATCH", "/bindrequests/") == patches


async def test_a_request_is_deleted_after_one_of_its_statements_was_withdrawn(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    await written(writer, proxy, namespace, [single(name, namespace) for name in "abc"])
    (found,) = await stale(client, namespace, "a")
    writer.clear([found])
    await writer.drain()

    writer.clear([replace(found, has_neighbours=False)])
    await writer.drain()

    assert await carried(client, namespace) == []


async def test_a_failed_deletion_is_retried(
    client: Client, namespace: str, writer: RequestWriter, proxy: CreationProxy
) -> None:
    await written(writer, proxy, namespace, [single(name, namespace) for name in "ab"])
    (found,) = await stale(client, namespace, "a")
    proxy.break_next(Fault("PATCH", "/bindrequests/", status=403))

    writer.clear([found])
    await writer.drain()
    assert not (await stale(client, namespace, "a"))[0].statement.is_withdrawn
    writer.clear([found])
    await writer.drain()

    assert (await stale(client, namespace, "a"))[0].statement.is_withdrawn
