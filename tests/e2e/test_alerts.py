"""The alerts of docs/operations.md work on processes that just started without errors."""

import asyncio
import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from devcluster.components import Component, Components
from devcluster.plane import ControlPlane
from tests.e2e.support import (
    Corner,
    Gang,
    Sample,
    metric,
    samples,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.webhooks import Webhooks

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
Amounts = dict[tuple[str, str], float]
"""Amounts by queue and resource."""


def expressions() -> dict[str, str]:
    """Return the expressions of the alerts by name."""
    (rules,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    groups = yaml.safe_load(rules)["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


@pytest.fixture
async def started(
    corner: Corner, components: Components, control_plane: ControlPlane
) -> list[Component]:
    """The components, with two nodes of four cores."""
    await corner.add_nodes("a", "b", cpu="4")
    started = [
        components.start_scheduler(scheduler_configuration(corner.pool)),
        components.start_grouper(),
        components.start_binder(),
    ]
    for each in started:
        await asyncio.to_thread(each.wait_ready)
    return started


async def test_every_series_of_an_alert_is_exported_before_the_first_error(
    started: list[Component], corner: Corner, control_plane: ControlPlane
) -> None:
    await corner.add_queue("any", {"resources": {"cpu": {"quota": 2}}})
    used = {name for expr in expressions().values() for name in re.findall(r"bindery_\w+", expr)}
    webhooks = Webhooks(control_plane, corner.namespace)

    async def missing() -> set[str]:
        found = await asyncio.gather(*(asyncio.to_thread(samples, each) for each in started))
        return used - {sample.name for some in found for sample in some}

    async def none_missing() -> bool:
        return not await missing()

    try:
        started.append(await asyncio.to_thread(lambda: webhooks.start(webhooks.install())))
        try:
            await wait_for(none_missing, "all series", timeout_s=60)
        except AssertionError:
            pytest.fail(f"no component exports {sorted(await missing())}")
    finally:
        await asyncio.to_thread(webhooks.remove)
    _, _, binder, _ = started

    async def leads() -> bool:
        return await asyncio.to_thread(metric, binder, "bindery_binder_leading") == 1

    await wait_for(leads, "the binder leads")


async def test_a_queue_below_its_quota_with_a_gang_that_fits_no_node_fires_no_alert(
    started: list[Component], corner: Corner
) -> None:
    """As in the demo: everything else runs, and no queue holds more than its fair share."""
    scheduler = started[0]
    entitled = await corner.add_queue("entitled", {"resources": {"cpu": {"quota": 6}}})
    other = await corner.add_queue("other", {"resources": {"cpu": {"quota": 1}}})
    runs, waits = Gang("runs", 2, queue=other), Gang("never-fits", 1, queue=entitled, cpu="5")
    await corner.submit(runs, waits)
    await corner.wait_bound(runs)

    async def noted() -> bool:
        found = await asyncio.to_thread(samples, scheduler)
        return below_quota(found, {entitled}) and _amounts(found, "allocated")[other, "cpu"] == 2

    await wait_for(noted, "the figures of the queues")
    found = await asyncio.to_thread(samples, scheduler)
    assert below_quota(found, {entitled})
    assert not above_share(found)


def below_quota(found: list[Sample], queues: set[str]) -> bool:
    """Return whether all `queues` hold less than their quota, and have gangs that wait."""
    held, quota = _amounts(found, "allocated"), _amounts(found, "quota")
    waiting = {
        sample.labels["queue"]
        for sample in found
        if sample.name == "bindery_queue_waiting_gangs" and sample.value
    }
    below = {queue for queue, resource in quota if held[queue, resource] < quota[queue, resource]}
    return queues <= waiting & below


def above_share(found: list[Sample]) -> list[tuple[str, str]]:
    """Return the queues and resources of which more is held than the alert allows."""
    held, fair = _amounts(found, "allocated"), _amounts(found, "fair_share")
    return [key for key, amount in held.items() if key in fair and amount > 1.1 * fair[key]]


def _amounts(found: list[Sample], name: str) -> Amounts:
    amounts: Amounts = defaultdict(float)
    for sample in found:
        if sample.name == f"bindery_queue_{name}":
            amounts[sample.labels["queue"], sample.labels["resource"]] = sample.value
    return amounts
