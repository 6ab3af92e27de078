"""A scheduler that lost its Lease writes to no object."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from bindery.api.configuration import LeaderElection
from bindery.api.names import NODE_POOL_LABEL, scheduler_lease
from bindery.kube.objects.resources import BIND_REQUESTS, LEASES
from bindery.observability.listening import Listening
from bindery.scheduler import process
from bindery.scheduler.configuration import ConfigurationFile
from devcluster.plane import ControlPlane
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for
from tests.kube.faultproxy import Fault, FaultProxy

pytestmark = pytest.mark.e2e

ELECTION = LeaderElection(lease_seconds=300, renew_deadline_seconds=200, retry_seconds=0.1)
"""A term ends only when another holder takes the Lease, however busy the machine is: a scheduler
that loses it earlier lists everything again before it writes."""
RETRY_AFTER_S = 2
TERMS = f"/{ELECTION.namespace}/bindrequests"
ELECTION_ROUNDS = 30
"""The other's term, in attempts of ours to stand: longer than the write waits."""


@asynccontextmanager
async def scheduler(proxy: FaultProxy, corner: Corner, directory: Path) -> AsyncIterator[str]:
    """Run a scheduler for `corner` behind `proxy`; yield the name of its Lease."""
    file = directory / "scheduler.yaml"
    configuration = scheduler_configuration(corner.pool, leader_election=ELECTION)
    file.write_text(configuration.model_dump_json(by_alias=True))
    options = process.SchedulerOptions(
        ConfigurationFile(file), proxy.kubeconfig, "this-one", Listening(0)
    )
    running = asyncio.create_task(process.run(options))
    lease = scheduler_lease(corner.pool)
    try:
        yield lease
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await corner.client.delete(LEASES, lease, ELECTION.namespace)
        pool = f"{NODE_POOL_LABEL}={corner.pool}"
        for each in await corner.client.list(
            BIND_REQUESTS, namespace=ELECTION.namespace, label_selector=pool
        ):
            await corner.client.delete(BIND_REQUESTS, each.metadata.name, ELECTION.namespace)


@pytest.mark.usefixtures("installation")
@pytest.mark.parametrize("kind", ["queues", "podgroups"])
async def test_a_status_write_that_waits_for_its_retry_ends_with_the_lease(
    corner: Corner, control_plane: ControlPlane, tmp_path: Path, kind: str
) -> None:
    queue = await corner.add_queue("team", {})
    name = {"queues": queue, "podgroups": "gang"}[kind]
    written = f"/{kind}/{name}/status"
    async with FaultProxy(control_plane.admin_kubeconfig, tmp_path).serve() as proxy:
        retry = {"Retry-After": str(RETRY_AFTER_S)}
        proxy.break_next(Fault("PATCH", written, times=99, status=503, headers=retry))
        async with scheduler(proxy, corner, tmp_path) as lease:
            await corner.submit(Gang("gang", size=1, queue=queue))

            async def refused() -> bool:
                return proxy.count("PATCH", written) > 0

            await wait_for(refused, "the first attempt is refused")
            await take(corner, lease)
            await wait_for(deposed, "the scheduler leads no more")
            attempts, looks = proxy.count("PATCH", written), proxy.count("GET", lease)

            async def time_has_passed() -> bool:
                return proxy.count("GET", lease) > looks + ELECTION_ROUNDS

            await wait_for(time_has_passed, "the scheduler has stood again and again")
            assert proxy.count("PATCH", written) == attempts


@pytest.mark.usefixtures("installation")
async def test_a_commit_that_waits_for_its_retry_ends_with_the_lease(
    corner: Corner, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The next leader has listed the requests by then, and would give the room away again."""
    await corner.add_nodes("a")
    async with FaultProxy(control_plane.admin_kubeconfig, tmp_path).serve() as proxy:
        retry = {"Retry-After": str(RETRY_AFTER_S)}
        proxy.break_next(Fault("POST", "/bindrequests", times=99, status=503, headers=retry))
        async with scheduler(proxy, corner, tmp_path) as lease:
            await corner.submit(Gang("gang", size=1))

            async def refused() -> bool:
                return proxy.count("POST", "/bindrequests") > 0

            await wait_for(refused, "the first attempt is refused")
            await take(corner, lease)
            await wait_for(deposed, "the scheduler leads no more")
            attempts, looks = proxy.count("POST", "/bindrequests"), proxy.count("GET", lease)

            async def time_has_passed() -> bool:
                return proxy.count("GET", lease) > looks + ELECTION_ROUNDS

            await wait_for(time_has_passed, "the scheduler has stood again and again")
            assert proxy.count("POST", "/bindrequests") == attempts
    assert await corner.requests() == []


@pytest.mark.usefixtures("installation")
@pytest.mark.parametrize("was_standby", [False, True], ids=["first", "standby"])
async def test_a_term_is_announced_before_the_leader_lists_the_cluster(
    corner: Corner, control_plane: ControlPlane, tmp_path: Path, was_standby: bool
) -> None:
    """Writes of an earlier leader then precede the list, or are refused by the binder.

    Each kind is listed once if the first attempt wins; a standby has listed everything before.
    """
    lease = scheduler_lease(corner.pool)
    if was_standby:
        spec = {"holderIdentity": "another", "leaseTransitions": 7, "leaseDurationSeconds": 3600}
        body = {"metadata": {"name": lease}, "spec": spec}
        await corner.client.create(LEASES, body, ELECTION.namespace)
    async with FaultProxy(control_plane.admin_kubeconfig, tmp_path).serve() as proxy:
        async with scheduler(proxy, corner, tmp_path):

            async def listed() -> bool:
                return proxy.count("GET", "/poddisruptionbudgets?limit=") > 0

            async def leading() -> bool:
                return REGISTRY.get_sample_value("bindery_leading") == 1

            if was_standby:
                await wait_for(listed, "the standby lists")
                released = {"spec": {"holderIdentity": ""}}
                await corner.client.patch(LEASES, lease, released, namespace=ELECTION.namespace)
            await wait_for(leading, "the scheduler leads")
            term = await corner.client.get(LEASES, lease, ELECTION.namespace)
            token = term.spec.lease_transitions
            found = await corner.client.get(
                BIND_REQUESTS, f"{lease}-term-{token}", ELECTION.namespace
            )
        asked = [f"{verb} {path}" for verb, path in proxy.requests]

    assert found.is_fence
    assert found.spec.fencing_token == token
    assert found.metadata.labels[NODE_POOL_LABEL] == corner.pool
    announced = next(n for n, each in enumerate(asked) if each.startswith("POST") and TERMS in each)
    lists = [each for each in asked if "?limit=" in each and "&continue=" not in each]
    after = [each for each in asked[announced:] if each in lists]
    kinds = {each.partition("?")[0] for each in lists}
    assert kinds == {each.partition("?")[0] for each in after}
    assert len(after) == len(kinds)
    assert "/bindrequests?" in after[0]
    assert (len(lists) > len(after)) == was_standby
    assert await corner.requests() == []


async def take(corner: Corner, lease: str) -> None:
    """Let another holder hold the Lease for an hour."""
    spec = {"holderIdentity": "another", "leaseTransitions": 99, "leaseDurationSeconds": 3600}
    await corner.client.patch(LEASES, lease, {"spec": spec}, namespace=ELECTION.namespace)


async def deposed() -> bool:
    return REGISTRY.get_sample_value("bindery_leading") == 0
