"""What the comparison with a real API server cannot reach: steps of the world, time and versions.

`tests/e2e/test_apiserver_model.py` compares everything else.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from bindery.kube.accessreview import may_watch
from bindery.kube.client import Client, PatchKind, Selection
from bindery.kube.environment import Environment
from bindery.kube.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    SilentError,
    ThrottledError,
)
from bindery.kube.http.requests import ApiRequest, read, write
from bindery.kube.http.retry import Repeat
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects.provisioning import PROVISIONING_REQUESTS
from bindery.kube.objects.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    Resource,
)
from bindery.kube.served import Catalogue, served
from bindery.kube.watches.reflector import Change, EventType, Reflector
from tests.histories.apiserver.calls import Call
from tests.histories.apiserver.carrier import ModelCarrier
from tests.histories.apiserver.garbage import GarbageCollector, finish_namespaces
from tests.histories.apiserver.refusals import NotModelledError, Refusal, forbidden
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.watches import Watch

NOW_S = 1_800_000_000.0
ENVIRONMENT = Environment(lambda: NOW_S, random.Random(2))
POD: Mapping[str, Any] = {"spec": {"containers": [{"name": "main", "image": "a:1"}]}}


@pytest.fixture
def server() -> ModelApiServer:
    return ModelApiServer(lambda: NOW_S, random.Random(1))


@pytest.fixture
def client(server: ModelApiServer) -> Client:
    return Client(ModelCarrier(server, "tester"), 5.0, ENVIRONMENT)


def named(name: str, body: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {**(body or {}), "metadata": {"name": name, "namespace": "default", **metadata}}


def watch(server: ModelApiServer, resource: Resource[Any], version: int, query: str = "") -> Watch:
    target = f"{resource.path()}?watch=true&resourceVersion={version}{query}"
    return server.watch(read(resource, "watch", target), "tester")


def events(opened: Watch) -> list[tuple[str, str]]:
    lines = [msgspec.json.decode(line) for line in opened.lines]
    return [(line["type"], line["object"]["metadata"].get("name", "")) for line in lines]


async def test_the_log_has_who_wrote_what_and_both_versions(
    server: ModelApiServer, client: Client
) -> None:
    pod = server.add("pods", named("a", POD))

    await client.bind("default", "a", pod["metadata"]["uid"], "node-1")

    change = server.store.log[-1]
    assert (change.writer.caller, change.writer.subresource) == ("tester", "binding")
    assert change.before is not None
    assert "nodeName" not in change.before.object["spec"]
    assert change.version.object["spec"]["nodeName"] == "node-1"
    assert change.at_s == NOW_S


async def test_a_watch_from_before_the_compaction_has_expired(
    server: ModelApiServer, client: Client
) -> None:
    server.add("pods", named("a", POD))
    server.store.compact()
    old = str(server.store.revision - 1)

    lines = [
        line
        async for line in client.watch(
            PODS, Selection(), resource_version=old, timeout_s=5, idle_s=5.0
        )
    ]

    assert [msgspec.json.decode(line)["object"]["reason"] for line in lines] == ["Expired"]


async def test_pages_are_of_one_version_until_the_token_expires(server: ModelApiServer) -> None:
    for name in "abc":
        server.add("configmaps", named(name))
    path = f"{CONFIG_MAPS.path('default')}?limit=2"
    page = msgspec.json.decode(server.handle(read(CONFIG_MAPS, "list", path), "tester").body)
    server.handle(
        ApiRequest("delete", "DELETE", "", CONFIG_MAPS.path("default", "c"), Repeat.ALWAYS, ""),
        "tester",
    )
    server.add("configmaps", named("d"))
    rest = read(CONFIG_MAPS, "list", f"{path}&continue={page['metadata']['continue']}")

    second = msgspec.json.decode(server.handle(rest, "tester").body)
    server.store.compact()
    refused = server.handle(rest, "tester")

    assert [each["metadata"]["name"] for each in second["items"]] == ["c"]
    assert second["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
    assert refused.status == 410
    assert msgspec.json.decode(refused.body)["metadata"]["continue"]


def test_a_selection_sees_objects_come_and_go(server: ModelApiServer) -> None:
    opened = watch(server, PODS, server.store.revision, "&fieldSelector=spec.nodeName%3D")
    pod = server.add("pods", named("a", POD))
    binding = {
        "metadata": {"name": "a", "uid": pod["metadata"]["uid"]},
        "target": {"kind": "Node", "name": "n"},
    }
    request = write(PODS, "create", PODS.path("default", "a", "binding"), Repeat.UNSENT, binding)

    server.handle(request, "binder")

    assert events(opened) == [("ADDED", "a"), ("DELETED", "a")]


async def test_bookmarks_and_the_end_come_by_the_clock(
    server: ModelApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.histories.apiserver.carrier.BOOKMARK_S", 0.2)
    version = str(server.store.revision)
    server.add("queues", {"metadata": {"name": "later"}})

    stream = client.watch(QUEUES, Selection(), resource_version=version, timeout_s=1, idle_s=5.0)
    found = [msgspec.json.decode(line) async for line in stream]

    assert [each["type"] for each in found[:2]] == ["ADDED", "BOOKMARK"]
    assert found[1]["object"]["metadata"]["resourceVersion"] == str(server.store.revision)


async def test_a_silent_watch_fails(client: Client) -> None:
    stream = client.watch(PODS, Selection(), resource_version="", timeout_s=60, idle_s=0.05)

    async with aclosing(stream) as lines:
        with pytest.raises(SilentError):
            await anext(lines)


async def test_a_reflector_follows_the_model(server: ModelApiServer, client: Client) -> None:
    seen: list[tuple[EventType, str]] = []

    def note(change: Change[Any]) -> None:
        seen.append((change.type, change.object.metadata.name))

    server.add("pods", named("a", POD))
    reflector = Reflector(client, PODS, note)
    running = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    server.add("pods", named("b", POD))
    await client.delete(PODS, "a", "default")
    await asyncio.sleep(0.05)
    running.cancel()

    names = [(kind.name, name) for kind, name in seen]
    assert (names[0], names[1], names[-1][1]) == (("ADDED", "a"), ("ADDED", "b"), "a")
    assert set(reflector.objects) == {("default", "b")}


async def test_a_bound_pod_ends_when_its_kubelet_deletes_it(
    server: ModelApiServer, client: Client
) -> None:
    pod = server.add("pods", named("a", POD))
    await client.bind("default", "a", pod["metadata"]["uid"], "n")

    await client.delete(PODS, "a", "default")
    marked = server.find("pods", "default", "a")
    await client.delete(PODS, "a", "default", grace_period_s=0)

    assert marked is not None
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert server.objects("pods") == []


async def test_dependents_go_when_the_collector_gets_to_them(
    server: ModelApiServer, client: Client
) -> None:
    owner = server.add("configmaps", named("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    owners = [{**reference, "uid": owner["metadata"]["uid"]}]
    server.add("configmaps", named("dependent", ownerReferences=owners))
    collector = GarbageCollector(server)

    before = collector.find()
    await client.delete(CONFIG_MAPS, "owner", "default")
    (garbage,) = collector.find()
    collector.collect(garbage, NOW_S)

    assert before == []
    assert server.objects("configmaps") == []


@pytest.mark.parametrize(("policy", "left"), [("Foreground", []), ("Orphan", ["dependent"])])
def test_owners_wait_for_what_the_policy_asks(
    server: ModelApiServer, policy: str, left: list[str]
) -> None:
    owner = server.add("configmaps", named("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    owners = [{**reference, "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}]
    server.add("configmaps", named("dependent", ownerReferences=owners))
    body = {"propagationPolicy": policy}
    path = CONFIG_MAPS.path("default", "owner")

    server.handle(write(CONFIG_MAPS, "delete", path, Repeat.UNSENT, body), "tester")
    waiting = [each["metadata"]["name"] for each in server.objects("configmaps")]
    GarbageCollector(server).collect_all(NOW_S)

    assert waiting == ["dependent", "owner"]
    assert [each["metadata"]["name"] for each in server.objects("configmaps")] == left


async def test_a_namespace_ends_with_its_content(server: ModelApiServer, client: Client) -> None:
    server.add("namespaces", {"metadata": {"name": "team"}})
    server.add("configmaps", {"metadata": {"name": "a", "namespace": "team"}})

    server.handle(
        ApiRequest("delete", "DELETE", "", "/api/v1/namespaces/team", Repeat.UNSENT, ""), "tester"
    )
    with pytest.raises(NamespaceTerminatingError):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, "team")
    finish_namespaces(server, NOW_S)

    assert server.find("namespaces", "", "team") is None
    with pytest.raises(NotFoundError):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, "team")


async def test_a_budget_forbids_an_eviction(server: ModelApiServer, client: Client) -> None:
    pod = server.add("pods", named("a", POD, labels={"app": "x"}))
    uid = pod["metadata"]["uid"]
    await client.bind("default", "a", uid, "n")
    spec = {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    server.add("poddisruptionbudgets", named("keep", spec))
    allowed = {"status": {"disruptionsAllowed": 0, "observedGeneration": 1}}
    await client.patch(
        DISRUPTION_BUDGETS, "keep", allowed, namespace="default", subresource="status"
    )
    running = {"status": {"phase": "Running"}}
    await client.patch(PODS, "a", running, namespace="default", subresource="status")

    with pytest.raises(ThrottledError, match="needs 0 healthy pods and has 0 currently"):
        await client.evict("default", "a", uid)


async def test_an_own_kind_is_defaulted_pruned_and_validated(client: Client) -> None:
    head = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}}

    created = await client.create(POD_GROUPS, {**head, "spec": {"unknown": 1}}, "default")
    with pytest.raises(InvalidError, match="exactly one of controller"):
        await client.create(POD_GROUPS, {**head, "spec": {"members": [{}]}}, "default")

    assert created.spec.min_member == 1


async def test_a_hook_refuses_calls_of_one_caller(client: Client) -> None:
    def refuse(call: Call) -> Refusal | None:
        is_refused = call.caller == "tester" and call.place.kind.plural == "nodes"
        return forbidden("nodes", call.place.name, "not for testers") if is_refused else None

    server = ModelApiServer(lambda: NOW_S, random.Random(1), refuse=refuse)
    client = Client(ModelCarrier(server, "tester"), 5.0, ENVIRONMENT)

    with pytest.raises(ForbiddenError):
        await client.list(NODES)
    assert await client.list(PODS) == []


async def test_the_product_asks_what_is_served_and_what_it_may(client: Client) -> None:
    found = await Catalogue(client).find("scheduling.bindery.dev/*", "Queue")

    assert await served(client, [PODS, PROVISIONING_REQUESTS, QUEUES]) == [PODS, QUEUES]
    assert found is not None
    assert (found[0], found[1].name) == ("scheduling.bindery.dev/v1alpha1", "queues")
    assert await may_watch(client, PODS)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, PatchKind.APPLY),
        ({"spec": {"$retainKeys": ["a"]}}, PatchKind.STRATEGIC),
        ({"spec": {"hostAliases": []}}, PatchKind.MERGE),
    ],
)
async def test_what_is_not_modelled_is_no_answer(
    server: ModelApiServer, client: Client, body: dict[str, Any], kind: PatchKind
) -> None:
    server.add("pods", named("a", POD))
    if kind is PatchKind.MERGE:
        body = {"spec": {"hostAliases": [{"ip": "10.0.0.1"}]}}

    with pytest.raises(NotModelledError):
        await client.patch(PODS, "a", body, namespace="default", kind=kind)


def test_the_same_chance_gives_the_same_history() -> None:
    def play() -> list[bytes]:
        server = ModelApiServer(lambda: NOW_S, random.Random(7))
        for _ in range(3):
            server.add("pods", {**POD, "metadata": {"generateName": "p-", "namespace": "default"}})
        return [change.version.body for change in server.store.log]

    assert play() == play()


async def test_a_dry_run_stores_nothing(server: ModelApiServer, client: Client) -> None:
    before = server.store.revision

    await client.try_create(PODS, named("a", POD), "default")

    assert server.store.revision == before


async def test_the_uid_in_a_status_patch_protects_no_custom_resource(client: Client) -> None:
    """Kubernetes takes the metadata of a custom resource from the stored object; see the page."""
    head = {"apiVersion": BIND_REQUESTS.api_version, "kind": "BindRequest"}
    body = {**head, "metadata": {"name": "r"}, "spec": {"fencingToken": 1}}
    created = await client.create(BIND_REQUESTS, body, "default")
    patch = {"metadata": {"uid": "another"}, "status": {"phase": "Failed"}}

    written = await client.patch(
        BIND_REQUESTS, "r", patch, namespace="default", subresource="status"
    )
    patch["metadata"] = {"resourceVersion": created.metadata.resource_version}
    with pytest.raises(ConflictError):
        await client.patch(BIND_REQUESTS, "r", patch, namespace="default", subresource="status")

    assert written.metadata.uid == created.metadata.uid
    assert written.status.phase == "Failed"
