"""From commit to bound: how long a gang's BindRequest takes while others wait for their volumes.

Used by `binder`. Gangs' requests are created one after another at a steady pace that leaves the
machine room, so that what is measured is the binder's own time and not a queue. Beside them nothing
happens, or so many requests wait for volumes that nobody makes; both are measured the same way.
"""

import asyncio
import time
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

from benchmarks import binding
from benchmarks.binding import BinderAlone
from benchmarks.bindingworlds import UnansweredVolumes, World
from benchmarks.cluster import NAMESPACE, Cluster
from benchmarks.witness import Witness
from benchmarks.workload import Wire
from bindery.api.configuration import BinderConfiguration, PluginConfiguration
from bindery.binder.plugins.volumes.writes import SELECTED_NODE
from bindery.kube.objects.resources import BIND_REQUESTS
from bindery.kube.objects.storage import CLAIMS

_PER_SECOND: Final = 8.0
"""Requests a second: about a sixth of what the binder carries out on two cores."""
_LONG_S: Final = 3600.0
"""A deadline for volumes that no lap lives to see."""
_WAIT_S: Final = 180.0


@dataclass(frozen=True)
class Commits:
    """What is committed."""

    gangs: int
    gang_size: int
    waiting: int = 0
    """Requests of one pod that wait for a volume meanwhile."""


@dataclass(frozen=True)
class Delays:
    """From the sending of the requests to the last pod of each with a node, seconds."""

    seconds: tuple[float, ...]

    @property
    def p50_s(self) -> float:
        """The median."""
        return quantiles(self.seconds, n=100, method="inclusive")[49]

    @property
    def p99_s(self) -> float:
        """The time that one in a hundred takes or surpasses."""
        return quantiles(self.seconds, n=100, method="inclusive")[98]


async def lap(cluster: Cluster, commits: Commits) -> Delays:
    """Measure on an empty cluster, and leave it empty."""
    stuck, plain = UnansweredVolumes(), World()
    await stuck.furnish(cluster, commits.waiting)
    waiting = await binding.create_pods(cluster, stuck, commits.waiting, "waiting")
    handed_over = await stuck.handed_over(cluster, waiting)
    pods = await binding.create_pods(cluster, plain, commits.gangs * commits.gang_size)
    nothing = await plain.handed_over(cluster, pods)
    gangs = list(binding.bind_requests(pods, nothing, commits.gang_size))
    witness = Witness(cluster.client, NAMESPACE, len(pods))
    watching = asyncio.create_task(witness.run())
    stuck_requests = list(binding.bind_requests(waiting, handed_over, 1))
    binder = BinderAlone(stuck_requests, configuration=_patient(cluster))
    try:
        await witness.prepare()
        await binder.prepare(cluster)
        await binder.start(cluster)
        await _until_waiting(cluster, commits.waiting)
        await cluster.settle()
        sent_s = await _commit_steadily(cluster, gangs)
        await witness.see_all(_WAIT_S)
        delays = _delays(gangs, sent_s, witness)
        await _until_waiting(cluster, commits.waiting)
    finally:
        watching.cancel()
        await asyncio.to_thread(binder.stop)
    await cluster.clear(stuck.left_behind)
    return delays


def _patient(cluster: Cluster) -> BinderConfiguration:
    """Return the chart's configuration with a deadline for volumes that is not reached."""
    configuration = cluster.installation.binder_configuration
    arguments = {"bindTimeoutSeconds": _LONG_S}
    plugins = tuple(
        PluginConfiguration(name=each.name, arguments=arguments) if each.name == "volumes" else each
        for each in configuration.plugins
    )
    return configuration.model_copy(update={"plugins": plugins})


async def _until_waiting(cluster: Cluster, count: int) -> None:
    """Wait until the binder waits for the volumes of `count` claims, and for no fewer.

    Raises:
        TimeoutError: it does not.
    """
    async with asyncio.timeout(_WAIT_S):
        while True:
            claims = await cluster.client.list(CLAIMS, namespace=NAMESPACE)
            if sum(SELECTED_NODE in claim.metadata.annotations for claim in claims) == count:
                return
            await asyncio.sleep(0.5)


async def _commit_steadily(cluster: Cluster, gangs: list[Wire]) -> dict[str, float]:
    """Create the requests at their pace, however slow; return when each was sent."""
    sent_s: dict[str, float] = {}
    begun_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, gang in enumerate(gangs):
            await asyncio.sleep(begun_s + number / _PER_SECOND - time.monotonic())
            sent_s[gang["metadata"]["name"]] = time.monotonic()
            group.create_task(cluster.client.create(BIND_REQUESTS, gang, NAMESPACE))
    return sent_s


def _delays(gangs: list[Wire], sent_s: dict[str, float], witness: Witness) -> Delays:
    return Delays(
        tuple(
            max(witness.seen_s[pod["podName"]] for pod in _pods_of(gang))
            - sent_s[gang["metadata"]["name"]]
            for gang in gangs
        )
    )


def _pods_of(request: Wire) -> list[Wire]:
    spec = request["spec"]
    return [pod for statement in spec["statements"] for pod in statement["pods"]]
