"""A cycle that is slow or hangs because of a third-party plugin."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from bindery.api.configuration import LeaderElection, PluginConfiguration, SchedulerConfiguration
from bindery.api.names import scheduler_lease
from bindery.kube.objects.resources import LEASES
from bindery.kube.objects.watched import Lease
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder", "plugin_path")]

SHORT = LeaderElection(lease_seconds=3, renew_deadline_seconds=2, retry_seconds=0.2)
RENEWALS = 30
"""So many take twice as long as the Lease lasts."""


@dataclass(frozen=True)
class Files:
    """Files by which a test and the plugin wait for each other."""

    begun: Path
    go_on: Path

    def configuration(self, pool: str, max_cycle_s: float) -> SchedulerConfiguration:
        base = scheduler_configuration(pool, leader_election=SHORT)
        arguments = {"job": "slow", "begun": str(self.begun), "go_on": str(self.go_on)}
        plugins = (*base.plugins, PluginConfiguration(name="sluggard", arguments=arguments))
        return base.model_copy(update={"plugins": plugins, "max_cycle_seconds": max_cycle_s})

    async def wait_begun(self) -> None:
        async def begun() -> bool:
            return self.begun.exists()

        await wait_for(begun, "the plugin holds planning up")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "begun", tmp_path / "go-on")


@pytest.fixture
def components(installation: Installation) -> Iterator[Components]:
    with Components(installation) as components:
        yield components


async def lease_of(corner: Corner) -> Lease:
    name = scheduler_lease(corner.pool)
    return await corner.client.get(LEASES, name, SHORT.namespace)


async def health(scheduler: Component) -> int:
    """Return the status of /healthz."""
    url = f"http://127.0.0.1:{scheduler.health_port}/healthz"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status


async def test_the_lease_is_kept_and_probes_are_answered_during_a_slow_cycle(
    corner: Corner, components: Components, files: Files
) -> None:
    configuration = files.configuration(corner.pool, max_cycle_s=600)
    scheduler = components.start_scheduler(configuration, name=f"scheduler-{corner.namespace}")
    await asyncio.to_thread(scheduler.wait_ready)
    await corner.add_nodes("a")
    gang = Gang("slow", size=2)
    await corner.submit(gang)
    await files.wait_begun()
    term, seen = await lease_of(corner), set[str]()

    async def renewed_often() -> bool:
        seen.add((await lease_of(corner)).spec.renew_time or "")
        assert await health(scheduler) == 200
        return len(seen) > RENEWALS

    await wait_for(renewed_often, "the Lease is renewed again and again")
    assert not await corner.bound_count(gang)
    files.go_on.touch()

    await corner.wait_bound(gang)
    now = await lease_of(corner)
    assert now.spec.holder_identity == term.spec.holder_identity
    assert now.spec.lease_transitions == term.spec.lease_transitions
    await asyncio.to_thread(scheduler.stop)


async def test_a_cycle_that_hangs_ends_the_process_and_releases_the_lease(
    corner: Corner, components: Components, files: Files
) -> None:
    configuration = files.configuration(corner.pool, max_cycle_s=1)
    scheduler = components.start_scheduler(configuration, name=f"scheduler-{corner.namespace}")
    await corner.add_nodes("a")
    await corner.submit(Gang("slow", size=2))
    await files.wait_begun()

    assert await asyncio.to_thread(scheduler.process.wait, 60) == 1

    assert not (await lease_of(corner)).spec.holder_identity
    log = scheduler.log.read_text()
    assert "cycle hangs" in log
    assert "bindery_e2e_sluggard.py" in log, "the log says where it hangs"
    assert "a planning cycle has not ended after 1 s" in log.splitlines()[-1]
