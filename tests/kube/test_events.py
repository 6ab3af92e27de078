"""The EventRecorder on a real API server."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from prometheus_client import REGISTRY

from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder, ObjectReference, reference_to
from bindery.kube.objects.resources import EVENTS, NODES, Resource
from bindery.kube.objects.watched import KubeObject
from tests.kube.environments import elsewhere
from tests.kube.faultproxy import Fault, FaultProxy

pytestmark = pytest.mark.e2e

COMPONENT = "bindery-test"


class _Series(msgspec.Struct, frozen=True):
    count: int


class _Regarding(msgspec.Struct, frozen=True):
    kind: str
    name: str
    uid: str = ""


class WrittenEvent(KubeObject, frozen=True, rename="camel", kw_only=True):
    type: str
    reason: str
    note: str = ""
    series: _Series | None = None
    regarding: _Regarding
    reporting_controller: str


WRITTEN = Resource(EVENTS.group, EVENTS.version, "events", "Event", True, WrittenEvent)


@contextmanager
def running(recorder: EventRecorder) -> Iterator[None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()


async def wait_for_events(
    client: Client, namespace: str, count: int, uid: str = "uid-of-p"
) -> list[WrittenEvent]:
    """Wait until COMPONENT has written `count` events about the object `uid`; return all it has.

    Other components of the control plane may write about the same object: the node controller
    does so for each new Node.
    """
    async with asyncio.timeout(20):
        while True:
            ours = [
                event
                for event in await client.list(WRITTEN, namespace=namespace)
                if event.regarding.uid == uid and event.reporting_controller == COMPONENT
            ]
            if len(ours) >= count:
                return ours
            await asyncio.sleep(0.05)


def pod(namespace: str, name: str = "p") -> ObjectReference:
    return ObjectReference("v1", "Pod", namespace, name, "uid-of-p")


def dropped(severity: str, why: str) -> float:
    labels = {"type": severity, "why": why}
    return REGISTRY.get_sample_value("bindery_events_dropped_total", labels) or 0.0


async def test_an_event_regards_its_object(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, COMPONENT)
    with running(recorder):
        recorder.warning(pod(namespace), "FailedScheduling", "no node has 8 GPUs")
        [event] = await wait_for_events(client, namespace, 1)

    assert (event.type, event.reason, event.note) == (
        "Warning",
        "FailedScheduling",
        "no node has 8 GPUs",
    )
    assert event.regarding == _Regarding("Pod", "p", "uid-of-p")
    assert event.series is None


async def test_repeats_raise_the_count_of_one_event(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str
) -> None:
    later_s = 0.0
    recorder = EventRecorder(elsewhere(proxied, now_s=lambda: time.time() + later_s), COMPONENT)
    for _ in range(3):
        recorder.normal(pod(namespace), "Waiting", "for its gang")
    with running(recorder):
        [event] = await wait_for_events(client, namespace, 1)
        assert event.series == _Series(3)
        later_s = 10.0  # a count is not written more often
        recorder.normal(pod(namespace), "Waiting", "for its gang")
        recorder.normal(pod(namespace), "Waiting", "for its gang")
        async with asyncio.timeout(20):
            while event.series != _Series(5):
                [event] = await wait_for_events(client, namespace, 1)

    assert proxy.count("PATCH", "/events/") == 1


async def test_bursts_are_limited_and_warnings_are_written_first(
    client: Client, namespace: str
) -> None:
    recorder = EventRecorder(client, COMPONENT, burst=3, per_second=0.001)
    for number in range(20):
        recorder.normal(pod(namespace, f"normal-{number}"), "Waiting", "")
    for number in range(3):
        recorder.warning(pod(namespace, f"warning-{number}"), "Failed", "")
    with running(recorder):
        await wait_for_events(client, namespace, 3)
        await asyncio.sleep(0.5)
        events = await wait_for_events(client, namespace, 3)

    assert sorted(event.regarding.name for event in events) == [
        "warning-0",
        "warning-1",
        "warning-2",
    ]


async def test_events_about_cluster_scoped_objects_are_in_the_default_namespace(
    client: Client, namespace: str
) -> None:
    node = await client.create(NODES, {"metadata": {"name": namespace}})
    recorder = EventRecorder(client, COMPONENT)
    with running(recorder):
        recorder.normal(reference_to(NODES, node), "Seen", "")
        await wait_for_events(client, "default", 1, node.metadata.uid)
    await client.delete(NODES, namespace)


async def test_texts_too_long_for_the_api_server_are_truncated(
    client: Client, namespace: str
) -> None:
    recorder = EventRecorder(client, COMPONENT)
    with running(recorder):
        recorder.normal(pod(namespace, "p" * 253), "R" * 200, "ä" * 2000)
        [event] = await wait_for_events(client, namespace, 1)

    assert event.note.endswith("ä…")
    assert len(event.note.encode()) <= 1024


async def test_a_failed_event_write_is_counted_and_stops_nothing(
    client: Client, proxied: Client, proxy: FaultProxy, namespace: str
) -> None:
    before = dropped("Normal", "failed")
    proxy.break_next(Fault("POST", "/events", status=403))
    recorder = EventRecorder(proxied, COMPONENT)
    with running(recorder):
        recorder.normal(pod(namespace), "First", "")
        recorder.normal(pod(namespace), "Second", "")
        [event] = await wait_for_events(client, namespace, 1)
        assert event.reason == "Second"
        recorder.normal(pod(namespace), "First", "")
        assert len(await wait_for_events(client, namespace, 2)) == 2

    assert dropped("Normal", "failed") == before + 1


async def test_recording_never_waits_and_overflow_is_counted(
    client: Client, namespace: str
) -> None:
    before = dropped("Normal", "overflow")
    recorder = EventRecorder(client, COMPONENT)
    for number in range(1500):
        recorder.normal(pod(namespace), "Waiting", str(number))

    assert dropped("Normal", "overflow") == before + 500
