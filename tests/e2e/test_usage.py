"""Time-based shares on the real API server: an hour in a minute, and the stored record.

The process's own `Scheduler` runs in the test's process, with its ServiceAccount's rights, so
that a clock can be given to it; binder, API server and hollow nodes are what they always are.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from bindery.api.configuration import LeaderElection, SchedulerConfiguration
from bindery.api.usage import PrometheusConfiguration, UsageConfiguration
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import CONFIG_MAPS, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.observability.listening import Listening
from bindery.scheduler import process
from bindery.scheduler.background import BackgroundRunner
from bindery.scheduler.configuration import ConfigurationFile
from bindery.scheduler.usage.codec import decode
from bindery.scheduler.usage.place import KEY
from devcluster.components import Components
from devcluster.install import Installation, render
from tests.e2e.support import NO_ELECTION, Corner, Gang, wait_for
from tests.e2e.traps import ready
from tests.kube.environments import elsewhere

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]
RECORDS = LeaderElection().namespace
"""Where the record of usage stands: beside the Leases."""

NODES = 4
ALONE_MIN, TOGETHER_MIN = 20, 60
OVER_QUOTA = {"resources": {"cpu": {"quota": 0, "overQuotaWeight": 1}}}
CYCLES_A_STEP = 3
"""Evict, plan, and one more."""


class Event(KubeObject, frozen=True):
    """An event, as far as these tests read it."""

    reason: str = ""
    note: str = ""


EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, Event)


@dataclass
class Clock:
    """Stands still until it is moved. Seconds since the epoch."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now


def sample(name: str, **labels: str) -> float:
    """Return a metric of the scheduler in this process; 0 where there is none yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def used(queue: str) -> float:
    """Return past usage of the queue's cores, as the scheduler exports it."""
    return sample("bindery_queue_usage", queue=queue, resource="cpu")


@dataclass(frozen=True)
class Inside:
    """Runs schedulers in the test's process."""

    installation: Installation
    directory: Path
    configuration: SchedulerConfiguration

    @asynccontextmanager
    async def scheduler(self, clock: Clock) -> AsyncIterator[None]:
        """Schedule while the context is entered; then end as on SIGTERM."""
        file = self.directory / "scheduler.yaml"
        file.write_text(json.dumps(self.configuration.to_wire()))
        kubeconfig = self.installation.kubeconfigs["scheduler"]
        options = process.SchedulerOptions(
            ConfigurationFile(file), kubeconfig, "in-the-test", Listening(0)
        )
        running = asyncio.create_task(schedule(options, clock))
        before = sample("bindery_cycle_seconds_count")
        try:
            await cycles_pass(before, running)
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def schedule(options: process.SchedulerOptions, clock: Clock) -> None:
    """Run a scheduler at the time of `clock`."""
    agent = f"{process.COMPONENT}/0"
    async with Client.connect(options.kubeconfig, user_agent=agent) as client:
        client_then = elsewhere(client, now_s=clock)
        await process.Scheduler(options, client_then, BackgroundRunner()).run()


async def cycles_pass(since: float, running: asyncio.Task[None] | None = None) -> None:
    """Wait until the scheduler has planned a few times since it had planned `since` times."""

    async def passed() -> bool:
        if running is not None and running.done():
            running.result()
        return sample("bindery_cycle_seconds_count") >= since + CYCLES_A_STEP

    await wait_for(passed, "cycles pass")


@pytest.fixture
def record_name(pool: str) -> str:
    return f"bindery-usage-{pool}"


@pytest.fixture
async def inside(
    installation: Installation, tmp_path: Path, pool: str, corner: Corner, record_name: str
) -> AsyncIterator[Inside]:
    """A scheduler that records usage, and what the chart installs for that."""
    usage = {"source": "record", "windowSeconds": 3600, "halfLifeSeconds": 1200, "saveSeconds": 0.5}
    values = {"scheduler": {"configuration": {"nodePool": pool, "usage": usage}}}
    plane = installation.control_plane
    documents = [
        document
        for document in render(plane, values)
        if any(word in json.dumps(document["metadata"]) for word in ("usage", "-records"))
    ]
    plane.kubectl(
        "apply",
        "--server-side",
        "--filename=-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}),
    )
    configuration = SchedulerConfiguration(
        node_pool=pool,
        cycle_seconds=0.05,
        leader_election=NO_ELECTION,
        usage=UsageConfiguration.model_validate(usage),
    )
    yield Inside(installation, tmp_path, configuration)
    await corner.client.delete(CONFIG_MAPS, record_name, RECORDS)


async def stored(client: Client, name: str) -> str:
    found = await client.get(CONFIG_MAPS, name, RECORDS)
    return (found.data or {}).get(KEY, "")


@dataclass
class Workload:
    """Gangs of one pod; evicted pods are created again, as a Job's controller would."""

    corner: Corner
    gangs: list[Gang] = field(default_factory=list)

    async def submit(self, queue: str, name: str) -> None:
        gangs = [Gang(f"{name}{index}", size=1, queue=queue) for index in range(NODES)]
        await self.corner.submit(*gangs)
        self.gangs += gangs

    async def settled(self) -> None:
        """Wait until no pod is going, missing, or planned and not yet bound."""

        async def calm() -> bool:
            pods = {name for gang in self.gangs for name in await self._states(gang)}
            return "going" not in pods and not await self.corner.requests()

        await wait_for(calm, "the pods come to rest")

    async def running(self, queue: str) -> int:
        states = [s for g in self.gangs if g.queue == queue for s in await self._states(g)]
        return states.count("bound")

    async def _states(self, gang: Gang) -> list[str]:
        pods = await self.corner.pods(gang)
        if not pods:
            await self.corner.create_pod(gang, 0)
            return ["going"]
        return [
            "going"
            if pod.metadata.deletion_timestamp
            else "bound"
            if pod.spec.node_name
            else "waits"
            for pod in pods
        ]


async def minute_passes(clock: Clock, workload: Workload) -> None:
    clock.now += 60
    await cycles_pass(sample("bindery_cycle_seconds_count"))
    await workload.settled()


@pytest.mark.timeout(600)
@pytest.mark.long("two minutes")
async def test_the_usage_of_two_queues_becomes_equal_over_an_hour(
    corner: Corner, components: Components, inside: Inside, record_name: str
) -> None:
    prefix = f"{corner.namespace}-"
    agent = components.start_hollow_nodes(
        NODES, [f"--node-pool={corner.pool}", f"--name-prefix={prefix}", "--cpu=1"]
    )
    await ready(agent)
    early, late = [await corner.add_queue(name, OVER_QUOTA) for name in ("early", "late")]
    clock, workload = Clock(), Workload(corner)
    most_of_late = 0
    async with inside.scheduler(clock):
        await workload.submit(early, "a")
        await corner.wait_bound(*workload.gangs)
        for _ in range(ALONE_MIN):
            await minute_passes(clock, workload)
        alone = (used(early), used(late))
        await workload.submit(late, "b")
        for _ in range(TOGETHER_MIN):
            await minute_passes(clock, workload)
            most_of_late = max(most_of_late, await workload.running(late))
        together = (used(early), used(late))
        at_last = [await workload.running(queue) for queue in (early, late)]

    assert alone == pytest.approx((1.0, 0.0), abs=0.15)
    assert most_of_late > NODES / 2
    assert together[0] == pytest.approx(together[1], abs=0.12)
    assert at_last == [NODES / 2, NODES / 2]
    # The last word of the scheduler is stored, and another begins with it.
    history, _ = decode(await stored(corner.client, record_name))
    assert {early, late} <= set(history.queues)
    async with inside.scheduler(clock):
        assert (used(early), used(late)) == pytest.approx(together, abs=0.02)


async def test_a_malformed_record_is_started_again_and_stops_nothing(
    corner: Corner, inside: Inside, record_name: str
) -> None:
    await corner.client.patch(
        CONFIG_MAPS, record_name, {"data": {KEY: "{half a rec"}}, namespace=RECORDS
    )
    errors = sample("bindery_usage_errors_total", operation="decode")
    await corner.add_nodes("only", cpu="2")
    gang = Gang("pair", size=2)
    clock = Clock()

    async with inside.scheduler(clock):
        await corner.submit(gang)
        await corner.wait_bound(gang)
        clock.now += 60

        async def is_written() -> bool:
            return (await stored(corner.client, record_name)).startswith('{"version":1')

        await wait_for(is_written, "the record is written anew")

    assert sample("bindery_usage_errors_total", operation="decode") == errors + 1


async def test_the_scheduler_continues_without_its_prometheus_and_reports_it(
    corner: Corner, inside: Inside
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        usage = UsageConfiguration(
            source="prometheus", prometheus=PrometheusConfiguration(address=address)
        )
        without = replace(
            inside, configuration=inside.configuration.model_copy(update={"usage": usage})
        )
        errors = sample("bindery_usage_errors_total", operation="query")
        await corner.add_nodes("only", cpu="2")
        gang = Gang("pair", size=2)

        async with without.scheduler(Clock()):
            await corner.submit(gang)
            await corner.wait_bound(gang)

            async def is_told() -> bool:
                events = await corner.client.list(EVENTS, namespace=RECORDS)
                return any(
                    event.reason == "UsageUnavailable" and address.partition("//")[2] in event.note
                    for event in events
                )

            await wait_for(is_told, "an event says that Prometheus cannot be reached")

    assert sample("bindery_usage_errors_total", operation="query") == errors + 1
    assert sample("bindery_usage_stale") == 1


async def test_the_scheduler_may_write_no_other_configmap(inside: Inside, record_name: str) -> None:
    kubeconfig = inside.installation.kubeconfigs["scheduler"]
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as client:
        await client.get(CONFIG_MAPS, record_name, RECORDS)

        with pytest.raises(ForbiddenError):
            await client.get(CONFIG_MAPS, "bindery-scheduler", RECORDS)
        with pytest.raises(ForbiddenError):
            await client.delete(CONFIG_MAPS, record_name, RECORDS)
