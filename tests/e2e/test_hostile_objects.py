"""Hostile and outdated objects on the real API server: other gangs are still bound."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from bindery.api.names import SUB_GROUP_LABEL
from bindery.kube.client import Client
from bindery.kube.errors import InvalidError, MalformedAnswerError, NotFoundError
from bindery.kube.lease import Leadership
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.resources import NAMESPACES, PODS, QUEUES
from bindery.kube.objects.watched import Condition
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.status.conditions import ConditionWrite, ReportedKind
from bindery.scheduler.status.writer import StatusWriter
from devcluster.components import Component
from devcluster.plane import ControlPlane
from tests.e2e.support import Corner, Gang, metric, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


@pytest.fixture(autouse=True)
async def another_gang_still_binds(corner: Corner) -> AsyncIterator[None]:
    """After each test: whatever was wrong, others go on."""
    yield
    await corner.add_nodes("others", cpu="2")
    gang = Gang("others", size=2)
    await corner.submit(gang)
    await corner.wait_bound(gang)


async def test_a_deep_chain_of_sub_groups_is_invalid_and_does_not_stop_the_scheduler(
    corner: Corner,
) -> None:
    chain = [{"name": f"s{i}", **({"parent": f"s{i - 1}"} if i else {})} for i in range(950)]
    gang = Gang("deep", size=1, group={"subGroups": chain})
    await corner.submit(gang)

    condition = await corner.wait_condition(gang, "False", "Invalid")

    assert "levels deep" in condition.message


async def test_a_pod_with_an_unparsable_request_does_not_break_the_snapshot(
    corner: Corner, control_plane: ControlPlane, tmp_path: Path
) -> None:
    await corner.add_nodes("a", cpu="2")
    waits = Gang("waits", size=1, pod={"nodeSelector": {"no.such": "label"}})
    await corner.submit(Gang("huge", size=1, cpu="9E"), waits)
    await corner.wait_condition(waits, "False", "Unschedulable")
    file = str(tmp_path / "cluster.yaml")

    def bindery(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bindery.cli.main", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done

    kubeconfig = f"--kubeconfig={control_plane.admin_kubeconfig}"
    bindery(kubeconfig, "snapshot", f"--node-pool={corner.pool}", "-o", file)
    explained = bindery("explain", "waits", "-n", corner.namespace, "--file", file)

    assert "do not match node selector no.such=label" in explained.stdout
    huge = bindery("explain", "huge", "-n", corner.namespace, "--file", file)
    assert "container worker: cpu: '9E' is" in huge.stdout


async def test_a_claim_nested_too_deeply_to_decode_does_not_end_the_watch(
    corner: Corner, scheduler: Component, binder: Component
) -> None:
    def malformed() -> list[float]:
        return [
            metric(each, "bindery_watch_malformed_total", resource="resourceclaims")
            for each in (scheduler, binder)
        ]

    before = malformed()
    deep = msgspec.Raw(b'{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}")
    body = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": "deep", "namespace": corner.namespace},
        "spec": {
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}],
                "config": [{"opaque": {"driver": "example.com", "parameters": deep}}],
            }
        },
    }
    with suppress(MalformedAnswerError):  # it has been created; the answer cannot be read either
        await corner.client.create(RESOURCE_CLAIMS, body, corner.namespace)

    async def seen() -> bool:
        return any(now > then for now, then in zip(malformed(), before, strict=True))

    await wait_for(seen, "the claim to be reported")
    await corner.client.delete(RESOURCE_CLAIMS, "deep", corner.namespace)


async def test_queues_deeper_than_the_maximum_report_it(corner: Corner) -> None:
    parent: str | None = None
    for number in range(34):
        spec = {} if parent is None else {"parent": parent}
        parent = await corner.add_queue(f"q{number}", spec)
    name = str(parent)

    async def said() -> Condition | None:
        queue = await corner.client.get(QUEUES, name)
        return next((c for c in queue.status.conditions or () if c.reason == "TooDeep"), None)

    condition = await wait_for(said, "the queue to say that it is too deep")

    assert condition.status == "False"


async def test_a_status_computed_for_an_unbound_pod_is_not_written_to_a_bound_pod(
    corner: Corner, client: Client
) -> None:
    await corner.add_nodes("a", cpu="2")
    gang = Gang("late", size=1)
    await corner.create_group(gang)
    unbound = await corner.create_pod(gang, 0)
    await corner.wait_bound(gang)
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    write = ConditionWrite(
        ReportedKind.POD,
        unbound.metadata,
        condition,
        (condition,),
        is_urgent=True,
        nominated_node="a",
    )
    writer = StatusWriter(client, lambda: 0.0, lambda: False)

    async def written() -> bool:
        return not writer.known

    with capture_logs() as logs:
        writing = asyncio.create_task(writer.run(Leadership(1, lambda: 0.0, 1.0)))
        await asyncio.sleep(0)  # what was offered before a term is forgotten
        writer.offer(write)
        await wait_for(written, "the write to be tried")
        writing.cancel()

    pod = await client.get(PODS, unbound.metadata.name, corner.namespace)
    assert pod.status.nominated_node_name == ""
    scheduled = {c.status for c in pod.status.conditions or () if c.type == "PodScheduled"}
    assert scheduled == {"True"}
    assert not [line for line in logs if line["log_level"] == "warning"]


async def test_a_gang_in_a_terminating_namespace_is_not_scheduled(
    corner: Corner, client: Client
) -> None:
    name = f"{corner.namespace}-ending"
    await client.create(
        NAMESPACES,
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "finalizers": ["example.com/held"]},
        },
    )
    ending = Corner(client, name, corner.pool)
    gang = Gang("held", size=1)
    await ending.submit(gang)  # no node yet: it waits
    await ending.wait_condition(gang, "False", "Unschedulable")
    await client.delete(NAMESPACES, name)
    await corner.add_nodes("a", cpu="2")

    try:
        await ending.wait_pods_say(gang, f"its namespace {name} is being deleted")
        assert await ending.requests() == []
    finally:
        with suppress(NotFoundError):
            await ending.delete_gang(gang)
        await client.patch(NAMESPACES, name, {"metadata": {"finalizers": None}})


STAGE = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}]}


def later_stages(*minima: int) -> dict[str, object]:
    """Return the sub-groups of a gang whose first stage runs, each stage after the one before."""
    names = ["first", *(f"later{i}" for i in range(len(minima)))]
    after = [
        {
            "name": name,
            "minMember": minimum,
            "after": [{"subGroup": before, "condition": "Ready"}],
            "template": {"spec": STAGE},
        }
        for (before, name), minimum in zip(pairwise(names), minima, strict=True)
    ]
    return {"minMember": 1, "subGroups": [{"name": "first", "minMember": 1}, *after]}


async def test_excessive_pod_counts_and_timeouts_are_refused_by_the_api_server(
    corner: Corner,
) -> None:
    with pytest.raises(InvalidError, match="less than or equal to 100000"):
        await corner.submit(Gang("typing-error", size=1, group=later_stages(1_000_000_000)))
    forever = Gang("forever", size=1, group={"stageTimeoutSeconds": 1e308})
    with pytest.raises(InvalidError, match="less than or equal to 86400"):
        await corner.submit(forever)


@pytest.mark.parametrize("minima", [[100_000], [1] * 400], ids=["one large stage", "many stages"])
async def test_later_stages_of_any_size_do_not_delay_other_gangs(
    corner: Corner, minima: list[int]
) -> None:
    await corner.add_nodes("a", cpu="2")
    labels = {SUB_GROUP_LABEL: "first"}
    hostile = Gang("hostile", size=1, cpu="1m", group=later_stages(*minima), labels=labels)
    await corner.submit(hostile)
    gang = Gang("plain", size=2, cpu="500m")
    await corner.submit(gang)

    await corner.wait_bound(gang)

    condition = await corner.wait_condition(hostile, "False", JobReason.UNSCHEDULABLE)
    assert "the later stage" in condition.message
