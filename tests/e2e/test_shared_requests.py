"""Gangs that share a BindRequest end independently."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bindery.kube.objects.resources import POD_GROUPS
from bindery.scheduler.commit.writer import CONCURRENT_CREATIONS
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.gates import Gate, gated
from tests.e2e.support import (
    Corner,
    Gang,
    Observer,
    binder_configuration,
    metric,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.traps import ready

pytestmark = pytest.mark.e2e

Gated = tuple[Gate, Components]


@pytest.fixture
async def behind_gate(installation: Installation, tmp_path: Path) -> AsyncIterator[Gated]:
    async with gated(installation, tmp_path / "gate") as pair:
        yield pair


async def commit_together(
    corner: Corner, gate: Gate, scheduler: Component, *gangs: Gang
) -> list[Gang]:
    """Let the scheduler behind `gate` commit `gangs` in one request, and other gangs before."""
    gate.close()
    others = [Gang(f"other-{index:02}", size=1) for index in range(CONCURRENT_CREATIONS)]
    await corner.submit(*others)
    await gate.wait_for_creations(CONCURRENT_CREATIONS)
    await corner.submit(*gangs)

    async def all_committed() -> bool:
        count = metric(scheduler, "bindery_statements_total")
        return count == CONCURRENT_CREATIONS + len(gangs)

    await wait_for(all_committed, "all gangs are committed")
    gate.let_pass()
    committed = {each["podGroup"]["name"] for each in await gate.wait_for_shared()}
    assert committed == {gang.name for gang in gangs}
    return others


async def test_a_deleted_podgroup_or_pod_ends_only_its_own_statement(
    corner: Corner, observer: Observer, behind_gate: Gated, components: Components
) -> None:
    gate, schedulers = behind_gate
    scheduler = await ready(schedulers.start_scheduler(scheduler_configuration(corner.pool)))
    await corner.add_nodes("a", cpu="60")
    without_group, without_pod, whole = (Gang(name, size=2) for name in ("g", "p", "w"))
    others = await commit_together(corner, gate, scheduler, without_group, without_pod, whole)

    await corner.client.delete(POD_GROUPS, without_group.name, corner.namespace)
    await corner.delete_pod(f"{without_pod.name}-1")

    async def withdrawn() -> set[str]:
        return {
            each.spec.pod_group.name
            for each in await corner.requests()
            if each.is_withdrawn and each.spec.pod_group is not None
        }

    async def both() -> bool:
        return await withdrawn() == {without_group.name, without_pod.name}

    await wait_for(both, "both Statements are withdrawn")
    await ready(components.start_binder(binder_configuration()))
    await corner.wait_bound(whole, *others)
    await corner.wait_nothing_left()
    reasons = {
        each.spec.pod_group.name: (each.status.phase, each.status.reason)
        for each in observer.statements.values()
        if each.spec.pod_group is not None and len(each.siblings) > 1
    }
    assert reasons.pop(whole.name)[0] == "Succeeded"
    assert {phase for phase, _ in reasons.values()} == {"Failed"}
    assert await corner.bound_count(without_group) == await corner.bound_count(without_pod) == 0

    await corner.create_pod(without_pod, 1)
    await corner.create_group(without_group)
    await corner.wait_bound(without_pod, without_group)
    await corner.wait_nothing_left()


async def test_a_new_scheduler_counts_gangs_in_shared_requests_and_commits_none_twice(
    corner: Corner, observer: Observer, behind_gate: Gated, components: Components
) -> None:
    gate, schedulers = behind_gate
    configuration = scheduler_configuration(corner.pool)
    first = await ready(schedulers.start_scheduler(configuration))
    gangs = [Gang(name, size=2) for name in "abc"]
    later, too_large = Gang("later", size=2), Gang("too-large", size=3)
    room = CONCURRENT_CREATIONS + sum(gang.size for gang in (*gangs, later))
    await corner.add_nodes("a", cpu=str(room))
    others = await commit_together(corner, gate, first, *gangs)

    async def all_there() -> bool:
        return len(await corner.requests()) == len(others) + len(gangs)

    await wait_for(all_there, "all requests are there")
    first.kill()
    second = await ready(schedulers.start_scheduler(configuration, name="scheduler-second"))
    await corner.submit(later, too_large)
    await corner.wait_condition(too_large, "False", "Unschedulable")
    await ready(components.start_binder(binder_configuration()))

    await corner.wait_bound(*gangs, *others, later)
    await corner.wait_nothing_left()
    assert metric(second, "bindery_statements_total") == 1
    assert await corner.bound_count(too_large) == 0
