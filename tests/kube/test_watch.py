"""The Reflector on a real API server, through connections that break."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.objects.resources import CONFIG_MAPS, EVENTS, Resource, metadata_only
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.reflector import Change, Reflector, WatchTiming
from devcluster.plane import ControlPlane
from tests.kube.environments import Drawn, elsewhere
from tests.kube.faultproxy import Fault, FaultProxy
from tests.kube.mirror import WAIT_S, Aside, Mirror, running, wait_until

pytestmark = pytest.mark.e2e

QUICK = WatchTiming(backoff_base_s=0.02, backoff_cap_s=0.2)


class Numbered(KubeObject, frozen=True, rename="camel", kw_only=True):
    data: dict[str, int] = msgspec.field(default_factory=dict)


class Texts(KubeObject, frozen=True, rename="camel", kw_only=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


NUMBERED = Resource("", "v1", "configmaps", "ConfigMap", True, Numbered)
TEXTS = Resource("", "v1", "configmaps", "ConfigMap", True, Texts)
OURS = "test=watch"


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"test": "watch"}}, "data": data}


def reflector(
    client: Client,
    namespace: str,
    mirror: Mirror,
    *,
    resource: Resource[Any] = TEXTS,
    timing: WatchTiming = QUICK,
) -> Reflector[KubeObject]:
    """Return a reflector of our objects, of any kind, that passes changes to `mirror`."""
    return Reflector(
        client,
        resource,
        mirror.take,
        namespace=namespace,
        label_selector=OURS,
        on_malformed=mirror.take_malformed,
        timing=timing,
    )


@pytest.fixture
async def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
async def watching(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str, mirror: Mirror
) -> AsyncIterator[Reflector[KubeObject]]:
    """A reflector behind the proxy that has seen `first`."""
    await client.create(TEXTS, config_map("first"), namespace)
    made = reflector(proxied, namespace, mirror)
    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)
        await wait_until(lambda: len(proxy.streams) == 1)
        yield made


async def test_changes_are_reported_once_and_in_order(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    made = reflector(client, namespace, mirror)
    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)
        await client.create(TEXTS, config_map("a", n="1"), namespace)
        await client.patch(TEXTS, "a", {"data": {"n": "2"}}, namespace=namespace)
        await client.delete(TEXTS, "a", namespace)
        await client.create(TEXTS, config_map("b"), namespace)
        await mirror.until(lambda: "b" in mirror.objects)

    assert mirror.story("a") == ["ADDED", "MODIFIED", "DELETED"]
    assert dict(made.objects) == {(namespace, "b"): mirror.objects["b"]}
    assert made.healthy()


async def test_a_list_of_several_pages_is_complete(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    names = {f"object-{number:04}" for number in range(1100)}
    await asyncio.gather(
        *(client.create(TEXTS, config_map(name), namespace) for name in sorted(names))
    )
    made = reflector(client, namespace, mirror)

    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)

    assert set(mirror.objects) == names
    listed = await client.list(TEXTS, namespace=namespace, label_selector=OURS)
    assert {each.metadata.name for each in listed} == names


async def test_a_list_with_an_expired_continue_token_is_repeated(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str, mirror: Mirror
) -> None:
    names = {f"object-{number:04}" for number in range(600)}
    await asyncio.gather(
        *(client.create(TEXTS, config_map(name), namespace) for name in sorted(names))
    )
    proxy.break_next(Fault("GET", "continue=", status=410))
    made = reflector(proxied, namespace, mirror)

    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)

    assert set(mirror.objects) == names


async def test_an_api_server_restart_loses_and_repeats_no_change(
    control_plane: ControlPlane, aside: Aside, client: Client, namespace: str, mirror: Mirror
) -> None:
    for number in range(20):
        await client.create(TEXTS, config_map(f"kept-{number}"), namespace)
    made = reflector(client, namespace, mirror)
    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)
        await aside(control_plane.restart_api_server)
        await client.patch(TEXTS, "kept-0", {"data": {"n": "2"}}, namespace=namespace)
        await client.delete(TEXTS, "kept-1", namespace)
        await client.create(TEXTS, config_map("new"), namespace)
        await mirror.until(lambda: "new" in mirror.objects)

    assert mirror.story("kept-0") == ["ADDED", "MODIFIED"]
    assert mirror.story("kept-1") == ["ADDED", "DELETED"]
    assert mirror.story("kept-2") == ["ADDED"]
    assert len(mirror.changes) == 23


async def test_changes_during_a_disconnection_are_reported_afterwards(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    proxy.accepts_streams.clear()
    proxy.cut_streams()
    await client.create(TEXTS, config_map("second"), namespace)
    await client.delete(TEXTS, "first", namespace)
    await client.create(TEXTS, config_map("first", made="anew"), namespace)
    proxy.accepts_streams.set()
    await mirror.until(lambda: len(mirror.changes) == 4)

    assert mirror.story("first") == ["ADDED", "DELETED", "ADDED"]
    assert proxy.count("GET", "limit=500") == 1, "it resumes, it does not list again"


async def test_an_expired_watch_lists_again_and_reports_only_differences(
    watching: Reflector[KubeObject],
    control_plane: ControlPlane,
    aside: Aside,
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    await client.create(TEXTS, config_map("untouched"), namespace)
    await mirror.until(lambda: "untouched" in mirror.objects)
    old = mirror.objects["first"]
    proxy.accepts_streams.clear()
    proxy.cut_streams()
    await client.delete(TEXTS, "first", namespace)
    await client.create(TEXTS, config_map("first", made="anew"), namespace)
    # A fresh watch cache does not reach back to before the restart: the real server says 410.
    await aside(control_plane.restart_api_server)
    proxy.accepts_streams.set()
    await mirror.until(lambda: len(mirror.changes) == 4)

    deleted, added = mirror.changes[2:]
    assert mirror.story("first") == ["ADDED", "DELETED", "ADDED"]
    assert deleted.object is old
    assert isinstance(added.object, Texts)
    assert added.object.data == {"made": "anew"}
    assert mirror.story("untouched") == ["ADDED"]
    assert proxy.count("GET", "limit=500") >= 2


async def test_changes_from_a_list_are_distinguishable_from_changes_of_a_watch(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    from_list: dict[str, bool] = {}

    def take(change: Change[KubeObject]) -> None:
        from_list[change.object.metadata.name] = watching.is_listing
        mirror.take(change)

    watching.on_change = take
    await client.create(TEXTS, config_map("by-watch"), namespace)
    await mirror.until(lambda: "by-watch" in mirror.objects)
    proxy.accepts_streams.clear()
    proxy.cut_streams()
    await client.create(TEXTS, config_map("by-list"), namespace)
    await watching.catch_up()
    proxy.accepts_streams.set()

    assert from_list == {"by-watch": False, "by-list": True}


async def test_an_error_410_within_the_stream_lists_again(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    await proxy.inject(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    await wait_until(lambda: proxy.count("GET", "limit=500") == 2)
    await client.create(TEXTS, config_map("second"), namespace)
    await mirror.until(lambda: "second" in mirror.objects)

    assert mirror.story("first") == ["ADDED"]
    assert mirror.story("second") == ["ADDED"]


async def test_a_watch_that_is_answered_410_lists_again(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    proxy.break_next(Fault("GET", "watch=true", status=410))
    proxy.cut_streams()
    await wait_until(lambda: proxy.count("GET", "limit=500") == 2)
    await client.create(TEXTS, config_map("second"), namespace)
    await mirror.until(lambda: "second" in mirror.objects)

    assert mirror.story("first") == ["ADDED"]


async def test_an_event_cut_in_the_middle_is_received_again(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    proxy.streams[0].change_chunk = lambda chunk: chunk[: len(chunk) // 2]
    await client.create(TEXTS, config_map("second"), namespace)
    await mirror.until(lambda: "second" in mirror.objects)

    assert mirror.story("second") == ["ADDED"]
    assert proxy.count("GET", "limit=500") == 1


async def test_bookmarks_advance_the_version_where_a_watch_resumes(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    # Not ours by its label: the watch does not carry it, so only a bookmark can tell its version.
    other = await client.create(TEXTS, {"metadata": {"name": "other"}}, namespace)
    version = other.metadata.resource_version
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
    await proxy.inject(json.dumps(bookmark).encode() + b"\n")
    proxy.cut_streams()

    await wait_until(lambda: proxy.count("GET", f"resourceVersion={version}&") == 1)
    assert mirror.story("first") == ["ADDED"]
    assert "allowWatchBookmarks=true" in proxy.requests[-1][1]


async def test_the_api_server_sends_bookmarks_before_a_watch_ends(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    made = reflector(
        # The server sends one 2 s before the end, unless it needs longer than that to begin.
        client,
        namespace,
        mirror,
        timing=WatchTiming(shortest_s=8, longest_s=8, idle_s=90),
    )
    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)
        listed_at = made._resume_at
        await client.create(TEXTS, {"metadata": {"name": "other"}}, namespace)
        await wait_until(lambda: int(made._resume_at) > int(listed_at), timeout_s=120)
        assert mirror.changes == []


async def test_catching_up_reports_changes_missed_by_a_silent_watch(
    watching: Reflector[KubeObject],
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    mirror: Mirror,
) -> None:
    proxy.streams[0].silent = True
    await client.create(TEXTS, config_map("unheard"), namespace)
    await client.delete(TEXTS, "first", namespace)

    await asyncio.wait_for(watching.catch_up(), WAIT_S)

    assert set(mirror.objects) == {"unheard"}
    await wait_until(lambda: len(proxy.streams) == 1 and not proxy.streams[0].silent)
    await client.create(TEXTS, config_map("later"), namespace)
    await mirror.until(lambda: "later" in mirror.objects)
    assert mirror.story("unheard") == ["ADDED"]


async def test_catching_up_does_not_wait_until_a_cut_watch_connects_again(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str, mirror: Mirror
) -> None:
    timing = WatchTiming(backoff_base_s=3600.0, backoff_cap_s=3600.0)
    made = reflector(elsewhere(proxied, chance=Drawn(1.0)), namespace, mirror, timing=timing)
    with running(made):
        await wait_until(lambda: len(proxy.streams) == 1)
        proxy.break_next(Fault("GET", "watch=true", times=2, status=503))
        proxy.cut_streams()
        await client.create(TEXTS, config_map("unheard"), namespace)

        await asyncio.wait_for(asyncio.gather(made.catch_up(), made.catch_up()), WAIT_S)

        assert "unheard" in mirror.objects


async def test_a_silent_connection_is_detected_and_replaced(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str, mirror: Mirror
) -> None:
    timing = WatchTiming(idle_s=0.5, backoff_base_s=0.02, backoff_cap_s=0.2)
    with running(reflector(proxied, namespace, mirror, timing=timing)):
        await wait_until(lambda: len(proxy.streams) == 1)
        proxy.streams[0].silent = True
        await client.create(TEXTS, config_map("unheard"), namespace)
        await mirror.until(lambda: "unheard" in mirror.objects)

    assert mirror.story("unheard") == ["ADDED"]


async def test_an_idle_watch_of_a_kind_without_bookmarks_is_healthy(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    """The API server sends none for events."""
    timing = WatchTiming(idle_s=0.5, unhealthy_after_s=3)
    failures: list[KubeError] = []
    made = reflector(client, namespace, mirror, resource=EVENTS, timing=timing)
    made.on_failure = failures.append
    with running(made), structlog.testing.capture_logs() as lines:
        await asyncio.wait_for(made.synced.wait(), WAIT_S)
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert made.healthy()
        body = {
            "metadata": {"name": "late", "labels": {"test": "watch"}},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {"kind": "Pod", "name": "p", "namespace": namespace},
            "action": "Test",
            "reason": "Test",
            "type": "Normal",
            "reportingController": "test",
            "reportingInstance": "test",
        }
        await client.create(EVENTS, body, namespace)
        await mirror.until(lambda: "late" in mirror.objects)

    assert failures == []
    assert [line for line in lines if line["log_level"] != "debug"] == []


async def test_a_reflector_is_unhealthy_during_an_outage(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str, mirror: Mirror
) -> None:
    timing = WatchTiming(unhealthy_after_s=0.3, backoff_base_s=0.02, backoff_cap_s=0.05)
    made = reflector(proxied, namespace, mirror, timing=timing)
    assert not made.healthy(), "nothing has been listed yet"
    with running(made):
        await wait_until(lambda: len(proxy.streams) == 1)
        outage = proxy.break_next(Fault("GET", "watch=true", times=1000, status=503))
        proxy.cut_streams()
        await wait_until(lambda: not made.healthy())
        outage.times = 0
        await wait_until(lambda: len(proxy.streams) == 1)
        await client.create(TEXTS, config_map("after"), namespace)
        await mirror.until(lambda: "after" in mirror.objects)
        assert made.healthy()


async def test_a_malformed_object_is_reported_and_does_not_affect_others(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    """The API server's ConfigMaps hold strings, where this type demands integers."""
    await client.create(TEXTS, config_map("listed-bad", n="one"), namespace)
    await client.create(TEXTS, config_map("listed-good"), namespace)
    made = reflector(client, namespace, mirror, resource=NUMBERED)
    with running(made):
        await asyncio.wait_for(made.synced.wait(), WAIT_S)
        await client.create(TEXTS, config_map("watched-bad", n="two"), namespace)
        await client.create(TEXTS, config_map("watched-good"), namespace)
        await mirror.until(lambda: "watched-good" in mirror.objects)
        # An object that becomes malformed keeps what could be read; one that is mended is there.
        await client.patch(TEXTS, "listed-good", {"data": {"n": "x"}}, namespace=namespace)
        await client.patch(TEXTS, "listed-bad", {"data": {"n": None}}, namespace=namespace)
        await mirror.until(lambda: "listed-bad" in mirror.objects)

    assert [meta.name for meta, _ in mirror.malformed] == [
        "listed-bad",
        "watched-bad",
        "listed-good",
    ]
    assert "Expected `int`, got `str` - at `$.data[...]`" in mirror.malformed[0][1]
    assert set(mirror.objects) == {"listed-good", "watched-good", "listed-bad"}
    assert mirror.story("listed-good") == ["ADDED", "MODIFIED"]


async def test_a_malformed_object_is_reported_once_per_version(
    proxied: Client, proxy: FaultProxy, client: Client, namespace: str, mirror: Mirror
) -> None:
    await client.create(TEXTS, config_map("bad", n="one"), namespace)
    with running(reflector(proxied, namespace, mirror, resource=NUMBERED)):
        await wait_until(lambda: len(proxy.streams) == 1)
        await proxy.inject(b'{"type":"ERROR","object":{"code":410}}\n')
        await wait_until(lambda: proxy.count("GET", "limit=500") == 2)
        await wait_until(lambda: len(proxy.streams) == 1)
        await client.patch(TEXTS, "bad", {"data": {"n": "two"}}, namespace=namespace)
        await mirror.until(lambda: len(mirror.malformed) == 2)

    versions = {meta.resource_version for meta, _ in mirror.malformed}
    assert len(versions) == 2


async def test_an_object_of_three_mebibytes_is_read(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    """The API server writes `<` as six bytes, so half a MiB in etcd is 3 MiB on the wire."""
    text = "<" * (512 * 1024)
    with running(reflector(client, namespace, mirror)):
        await client.create(TEXTS, config_map("small"), namespace)
        await mirror.until(lambda: "small" in mirror.objects)
        await client.create(TEXTS, config_map("large", text=text), namespace)
        await mirror.until(lambda: "large" in mirror.objects)

    large = mirror.objects["large"]
    assert isinstance(large, Texts)
    assert large.data["text"] == text


async def test_a_watch_can_be_for_metadata_only(
    client: Client, namespace: str, mirror: Mirror
) -> None:
    await client.create(TEXTS, config_map("listed", n="1"), namespace)
    with running(reflector(client, namespace, mirror, resource=metadata_only(CONFIG_MAPS))):
        await mirror.until(lambda: "listed" in mirror.objects)
        await client.create(TEXTS, config_map("watched", n="1"), namespace)
        await mirror.until(lambda: "watched" in mirror.objects)

    assert type(mirror.objects["watched"]) is KubeObject
    assert mirror.objects["watched"].metadata.labels == {"test": "watch"}


async def test_an_exception_of_the_callback_does_not_affect_other_objects(
    client: Client, namespace: str
) -> None:
    seen: list[str] = []
    both = asyncio.Event()

    def take(change: Change[Texts]) -> None:
        seen.append(change.object.metadata.name)
        if {"one", "two"} <= set(seen):
            both.set()
        if change.object.metadata.name == "one":
            raise OSError("a fault of ours, not of the connection")

    await client.create(TEXTS, config_map("one"), namespace)
    await client.create(TEXTS, config_map("two"), namespace)
    running = asyncio.create_task(Reflector(client, TEXTS, take, namespace=namespace).run())
    try:
        async with asyncio.timeout(WAIT_S):
            await both.wait()
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
