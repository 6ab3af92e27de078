"""kill -9 of the grouper at its writes, two groupers, and an API server that restarts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bindery.api import names
from bindery.api.configuration import GrouperConfiguration, LeaderElection
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.resources import POD_GROUPS, PODS
from devcluster.components import Component, Components
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.e2e.support import Corner, metric, wait_for
from tests.e2e.traps import Trap, TrapProxy, kill, ready, trapped
from tests.e2e.workloads import JOBS, Maker
from tests.required import lacking

pytestmark = pytest.mark.e2e

ALONE = GrouperConfiguration(leader_election=LeaderElection(enabled=False))
SIZE = 2
JOB_COUNT = 3

Proxied = tuple[TrapProxy, Components]


@pytest.fixture
async def proxied(installation: Installation, tmp_path: Path) -> AsyncIterator[Proxied]:
    async with trapped(installation, "grouper", tmp_path) as pair:
        yield pair


@pytest.fixture
def maker(corner: Corner) -> Maker:
    return Maker(corner)


@dataclass
class Played:
    """Jobs whose PodGroups were created, changed and deleted, and what must be there."""

    maker: Maker
    wanted: dict[str, str] = field(default_factory=dict)
    """Job -> its queue; "" for none."""
    skipped: set[str] = field(default_factory=set)

    async def create(self, prefix: str) -> None:
        for number in range(JOB_COUNT):
            name = f"{prefix}-{number}"
            await self.maker.create(JOBS, self.maker.job(name, SIZE))
            self.wanted[name] = ""

    async def change(self, name: str, queue: str) -> None:
        await self._label(name, names.QUEUE_LABEL, queue)
        self.wanted[name] = queue

    async def skip(self, name: str) -> None:
        corner = self.maker.corner
        for pod in await corner.client.list(PODS, namespace=corner.namespace):
            if pod.metadata.labels["app"] == name:
                patch = {"metadata": {"annotations": {names.SKIP_GROUPER_KEY: "true"}}}
                await corner.client.patch(
                    PODS, pod.metadata.name, patch, namespace=corner.namespace
                )
        del self.wanted[name]
        self.skipped.add(name)

    async def _label(self, name: str, key: str, value: str) -> None:
        corner = self.maker.corner
        patch = {"metadata": {"labels": {key: value}}}
        await corner.client.patch(JOBS, name, patch, namespace=corner.namespace)

    async def wait(self) -> None:
        """Wait until the PodGroups are as wanted and each pod is in exactly one."""

        async def there() -> bool:
            found = {
                group.metadata.owner_references[0].name: group.spec.get("queue", "")
                for group in await self.maker.groups()
            }
            return found == self.wanted

        await wait_for(there, f"the PodGroups are those of {self.wanted}")
        await self.check()

    async def check(self) -> None:
        """Check minimum and membership."""
        corner = self.maker.corner
        groups = await corner.client.list(POD_GROUPS, namespace=corner.namespace)
        assert [group.spec.min_member for group in groups] == [SIZE] * len(self.wanted)
        claims = Claims(groups)
        for pod in await corner.client.list(PODS, namespace=corner.namespace):
            found, job = claims.of(pod), pod.metadata.labels["app"]
            assert not found.others, f"{pod.metadata.name} is in two PodGroups"
            assert bool(found.group) == (job not in self.skipped), pod.metadata.name


async def start(components: Components) -> Component:
    return await ready(components.start_grouper(ALONE))


async def test_a_kill_at_any_write_does_not_change_the_final_pod_groups(
    maker: Maker, proxied: Proxied
) -> None:
    proxy, components = proxied
    played = Played(maker)
    grouper = await start(components)

    async def blow(method: str, at: int, *, after: bool, act: Awaitable[None]) -> None:
        trap = proxy.set(Trap(method, "/podgroups", kill(grouper), at=at, after=after))
        await act
        await trap.wait()
        await asyncio.to_thread(grouper.restart)
        await played.wait()

    for after in (False, True):
        when = "after" if after else "before"
        await blow("POST", 1, after=after, act=played.create(f"first-{when}"))
        await blow("POST", JOB_COUNT, after=after, act=played.create(f"last-{when}"))
        await blow("PUT", 1, after=after, act=played.change(f"first-{when}-0", "research"))
        await blow("DELETE", 1, after=after, act=played.skip(f"last-{when}-0"))


async def test_an_event_is_written_once_despite_any_failure_of_its_write(
    maker: Maker, proxied: Proxied
) -> None:
    proxy, components = proxied
    grouper = await start(components)
    names_of_jobs = ["killed-before", "killed-after", "marker"]

    async def create(name: str) -> None:
        job = maker.job(name, SIZE)
        job["metadata"]["annotations"] = {names.MIN_MEMBER_KEY: "9"}
        await maker.create(JOBS, job)

    async def events(name: str) -> int:
        found = await maker.corner.events("MinimumTooHigh")
        return len([event for event in found if event.regarding["name"] == name])

    async def wait_event(name: str) -> None:
        async def there() -> bool:
            return await events(name) > 0

        await wait_for(there, f"the event at {name}")

    for name, after in zip(names_of_jobs, (False, True), strict=False):
        trap = proxy.set(Trap("POST", "/events", kill(grouper), after=after))
        await create(name)
        await trap.wait()
        await asyncio.to_thread(grouper.restart)
        await wait_event(name)
    # Events are written in their order: what the last process repeats would come before this one.
    await create("marker")
    await wait_event("marker")

    assert [await events(name) for name in names_of_jobs] == [1, 1, 1]


async def queue_is_kept(maker: Maker) -> None:
    """Wait for the event of the Job that its queue is kept, and check that the queue is kept."""

    async def told() -> bool:
        found = await maker.corner.events("QueueKept")
        return {event.regarding["name"] for event in found} == {"train"}

    await wait_for(told, "an event says that the queue is kept")
    (group,) = await maker.groups()
    assert group.spec.get("queue") is None
    assert await maker.corner.events("PodGroupRefused") == [], "it was not even tried"


async def test_the_queue_is_kept_as_soon_as_a_pod_is_bound(
    maker: Maker, components: Components
) -> None:
    """No scheduler runs: the mark that pods are charged to the queue is never set."""
    await start(components)
    played = Played(maker)
    await maker.create(JOBS, maker.job("train", SIZE))
    (group,) = await maker.wait_groups(1)
    (node,) = await maker.corner.add_nodes("a")
    for pod in await maker.pods("train"):
        await maker.corner.client.bind(
            maker.corner.namespace,
            pod.metadata.name,
            pod.metadata.uid,
            node,
            annotations={names.CHARGED_GROUP_ANNOTATION: group.metadata.uid},
        )

    await played.change("train", "research")

    await queue_is_kept(maker)


async def test_the_queue_is_kept_if_pods_are_charged_while_its_change_is_written(
    maker: Maker, proxied: Proxied
) -> None:
    proxy, components = proxied
    await start(components)
    played = Played(maker)
    await maker.create(JOBS, maker.job("train", SIZE))
    (group,) = await maker.wait_groups(1)

    async def charge() -> None:
        status = {"status": {"queue": "default"}}
        await maker.corner.client.patch(
            POD_GROUPS,
            group.metadata.name,
            status,
            namespace=maker.corner.namespace,
            subresource="status",
        )

    trap = proxy.set(Trap("PUT", "/podgroups", charge))
    await played.change("train", "research")
    await trap.wait()

    await queue_is_kept(maker)


async def test_two_simultaneous_groupers_write_the_same_as_one(
    maker: Maker, components: Components
) -> None:
    pair = [components.start_grouper(ALONE, name=f"grouper-{number}") for number in range(2)]
    for each in pair:
        await ready(each)
    played = Played(maker)

    for number in range(4):
        await played.create(f"round-{number}")
    await played.wait()
    for name in list(played.wanted):
        await played.change(name, "research")
    await played.wait()

    assert sum(metric(each, "bindery_grouper_writes_total", verb="create") for each in pair) == len(
        played.wanted
    )
    assert [metric(each, "bindery_grouper_plans_total", outcome="failed") for each in pair] == [
        0,
        0,
    ]


async def test_the_grouper_continues_after_a_restart_of_the_api_server(
    maker: Maker, components: Components, control_plane: ControlPlane
) -> None:
    if control_plane.is_shared:
        lacking("this cluster's API server is not ours to stop")
    grouper = await ready(components.start_grouper())
    played = Played(maker)
    await played.create("before")
    await played.wait()

    await asyncio.to_thread(control_plane.restart_api_server)
    await played.create("after")
    await played.change("before-0", "research")

    await played.wait()
    assert grouper.process.is_running
