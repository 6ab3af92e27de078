"""Making room on the real API server: budgets, grace periods, moves, and a crash in the middle."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bindery.api.names import NODE_POOL_LABEL
from bindery.api.times import seconds
from bindery.kube.client import PatchKind
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.nodeagent.lifecycle import STOP_SECONDS_ANNOTATION
from bindery.scheduler.cache.failures import SPARE_S
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.support import (
    NO_ELECTION,
    SHORT_LEASES,
    Corner,
    Event,
    Gang,
    Observer,
    metric,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.traps import Trap, TrapProxy, kill, ready, trapped
from tests.sizes import sample

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the disruption controller has counted."""

    current_healthy: int = 0
    disruptions_allowed: int = -1
    observed_generation: int = 0


class Budget(KubeObject, frozen=True):
    """A PodDisruptionBudget, as far as these tests read it."""

    status: BudgetStatus = BudgetStatus()


BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, Budget)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, KubeObject)

SLOW_TO_STOP_S = 3


async def start_nodes(corner: Corner, components: Components, count: int, cpu: int = 1) -> None:
    """Start hollow nodes, on which pods become Ready and take their time to stop."""
    prefix = f"{corner.namespace}-"
    options = [f"--node-pool={corner.pool}", f"--name-prefix={prefix}", f"--cpu={cpu}"]
    agent = components.start_hollow_nodes(count, [*options, "--remove-on-exit"])
    await ready(agent)


async def run(corner: Corner, *gangs: Gang) -> None:
    """Submit `gangs` one after the other, and wait until each runs."""
    for gang in gangs:
        await corner.submit(gang)

        async def runs(gang: Gang = gang) -> bool:
            return all(pod.status.phase == "Running" for pod in await corner.pods(gang))

        await wait_for(runs, f"{gang.name} runs")


async def guard(corner: Corner, *gangs: Gang, may_go: int = 0) -> None:
    """Let only `may_go` of `gangs`, which run and are labelled so, be evicted; each is one pod."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": corner.namespace},
        "spec": {
            "minAvailable": len(gangs) - may_go,
            "selector": {"matchLabels": GUARDED},
        },
    }
    await corner.client.create(BUDGETS, body, corner.namespace)

    async def counted() -> bool:
        budget = await corner.client.get(BUDGETS, "budget", corner.namespace)
        status = budget.status
        return (status.current_healthy, status.disruptions_allowed) == (len(gangs), may_go)

    await wait_for(counted, "the budget is counted")


async def allow_all(corner: Corner, rule: Mapping[str, Any]) -> None:
    """Create a budget by whose words every guarded pod may be evicted; wait until it is counted."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": corner.namespace},
        "spec": {**rule, "selector": {"matchLabels": GUARDED}},
    }
    await corner.client.create(BUDGETS, body, corner.namespace)

    async def counted() -> bool:
        budget = await corner.client.get(BUDGETS, "budget", corner.namespace)
        return budget.status.observed_generation == budget.metadata.generation

    await wait_for(counted, "the budget is counted")


async def refusals(corner: Corner) -> list[Event]:
    return await wait_for(lambda: corner.events("EvictionRefused"), "the refusals are told")


def bound_at(pod: Pod) -> float:
    """Return when `pod` was bound: seconds since the epoch."""
    times = [
        c.last_transition_time for c in pod.status.conditions or () if c.type == "PodScheduled"
    ]
    return max(seconds(at) or 0 for at in times)


async def only_pod(corner: Corner, gang: Gang) -> Pod:
    [pod] = await corner.pods(gang)
    return pod


GUARDED = {"guarded": "yes"}
OF_BUDGET = "as it would violate the pod's disruption budget."
ONE_CPU: Mapping[str, Any] = {"resources": {"cpu": {"quota": "1", "overQuotaWeight": 1}}}


@pytest.fixture
async def queues(corner: Corner) -> tuple[str, str]:
    """Two queues that deserve one core each."""
    return await corner.add_queue("rich", ONE_CPU), await corner.add_queue("poor", ONE_CPU)


async def test_reclaim_evicts_another_victim_if_a_disruption_budget_protects_the_first(
    corner: Corner,
    observer: Observer,
    components: Components,
    scheduler: Component,
    queues: tuple[str, str],
) -> None:
    rich, poor = queues
    await start_nodes(corner, components, 1, cpu=2)
    # The last one that came goes first.
    free = Gang("free", size=1, queue=rich)
    guarded = Gang("guarded", size=1, queue=rich, labels=GUARDED)
    await run(corner, free, guarded)
    await guard(corner, guarded)
    claimant = Gang("claimant", size=1, queue=poor)
    refused_before = metric(scheduler, "bindery_evictions_total", outcome="refused")
    await corner.submit(claimant)

    await corner.wait_bound(claimant)
    assert (await only_pod(corner, guarded)).metadata.deletion_timestamp is None
    assert await corner.pods(free) == []
    refused = metric(scheduler, "bindery_evictions_total", outcome="refused") - refused_before
    assert refused == 1
    [event] = await wait_for(lambda: corner.events("EvictionRefused"), "the refusal is told")
    assert event.regarding["name"] == "guarded-0"
    assert "disruption budget" in event.note
    await keeps_the_trail(corner, free, claimant)
    evicted = metric(scheduler, "bindery_evicted_pods_total", action="reclaim", queue=rich)
    assert evicted == 1


async def keeps_the_trail(corner: Corner, gone: Gang, claimant: Gang) -> None:
    """Check that the PodGroup of `gone`, which was reclaimed whole, names its claimant."""
    reason = f"reclaim for {claimant.name} (queue {claimant.queue})"

    async def says_so() -> bool:
        status = (await corner.group(gone)).status
        said = {condition.type: condition for condition in status.conditions or ()}
        if status.state != "Evicted" or "Evicted" not in said:
            return False
        scheduled, evicted = said["Scheduled"], said["Evicted"]
        assert (scheduled.status, scheduled.reason) == ("False", "Evicted")
        assert (evicted.status, evicted.reason) == ("True", "Reclaim")
        assert evicted.message.startswith("1 pod was evicted at 20")
        return evicted.message.endswith(reason)

    await wait_for(says_so, f"{gone.name} says that it was evicted")

    async def told() -> bool:
        found = await corner.events("Evicted")
        notes = {(event.regarding["kind"], event.note) for event in found}
        return {("PodGroup", reason), ("Pod", reason)} <= notes

    await wait_for(told, "the eviction is an event at the gang and at the pod")


async def test_a_gang_with_only_protected_victims_reports_it_and_does_not_retry_constantly(
    corner: Corner,
    observer: Observer,
    components: Components,
    scheduler: Component,
    queues: tuple[str, str],
) -> None:
    rich, poor = queues
    await start_nodes(corner, components, 1, cpu=2)
    gangs = [Gang(f"guarded-{i}", size=1, queue=rich, labels=GUARDED) for i in range(2)]
    await run(corner, *gangs)
    await guard(corner, *gangs)
    claimant = Gang("claimant", size=1, queue=poor)
    refused_before = metric(scheduler, "bindery_evictions_total", outcome="refused")
    cycles_before = metric(scheduler, "bindery_cycle_seconds_count")
    await corner.submit(claimant)

    await corner.wait_pods_say(claimant, "would violate the pod's disruption budget")
    condition = await corner.wait_condition(claimant, "False", "Unschedulable")
    assert "insufficient cpu; no room was made: pod guarded-" in condition.message

    async def some_cycles_later() -> bool:
        return metric(scheduler, "bindery_cycle_seconds_count") >= cycles_before + 5

    await wait_for(some_cycles_later, "the scheduler has looked again")
    refused = metric(scheduler, "bindery_evictions_total", outcome="refused") - refused_before
    assert refused == len(gangs)
    assert [line for line in observer.story if line.startswith(("leaves", "nominated"))] == []

    told = max(event.metadata.creation_timestamp or "" for event in await refusals(corner))
    await corner.client.patch(
        BUDGETS, "budget", {"spec": {"minAvailable": 1}}, namespace=corner.namespace
    )
    await corner.wait_bound(claimant)
    bound = bound_at(await only_pod(corner, claimant))
    assert bound - (seconds(told) or 0) < SPARE_S, "it was not asked again because time has passed"


@pytest.mark.usefixtures("scheduler", "observer")
async def test_a_budget_with_min_available_0_permits_all_evictions(
    corner: Corner, components: Components
) -> None:
    await start_nodes(corner, components, 1, cpu=2)
    await run(corner, *(Gang(f"guarded-{i}", size=1, labels=GUARDED) for i in range(2)))
    await allow_all(corner, {"minAvailable": 0})
    claimant = Gang("claimant", size=2, group={"priorityClassName": "build-preemptible"})
    await corner.submit(claimant)

    await corner.wait_bound(claimant)
    assert await corner.events("EvictionRefused") == []


@pytest.mark.usefixtures("scheduler", "observer")
@pytest.mark.parametrize(
    ("rule", "is_ready", "said"),
    [
        ({"minAvailable": 0}, False, "budget needs 0 healthy pods and has 0 currently"),
        ({"maxUnavailable": "100%"}, True, "budget does not allow evicting pods currently"),
    ],
    ids=["pods that are not ready", "pods without a controller"],
)
async def test_an_unforeseen_eviction_refusal_is_reported_with_the_api_servers_message(
    corner: Corner,
    components: Components,
    rule: Mapping[str, Any],
    is_ready: bool,
    said: str,
) -> None:
    await start_nodes(corner, components, 1)
    guarded = Gang("guarded", size=1, labels=GUARDED)
    await run(corner, guarded)
    if not is_ready:
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        strategic = PatchKind.STRATEGIC
        name = (await only_pod(corner, guarded)).metadata.name
        await corner.client.patch(
            PODS, name, unready, namespace=corner.namespace, subresource="status", kind=strategic
        )
    await allow_all(corner, rule)
    claimant = Gang("claimant", size=1, group={"priorityClassName": "build-preemptible"})
    await corner.submit(claimant)

    await corner.wait_pods_say(
        claimant, f"pod guarded-0 is not evicted: Cannot evict pod {OF_BUDGET}"
    )
    condition = await corner.wait_condition(claimant, "False", "Unschedulable")
    assert said in condition.message
    [event] = await wait_for(lambda: corner.events("EvictionRefused"), "the refusal is told")
    assert said in event.note


@pytest.mark.usefixtures("scheduler")
async def test_a_plan_half_refused_by_a_budget_is_completed_with_another_victim(
    corner: Corner, observer: Observer, components: Components
) -> None:
    """Each of the protected pods may be evicted by itself, but not both."""
    rich = await corner.add_queue("rich", ONE_CPU)
    poor = await corner.add_queue("poor", {"resources": {"cpu": {"quota": "2"}}})
    await start_nodes(corner, components, 1, cpu=3)
    free = Gang("free", size=1, queue=rich)
    guarded = [Gang(f"guarded-{i}", size=1, queue=rich, labels=GUARDED) for i in range(2)]
    await run(corner, free, *guarded)
    await guard(corner, *guarded, may_go=1)
    claimant = Gang("claimant", size=2, queue=poor)
    await corner.submit(claimant)

    await corner.wait_bound(claimant)
    assert await corner.pods(free) == []
    assert sum([len(await corner.pods(gang)) for gang in guarded]) == 1
    assert sum(line.startswith("gone") for line in observer.story) == 2


@pytest.mark.usefixtures("scheduler")
async def test_a_preemptor_keeps_its_node_during_the_grace_period_of_its_victim(
    corner: Corner, observer: Observer, components: Components
) -> None:
    await start_nodes(corner, components, 2)
    low = [
        Gang(
            f"low-{index}",
            size=1,
            pod={"terminationGracePeriodSeconds": 30},
            annotations={STOP_SECONDS_ANNOTATION: str(SLOW_TO_STOP_S)},
        )
        for index in range(2)
    ]
    await run(corner, *low)
    high = Gang("high", size=1, group={"priorityClassName": "build-preemptible"})
    await corner.submit(high)

    async def nominated() -> str:
        return (await only_pod(corner, high)).status.nominated_node_name

    node = await wait_for(nominated, "high has a node that waits for it")
    await corner.wait_condition(high, "False", "WaitsForRelease")

    async def leaving() -> Pod | None:
        on_node = [await only_pod(corner, gang) for gang in low]
        [victim] = [pod for pod in on_node if pod.spec.node_name == node]
        return victim if victim.metadata.deletion_timestamp else None

    victim = await wait_for(leaving, "the pod on that node is being deleted")
    assert victim.metadata.deletion_grace_period_seconds == 30
    await corner.wait_bound(high)
    name = victim.metadata.name
    assert (await only_pod(corner, high)).spec.node_name == node
    assert [line for line in observer.story if not line.startswith("unnominated")][2:] == [
        "nominated high-0",  # another leader could go on from here
        f"leaves {name}",
        f"gone {name}",
        "bound high-0",
    ]


@pytest.mark.usefixtures("scheduler")
async def test_a_pod_of_a_deployment_is_moved_so_that_a_gang_fits(
    corner: Corner, observer: Observer
) -> None:
    small, large = await corner.add_nodes("small", cpu="3"), await corner.add_nodes("z", cpu="4")
    container = {
        "name": "server",
        "image": "server",
        "resources": {"requests": {"cpu": "2"}},
    }
    labels = {NODE_POOL_LABEL: corner.pool, "app": "server"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server", "namespace": corner.namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "server"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": "bindery",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                },
            },
        },
    }
    await corner.client.create(DEPLOYMENTS, body, corner.namespace)

    async def servers() -> list[str]:
        """Return the nodes of the servers once both have one."""
        pods = await corner.client.list(
            PODS, namespace=corner.namespace, label_selector="app=server"
        )
        nodes = [pod.spec.node_name for pod in pods]
        return sorted(nodes) if len(nodes) == 2 and all(nodes) else []

    assert await wait_for(servers, "the servers are bound") == sorted([*small, *large])
    big = Gang("big", size=1, cpu="3")
    await corner.submit(big)

    await corner.wait_bound(big)
    assert (await only_pod(corner, big)).spec.node_name == small[0]
    await wait_for(servers, "both servers are bound again")
    assert await servers() == [*large, *large]
    assert sum(line.startswith("gone server") for line in observer.story) == 1
    assert sum(line.startswith("bound server") for line in observer.story) == 3


Proxied = tuple[TrapProxy, Components]


@pytest.fixture
async def proxied(installation: Installation, tmp_path: Path) -> AsyncIterator[Proxied]:
    async with trapped(installation, "scheduler", tmp_path) as pair:
        yield pair


# A plan of two: both are asked for without effect, then evicted one after the other.
@pytest.mark.parametrize(
    ("at", "has_standby"),
    sample(
        1,
        [
            pytest.param(3, True, id="after-the-first-with-a-standby"),
            pytest.param(3, False, id="after-the-first"),
            pytest.param(4, False, id="after-the-last"),
        ],
    ),
)
async def test_a_gang_gets_its_room_after_the_scheduler_was_killed_during_evictions(
    corner: Corner, proxied: Proxied, components: Components, at: int, has_standby: bool
) -> None:
    proxy, schedulers = proxied
    own = replace(corner, pool=f"{corner.pool}-{at}{has_standby:d}")
    election = SHORT_LEASES if has_standby else NO_ELECTION
    configuration = scheduler_configuration(own.pool, leader_election=election)
    name = f"scheduler-{own.pool}"
    victim = await ready(schedulers.start_scheduler(configuration, name=name))
    if has_standby:
        await ready(components.start_scheduler(configuration, name=f"{name}-standby"))
    trap = proxy.set(Trap("POST", "/eviction", kill(victim), at=at, after=True))
    async with Observer(own).watch() as observer:
        await start_nodes(own, components, 3)
        slow = {STOP_SECONDS_ANNOTATION: str(SLOW_TO_STOP_S)}
        patient = {"terminationGracePeriodSeconds": 30}
        low = [Gang(f"low-{i}", size=1, pod=patient, annotations=slow) for i in range(3)]
        await run(own, *low)
        high = Gang("high", size=2, group={"priorityClassName": "build-preemptible"})
        await own.submit(high)
        await trap.wait()
        assert await own.bound_count(high) == 0

        if not has_standby:
            await ready(schedulers.start_scheduler(configuration, name=name))
        await own.wait_bound(high)
        await own.wait_nothing_left()
        leavers = [line for line in observer.story if line.startswith("leaves")]
        assert len(leavers) == 2, "nobody was evicted for nothing"
        observer.check()
    await own.clean()
