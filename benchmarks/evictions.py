"""Evictions under disruption budgets, through the Eviction API of a real API server.

`python -m benchmarks.evictions` measures by itself; it is no part of `make bench`. Each lap evicts
pods that were created for it: by bare calls one after the other, which is what the API server takes
where all count against one budget, and by the scheduler's evictor. Nobody runs the pods: they say
that they are ready, and stay in deletion once they are evicted.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.cluster import NAMESPACE, Cluster, open_cluster
from benchmarks.workload import Wire, node_name
from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.objects.budgets import DISRUPTION_BUDGETS
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.store import Change, EventType
from bindery.observability import logs
from bindery.scheduler.cache.budgets import Budgets
from bindery.scheduler.cache.cluster import Cluster as Cache
from bindery.scheduler.commit.evictor import Evictor
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey

_AT_ONCE: Final = 16
_COUNT_S: Final = 120.0
_LOOK_S: Final = 0.2

Evict = Callable[[Client, Cache], Awaitable[None]]


@dataclass(frozen=True)
class Lap:
    """What is measured."""

    name: str
    budgets: int
    """How many budgets cover the pods, each as many as the others."""
    evict: Evict


async def bare(client: Client, cache: Cache) -> None:
    """Evict all pods one after the other."""
    for task in tuple(cache.state.tasks.values()):
        await client.evict(task.namespace, task.name, task.uid)


def by_evictor(*, plans: bool = False, knows_budgets: bool = True) -> Evict:
    """Return how the evictor does it. `plans`: each pod is a plan of its own."""

    async def evict(client: Client, cache: Cache) -> None:
        evictor = Evictor(
            client,
            EventRecorder(client, "benchmark"),
            lambda: None,
            cache.budgets if knows_budgets else Budgets(lambda _task: None),
        )
        evictor.submit(
            [
                Eviction(task, "benchmark", JobKey(NAMESPACE, str(i if plans else 0), True))
                for i, task in enumerate(cache.state.tasks.values())
            ]
        )
        await evictor.drain()
        if evictor.refused:
            raise RuntimeError(f"refused: {evictor.refused[0].problem}")

    return evict


LAPS: Final = (
    Lap("one budget, bare calls one after the other", 1, bare),
    Lap("one budget, evictor, one plan", 1, by_evictor()),
    Lap("one budget, evictor, a plan a pod", 1, by_evictor(plans=True)),
    Lap("ten budgets, evictor, one plan", 10, by_evictor()),
    Lap("no budget, evictor, one plan", 0, by_evictor()),
    Lap("one budget that is not known, evictor, one plan", 1, by_evictor(knows_budgets=False)),
)


def _pod(lap: int, number: int, budgets: int) -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"lap{lap}-{number}",
            "namespace": NAMESPACE,
            "labels": {"budget": f"lap{lap}-{number % budgets if budgets else 'none'}"},
        },
        "spec": {
            "schedulerName": "bindery",
            "nodeName": node_name(0),
            "containers": [{"name": "worker", "image": "worker"}],
        },
    }


def _budget(lap: int, number: int) -> Wire:
    name = f"lap{lap}-{number}"
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"budget": name}}},
    }


async def prepare(cluster: Cluster, number: int, lap: Lap, pods: int) -> Cache:
    """Create the pods of a lap and its budgets; return a cache that knows them once they count."""
    client, cache = cluster.client, Cache(SchedulerConfiguration(), time.time)
    names = [f"lap{number}-{i}" for i in range(lap.budgets)]
    await cluster.create_all(
        DISRUPTION_BUDGETS, (_budget(number, i) for i in range(lap.budgets)), NAMESPACE
    )
    await cluster.create_all(PODS, (_pod(number, i, lap.budgets) for i in range(pods)), NAMESPACE)
    slots = asyncio.Semaphore(_AT_ONCE)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    async def run(name: str) -> Pod:
        async with slots:
            return await client.patch(
                PODS, name, {"status": status}, namespace=NAMESPACE, subresource="status"
            )

    for pod in await asyncio.gather(*(run(f"lap{number}-{i}") for i in range(pods))):
        cache.apply(Change(EventType.ADDED, pod, None))
    async with asyncio.timeout(_COUNT_S):
        for name in names:
            wanted = sum(i % lap.budgets == names.index(name) for i in range(pods))
            while True:
                budget = await client.get(DISRUPTION_BUDGETS, name, NAMESPACE)
                if budget.status.disruptions_allowed >= wanted:
                    break
                await asyncio.sleep(_LOOK_S)
            cache.apply(Change(EventType.ADDED, budget, None))
    return cache


async def measure(pods: int) -> None:
    """Run all laps; print each as soon as it is known."""
    with tempfile.TemporaryDirectory() as directory:
        async with open_cluster(Path(directory), 1, lambda text: typer.echo(text, err=True)) as it:
            for number, lap in enumerate(LAPS):
                cache = await prepare(it, number, lap, pods)
                started_s, load = time.perf_counter(), os.getloadavg()[0]
                await lap.evict(it.client, cache)
                passed_s = time.perf_counter() - started_s
                typer.echo(f"{lap.name}: {passed_s:.1f} s for {pods} pods, load {load:.1f}")


def main(
    pods: Annotated[int, typer.Option(help="How many pods each lap evicts.")] = 250,
) -> None:
    """Measure evictions under disruption budgets."""
    logs.configure("benchmark", "warning")
    asyncio.run(measure(pods))


if __name__ == "__main__":
    typer.run(main)
