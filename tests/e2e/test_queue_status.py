"""The status of queues on the real API server: numbers, conditions, and no writes when idle."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from json import dumps, loads
from typing import Any

import msgspec
import pytest

from bindery.kube.objects.queues import QueueStatus
from bindery.kube.objects.resources import PRIORITY_CLASSES, QUEUES
from bindery.kube.objects.watched import Condition, KubeObject
from devcluster.components import Component
from devcluster.errors import ControlPlaneError
from devcluster.plane import ControlPlane
from tests.administrator import read_as
from tests.e2e.support import Corner, Gang, metric, samples, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]

FREE = {"resources": {"cpu": {"quota": 1, "overQuotaWeight": 1}}}


class StatusAlone(KubeObject, frozen=True):
    """A queue without its spec, which need not be readable."""

    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


STATUSES = read_as(QUEUES, StatusAlone)


async def status_of(corner: Corner, queue: str) -> QueueStatus:
    return (await corner.client.get(STATUSES, queue)).status


async def wait_status(corner: Corner, queue: str, **wanted: Any) -> QueueStatus:
    """Wait until the status of the queue has the fields `wanted`."""
    last: list[QueueStatus] = []

    async def said() -> QueueStatus | None:
        last[:] = [await status_of(corner, queue)]
        found = all(getattr(last[0], key) == value for key, value in wanted.items())
        return last[0] if found else None

    try:
        status = await wait_for(said, f"{queue} says {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it says {last}") from error
    assert status is not None
    return status


async def wait_condition(corner: Corner, queue: str, kind: str, reason: str) -> Condition:
    async def said() -> Condition | None:
        conditions = (await status_of(corner, queue)).conditions or ()
        found = (c for c in conditions if (c.type, c.reason) == (kind, reason))
        return next(found, None)

    condition = await wait_for(said, f"{queue} says {kind} {reason}")
    assert condition is not None
    return condition


def queue_writes(scheduler: Component) -> float:
    """Return how often the scheduler has asked for a write of a queue."""
    return sum(
        sample.value
        for sample in samples(scheduler)
        if sample.name == "bindery_api_requests_total"
        and sample.labels["resource"] == "queues"
        and sample.labels["verb"] == "patch"
    )


async def wait_cycles(scheduler: Component, count: int) -> None:
    first = metric(scheduler, "bindery_cycle_seconds_count")

    async def planned() -> bool:
        return metric(scheduler, "bindery_cycle_seconds_count") >= first + count

    await wait_for(planned, f"{count} cycles")


async def test_a_queue_reports_held_and_requested_resources_and_is_not_written_again(
    corner: Corner, scheduler: Component
) -> None:
    await corner.add_nodes("a", "b", cpu="2")
    org = await corner.add_queue("org", FREE)
    team = await corner.add_queue("team", {"parent": org, **FREE})
    runs, waits = Gang("runs", 3, queue=team), Gang("waits", 2, queue=team, cpu="1500m")
    await corner.submit(runs)
    await corner.wait_bound(runs)
    amounts = {"allocated": {"cpu": "3"}, "pending": {"cpu": "0"}, "requested": {"cpu": "3"}}
    for queue in (org, team):
        status = await wait_status(corner, queue, fair_share={"cpu": "3"}, **amounts)
        assert (status.gangs.running, status.gangs.pending) == (1, 0)

    await corner.submit(waits)
    more = {"allocated": {"cpu": "3"}, "pending": {"cpu": "3"}, "requested": {"cpu": "6"}}
    for queue in (org, team):
        status = await wait_status(corner, queue, fair_share={"cpu": "4"}, **more)
        assert (status.gangs.running, status.gangs.pending) == (1, 1)

    written = queue_writes(scheduler)
    await wait_cycles(scheduler, 4)  # a second each while nothing happens: more than it holds back
    assert queue_writes(scheduler) == written

    await corner.delete_gang(waits)
    for queue in (org, team):
        await wait_status(corner, queue, fair_share={"cpu": "3"}, **amounts)
    assert queue_writes(scheduler) - written <= 6


async def test_many_changes_of_one_queue_cause_few_writes(
    corner: Corner, scheduler: Component
) -> None:
    await corner.add_nodes("a", cpu="40")
    queue = await corner.add_queue("busy", FREE)
    await wait_condition(corner, queue, "Ready", "Valid")
    written = queue_writes(scheduler)
    gangs = [Gang(f"g{index}", 2, queue=queue) for index in range(15)]
    for gang in gangs:
        await corner.submit(gang)
        await corner.wait_bound(gang)
    status = await wait_status(corner, queue, allocated={"cpu": "30"}, pending={"cpu": "0"})

    assert status.gangs.running == 15
    assert queue_writes(scheduler) - written < 10


async def test_a_status_overwritten_by_another_client_is_corrected(
    corner: Corner, scheduler: Component
) -> None:
    queue = await corner.add_queue("touched", FREE)
    await wait_status(corner, queue, allocated={"cpu": "0"})
    body = {"status": {"allocated": {"cpu": "77", "apples": "3"}}}
    await corner.client.patch(QUEUES, queue, body, subresource="status")

    await wait_status(corner, queue, allocated={"cpu": "0"})


async def good_gang_binds(corner: Corner) -> None:
    await corner.add_nodes("good", cpu="2")
    queue = await corner.add_queue("good", FREE)
    gang = Gang("good", 2, queue=queue)
    await corner.submit(gang)
    await corner.wait_bound(gang)
    await wait_condition(corner, queue, "Ready", "Valid")


async def test_queues_on_a_cycle_report_it_until_it_is_cut_and_other_queues_are_served(
    corner: Corner, scheduler: Component
) -> None:
    names = {each: f"{corner.namespace}-{each}" for each in "abc"}
    await corner.add_queue("a", {"parent": names["b"], **FREE})
    await corner.add_queue("b", {"parent": names["a"], **FREE})
    await corner.add_queue("c", {"parent": names["b"], **FREE})
    gang = Gang("gang", 2, queue=names["c"])
    await corner.submit(gang)

    for each in "ab":
        condition = await wait_condition(corner, names[each], "Ready", "Cycle")
        assert condition.status == "False"
        assert "its own ancestor" in condition.message
    await wait_condition(corner, names["c"], "Ready", "ParentNotReady")
    await corner.wait_condition(gang, "False", "QueueInvalid")
    await good_gang_binds(corner)
    assert await corner.bound_count(gang) == 0

    await corner.add_nodes("more", cpu="2")
    await corner.client.patch(QUEUES, names["a"], {"spec": {"parent": None}})
    for each in names.values():
        await wait_condition(corner, each, "Ready", "Valid")
    await corner.wait_bound(gang)


async def test_a_queue_reports_a_missing_parent_until_it_exists(
    corner: Corner, scheduler: Component
) -> None:
    org = f"{corner.namespace}-org"
    team = await corner.add_queue("team", {"parent": org, **FREE})
    gang = Gang("gang", 1, queue=team)
    await corner.submit(gang)
    condition = await wait_condition(corner, team, "Ready", "ParentDoesNotExist")
    assert condition.message == f"spec.parent: queue {org} does not exist"
    await good_gang_binds(corner)

    await corner.add_nodes("more", cpu="1")
    await corner.add_queue("org", FREE)
    await wait_condition(corner, team, "Ready", "Valid")
    await corner.wait_bound(gang)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"resources": {"cpu": {"quota": "5" * 30}}}, "is out of range"),
        (
            {"resources": {"gpu": {"quota": 1}, "nvidia.com/gpu": {"quota": 2}}},
            "there are rules for nvidia.com/gpu already",
        ),
    ],
    ids=["a quantity that fits no ledger", "two rules for one resource"],
)
async def test_a_spec_that_only_the_scheduler_can_validate_has_a_condition(
    corner: Corner, scheduler: Component, spec: Mapping[str, Any], message: str
) -> None:
    queue = await corner.add_queue("odd", spec)
    gang = Gang("gang", 1, queue=queue)
    await corner.submit(gang)

    condition = await wait_condition(corner, queue, "Ready", "Invalid")
    assert condition.status == "False"
    assert message in condition.message
    said = await corner.wait_condition(gang, "False", "QueueInvalid")
    assert queue in said.message
    await good_gang_binds(corner)


@contextmanager
def any_priority_taken(control_plane: ControlPlane, queue: str) -> Iterator[None]:
    """Let the API server take any priority of `queue`, as an older definition might have."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/priority"
    kind = "queues.scheduling.bindery.dev"

    def define(schema: Mapping[str, Any]) -> None:
        change = dumps([{"op": "replace", "path": path, "value": schema}])
        control_plane.kubectl("patch", "crd", kind, "--type=json", f"--patch={change}")

    definition = loads(control_plane.kubectl("get", "crd", kind, "--output=json"))
    (version,) = definition["spec"]["versions"]
    strict = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["priority"]
    define({"x-kubernetes-preserve-unknown-fields": True})
    try:
        yield
    finally:
        set_priority(control_plane, queue, 100)
        define(strict)


def set_priority(control_plane: ControlPlane, queue: str, priority: int | str) -> None:
    kind, change = "queues.scheduling.bindery.dev", dumps({"spec": {"priority": priority}})
    control_plane.kubectl("patch", kind, queue, "--type=merge", f"--patch={change}")


async def test_a_spec_that_was_valid_under_an_older_definition_has_a_condition(
    corner: Corner, scheduler: Component, control_plane: ControlPlane
) -> None:
    queue = await corner.add_queue("old", FREE)
    await wait_condition(corner, queue, "Ready", "Valid")

    async def taken() -> bool:
        try:
            set_priority(control_plane, queue, "high")
        except ControlPlaneError:
            return False
        return True

    with any_priority_taken(control_plane, queue):
        await wait_for(taken, "the API server takes it")
        condition = await wait_condition(corner, queue, "Ready", "Invalid")
        assert "$.spec.priority" in condition.message
        gang = Gang("gang", 1, queue=queue)
        await corner.submit(gang)
        await corner.wait_condition(gang, "False", "QueueInvalid")
        await good_gang_binds(corner)
    await wait_condition(corner, queue, "Ready", "Valid")


WARNINGS = [
    ({"cpu": {"quota": 4}}, {"cpu": {"quota": 8}}, "QuotaAboveParent", "QuotaBelowChildren"),
    ({"cpu": {"quota": 4}}, {"cpu": {"quota": 4, "limit": 3}}, "QuotaAboveLimit", None),
]


@pytest.mark.parametrize(
    ("above", "below", "of_team", "of_org"), WARNINGS, ids=["above its parent's", "above its limit"]
)
async def test_a_quota_that_is_too_high_is_a_warning_and_the_queue_is_served(
    corner: Corner,
    scheduler: Component,
    above: Mapping[str, Any],
    below: Mapping[str, Any],
    of_team: str,
    of_org: str | None,
) -> None:
    await corner.add_nodes("a", cpu="2")
    org = await corner.add_queue("org", {"resources": above})
    team = await corner.add_queue("team", {"parent": org, "resources": below})
    gang = Gang("gang", 2, queue=team)
    await corner.submit(gang)
    await corner.wait_bound(gang)

    assert (await wait_condition(corner, team, "Warning", of_team)).status == "True"
    await wait_condition(corner, team, "Ready", "Valid")
    if of_org is not None:
        await wait_condition(corner, org, "Warning", of_org)

    modest = {"spec": {"resources": {"cpu": {"quota": 2, "limit": 3}}}}
    await corner.client.patch(QUEUES, team, modest)

    async def settled() -> bool:
        every = [await status_of(corner, name) for name in (org, team)]
        return all([c.type for c in status.conditions or ()] == ["Ready"] for status in every)

    await wait_for(settled, "nothing is warned of any more")


@asynccontextmanager
async def priority_class(
    corner: Corner, name: str, value: int, **fields: Any
) -> AsyncIterator[str]:
    """Create a PriorityClass for this test alone; yield its name."""
    full = f"{corner.namespace}-{name}"
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": full},
        "value": value,
        **fields,
    }
    await corner.client.create(PRIORITY_CLASSES, body)
    try:
        yield full
    finally:
        await corner.client.delete(PRIORITY_CLASSES, full)


def classed(name: str, of: str) -> Gang:
    return Gang(name, 1, group={"priorityClassName": of})


async def test_a_gang_of_a_non_preempting_class_waits_for_free_room(
    corner: Corner, scheduler: Component
) -> None:
    await corner.add_nodes("a", cpu="1")
    runs = Gang("runs", 1)
    await corner.submit(runs)
    await corner.wait_bound(runs)
    async with priority_class(corner, "polite", 90, preemptionPolicy="Never") as polite:
        waits = classed("waits", polite)
        await corner.submit(waits)
        await corner.wait_condition(waits, "False", "Unschedulable")
        await wait_cycles(scheduler, 3)
        assert await corner.bound_count(runs) == 1

        await corner.delete_pod("runs-0")
        await corner.wait_bound(waits)


async def test_the_default_priority_class_applies_to_gangs_without_a_class(
    corner: Corner, scheduler: Component
) -> None:
    await corner.add_nodes("a", cpu="1")
    async with (
        priority_class(corner, "standard", 40, globalDefault=True),
        priority_class(corner, "below", 30) as below,
        priority_class(corner, "above", 60) as above,
    ):
        plain = Gang("plain", 1)
        await corner.submit(plain)
        await corner.wait_bound(plain)
        assert [pod.spec.priority for pod in await corner.pods(plain)] == [40]

        lower = classed("lower", below)
        await corner.submit(lower)
        await corner.wait_condition(lower, "False", "Unschedulable")
        await wait_cycles(scheduler, 3)
        assert await corner.bound_count(plain) == 1

        higher = classed("higher", above)
        await corner.submit(higher)
        await corner.wait_bound(higher)
        assert await corner.pods(plain) == []
