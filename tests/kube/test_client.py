"""The client on a real API server, also through a proxy that injects faults."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from bindery.kube.client import Client, PatchKind, Selection
from bindery.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MalformedAnswerError,
    NotFoundError,
    OutcomeUnknownError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from bindery.kube.objects.resources import CONFIG_MAPS, NODES, PODS, Resource, metadata_only
from bindery.kube.objects.watched import KubeObject
from devcluster.plane import ControlPlane
from tests.kube.faultproxy import Fault, FaultProxy

pytestmark = pytest.mark.e2e


class Texts(KubeObject, frozen=True, rename="camel", kw_only=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Numbered(KubeObject, frozen=True, rename="camel", kw_only=True):
    data: dict[str, int] = msgspec.field(default_factory=dict)


TEXTS = Resource("", "v1", "configmaps", "ConfigMap", True, Texts)


@pytest.fixture(params=[False, True], ids=["process", "command"])
def is_command(request: pytest.FixtureRequest) -> bool:
    """Whether the client is one for commands, which carries requests in another way."""
    return bool(request.param)


@pytest.fixture
async def client(control_plane: ControlPlane, is_command: bool) -> AsyncIterator[Client]:
    async with Client.connect(
        control_plane.admin_kubeconfig, user_agent="bindery-test/0", is_command=is_command
    ) as made:
        yield made


@pytest.fixture
async def proxied(proxy: FaultProxy, is_command: bool) -> AsyncIterator[Client]:
    async with Client.connect(
        proxy.kubeconfig,
        user_agent="bindery-test/0",
        request_timeout_s=10,
        is_command=is_command,
    ) as made:
        yield made


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "test", "containers": containers},
    }


async def test_objects_are_created_patched_replaced_read_and_deleted(
    client: Client, namespace: str
) -> None:
    created = await client.create(TEXTS, config_map("a", n="1"), namespace)
    patched = await client.patch(TEXTS, "a", {"data": {"m": "2"}}, namespace=namespace)
    assert created.metadata.uid == patched.metadata.uid
    assert patched.data == {"n": "1", "m": "2"}

    replaced = await client.replace(TEXTS, "a", config_map("a", only="this"), namespace)
    assert replaced == await client.get(TEXTS, "a", namespace)
    assert replaced.data == {"only": "this"}

    await client.delete(TEXTS, "a", namespace)
    with pytest.raises(NotFoundError):
        await client.get(TEXTS, "a", namespace)


async def test_the_objects_of_a_selection_are_deleted_at_once(
    client: Client, namespace: str
) -> None:
    for name in ("a", "b"):
        await client.create(TEXTS, config_map(name), namespace)

    await client.delete_all(TEXTS, Selection(namespace, field_selector="metadata.name=a"))

    left = await client.list(TEXTS, namespace=namespace)
    assert {"a", "b"} & {one.metadata.name for one in left} == {"b"}
    with pytest.raises(NotFoundError):
        await client.delete(TEXTS, "a", namespace)


async def test_every_kind_of_patch_is_accepted(client: Client, namespace: str) -> None:
    await client.create(TEXTS, config_map("a", n="1"), namespace)
    operations = [{"op": "replace", "path": "/data/n", "value": "2"}]
    as_json = await client.patch(TEXTS, "a", operations, namespace=namespace, kind=PatchKind.JSON)
    assert as_json.data == {"n": "2"}
    strategic = await client.patch(
        TEXTS, "a", {"data": {"n": "3"}}, namespace=namespace, kind=PatchKind.STRATEGIC
    )
    assert strategic.data == {"n": "3"}
    applied = await client.patch(
        TEXTS,
        "a",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "4"}},
        namespace=namespace,
        kind=PatchKind.APPLY,
    )
    assert applied.data == {"n": "4"}


async def test_lists_select_by_namespace_label_and_field(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        body = config_map(name)
        body["metadata"]["labels"] = {"which": f"{namespace}-{name}"}
        await client.create(CONFIG_MAPS, body, namespace)

    everywhere = await client.list(CONFIG_MAPS, label_selector=f"which={namespace}-a")
    by_field = await client.list(
        metadata_only(CONFIG_MAPS), namespace=namespace, field_selector="metadata.name=b"
    )

    assert [each.metadata.name for each in everywhere] == ["a"]
    assert [each.metadata.name for each in by_field] == ["b"]


async def test_refusals_raise_the_error_of_their_class(client: Client, namespace: str) -> None:
    await client.create(TEXTS, config_map("a"), namespace)
    with pytest.raises(AlreadyExistsError):
        await client.create(TEXTS, config_map("a"), namespace)
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        await client.create(TEXTS, config_map("Not A Name"), namespace)
    stale = {"metadata": {"resourceVersion": "1"}, "data": {}}
    with pytest.raises(ConflictError):
        await client.patch(TEXTS, "a", stale, namespace=namespace)
    with pytest.raises(ConflictError):
        await client.delete(TEXTS, "a", namespace, uid="somebody-else")
    with pytest.raises(ValueError, match="needs a namespace"):
        await client.get(TEXTS, "a")


async def test_an_answer_that_does_not_fit_its_type_is_an_error(
    client: Client, namespace: str
) -> None:
    numbered = Resource("", "v1", "configmaps", "ConfigMap", True, Numbered)
    with pytest.raises(MalformedAnswerError, match="ConfigMap: Expected `int`"):
        await client.create(numbered, config_map("a", n="one"), namespace)
    with pytest.raises(MalformedAnswerError, match="list of configmaps: Expected `int`"):
        await client.list(numbered, namespace=namespace)


async def test_a_pod_is_bound_by_uid_and_only_once(client: Client, namespace: str) -> None:
    await client.create(NODES, {"metadata": {"name": namespace}})
    made = await client.create(PODS, pod("p"), namespace)

    with pytest.raises(ConflictError):
        await client.bind(namespace, "p", "another-uid", namespace)
    await client.bind(namespace, "p", made.metadata.uid, namespace)
    with pytest.raises(ConflictError):
        await client.bind(namespace, "p", made.metadata.uid, namespace)

    assert (await client.get(PODS, "p", namespace)).spec.node_name == namespace
    await client.delete(PODS, "p", namespace, uid=made.metadata.uid, grace_period_s=0)
    await client.delete(NODES, namespace)


async def test_two_racing_writers_lose_no_increment(client: Client, namespace: str) -> None:
    await client.create(TEXTS, config_map("counter", n="0"), namespace)

    def increment(current: Texts) -> dict[str, Any]:
        return {"data": {"n": str(int(current.data["n"]) + 1)}}

    async def writer() -> None:
        for _ in range(25):
            await client.update(TEXTS, "counter", namespace, increment)

    await asyncio.gather(writer(), writer())

    assert (await client.get(TEXTS, "counter", namespace)).data["n"] == "50"


async def test_an_update_without_changes_writes_nothing(client: Client, namespace: str) -> None:
    made = await client.create(TEXTS, config_map("a"), namespace)

    assert await client.update(TEXTS, "a", namespace, lambda _current: None) == made


async def test_an_update_with_a_lost_answer_reads_the_object_again(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str
) -> None:
    await client.create(TEXTS, config_map("a"), namespace)
    proxy.break_next(Fault("PATCH", "/configmaps/a", drop_after_send=True))

    def mark(current: Texts) -> dict[str, Any] | None:
        return None if "mark" in current.data else {"data": {"mark": "made"}}

    updated = await proxied.update(TEXTS, "a", namespace, mark)

    assert updated.data == {"mark": "made"}
    assert int(updated.metadata.resource_version) > 0


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_temporary_refusal_is_retried_after_its_wait(
    proxied: Client, proxy: FaultProxy, namespace: str, status: int
) -> None:
    proxy.break_next(
        Fault("POST", "/configmaps", times=2, status=status, headers={"Retry-After": "1"})
    )
    started_s = time.monotonic()

    made = await proxied.create(TEXTS, config_map("a"), namespace)

    assert made.metadata.name == "a"
    assert time.monotonic() - started_s >= 2
    assert proxy.count("POST", "/configmaps") == 3


async def test_a_wait_longer_than_the_timeout_of_the_call_is_raised_at_once(
    proxied: Client, proxy: FaultProxy, namespace: str
) -> None:
    proxy.break_next(Fault("GET", "/configmaps", status=429, headers={"Retry-After": "60"}))
    started_s = time.monotonic()

    with pytest.raises(ThrottledError) as caught:
        await proxied.list(TEXTS, namespace=namespace)

    assert caught.value.retry_after_s == 60
    assert time.monotonic() - started_s < 5


async def test_calls_to_a_broken_server_end_at_their_timeout(
    proxy: FaultProxy, namespace: str, is_command: bool
) -> None:
    proxy.break_next(Fault("GET", "/configmaps", times=1000, status=500))
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", is_command=is_command, request_timeout_s=1.5
    ) as impatient:
        started_s = time.monotonic()
        with pytest.raises(ServerError):
            await impatient.list(TEXTS, namespace=namespace)

    assert time.monotonic() - started_s < 2.5
    assert proxy.count("GET", "/configmaps") >= 3


def dropping(method: str, path_part: str, drop: str) -> Fault:
    """Return a fault that drops one request. `drop`: the field of the fault with the time of the
    drop.
    """
    return Fault(
        method,
        path_part,
        drop_before_send=drop == "drop_before_send",
        drop_after_send=drop == "drop_after_send",
    )


@pytest.mark.parametrize("drop", ["drop_before_send", "drop_after_send"])
async def test_idempotent_calls_survive_a_dropped_connection(
    proxied: Client, proxy: FaultProxy, namespace: str, drop: str
) -> None:
    made = await proxied.create(TEXTS, config_map("a"), namespace)
    for method in ("GET", "PATCH", "PUT", "DELETE"):
        proxy.break_next(dropping(method, "/configmaps/a", drop))

    assert (await proxied.get(TEXTS, "a", namespace)).metadata.uid == made.metadata.uid
    await proxied.patch(TEXTS, "a", {"data": {"n": "1"}}, namespace=namespace)
    await proxied.replace(TEXTS, "a", config_map("a", n="2"), namespace)
    await proxied.delete(TEXTS, "a", namespace, uid=made.metadata.uid)

    with pytest.raises(NotFoundError):
        await proxied.get(TEXTS, "a", namespace)


@pytest.mark.parametrize(("drop", "exists"), [("drop_before_send", 0), ("drop_after_send", 1)])
async def test_a_create_with_a_lost_answer_is_not_sent_twice(
    proxied: Client, proxy: FaultProxy, namespace: str, drop: str, exists: int
) -> None:
    """Seen from the client, both are the same: the outcome is unknown."""
    proxy.break_next(dropping("POST", "/configmaps", drop))

    with pytest.raises(OutcomeUnknownError):
        await proxied.create(TEXTS, config_map("a"), namespace)

    assert proxy.count("POST", "/configmaps") == 1
    found = await proxied.list(TEXTS, namespace=namespace, field_selector="metadata.name=a")
    assert len(found) == exists


async def test_a_server_that_does_not_answer_leaves_the_outcome_unknown(
    proxy: FaultProxy, namespace: str, is_command: bool
) -> None:
    proxy.break_next(Fault("POST", "/configmaps", hang=True))
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", is_command=is_command, request_timeout_s=0.5
    ) as impatient:
        with pytest.raises(OutcomeUnknownError, match=r"no answer in 0\.5 s"):
            await impatient.create(TEXTS, config_map("a"), namespace)


async def test_an_idempotent_call_that_hangs_is_sent_again(
    proxy: FaultProxy, namespace: str, is_command: bool
) -> None:
    proxy.break_next(Fault("GET", "/configmaps", hang=True))
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", is_command=is_command, request_timeout_s=2
    ) as impatient:
        assert await impatient.list(metadata_only(TEXTS), namespace=namespace)


async def test_an_unreachable_server_is_retried_until_it_is_reachable(
    proxy: FaultProxy, namespace: str, is_command: bool
) -> None:
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", is_command=is_command, request_timeout_s=0.5
    ) as early:
        await proxy.stop_listening()
        with pytest.raises(UnreachableError):
            await early.create(TEXTS, config_map("a"), namespace)
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", is_command=is_command
    ) as patient:
        creating = asyncio.create_task(patient.create(TEXTS, config_map("a"), namespace))
        await asyncio.sleep(0.2)  # so that the first attempts are refused
        await proxy.listen()

        assert (await creating).metadata.name == "a"


async def test_no_more_requests_than_connections_are_in_flight(
    proxy: FaultProxy, namespace: str, is_command: bool
) -> None:
    proxy.break_next(Fault("GET", "/configmaps/", times=2, hang=True))
    async with Client.connect(
        proxy.kubeconfig,
        user_agent="bindery-test/0",
        is_command=is_command,
        connections=2,
        request_timeout_s=1,
    ) as narrow:
        calls = [
            asyncio.create_task(narrow.get(TEXTS, name, namespace)) for name in ("a", "b", "c")
        ]
        done, _ = await asyncio.wait(calls, timeout=0.3)
        assert not done
        assert proxy.count("GET", "/configmaps/") == 2
        await asyncio.gather(*calls, return_exceptions=True)


async def test_connections_of_the_pool_are_reused(proxied: Client, proxy: FaultProxy) -> None:
    for _ in range(20):
        await proxied.list(metadata_only(NODES))

    assert proxy.connections == 1


async def test_a_wrong_token_is_forbidden(
    proxy: FaultProxy, namespace: str, is_command: bool
) -> None:
    text = proxy.kubeconfig.read_text()
    token = text.partition("token: ")[2].split()[0]
    proxy.kubeconfig.write_text(text.replace(token, "wrong"))
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", is_command=is_command
    ) as stranger:
        with pytest.raises(ForbiddenError, match="401"):
            await stranger.list(TEXTS, namespace=namespace)


async def test_a_watch_yields_one_line_per_event(client: Client, namespace: str) -> None:
    watch = client.watch(TEXTS, Selection(namespace), resource_version="", timeout_s=60, idle_s=60)
    lines = [await anext(watch)]  # kube-root-ca.crt, which every namespace has
    await client.create(TEXTS, config_map("a", n="x" * 100_000), namespace)

    while b'"name":"a"' not in lines[-1]:
        lines.append(await anext(watch))
    await watch.aclose()

    assert all(line.startswith(b'{"type":"') and line.endswith(b"\n") for line in lines)


async def test_a_silent_watch_raises_an_error(client: Client, namespace: str) -> None:
    watch = client.watch(TEXTS, Selection(namespace), resource_version="", timeout_s=60, idle_s=0.5)

    with pytest.raises(OutcomeUnknownError):
        _ = [line async for line in watch]


async def test_a_refused_watch_raises_the_reason(client: Client, namespace: str) -> None:
    unknown = Resource("", "v1", "nothings", "Nothing", True, KubeObject)
    watch = client.watch(
        unknown, Selection(namespace), resource_version="", timeout_s=60, idle_s=60
    )

    with pytest.raises(NotFoundError):
        await anext(watch)
