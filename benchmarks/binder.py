"""The rounds in which the binder is measured without a scheduler.

Run by `__main__`, on a control plane of their own. In each round every kind of lap has its turn, in
an order that rotates, so that what else the machine does meets all of them alike.
"""

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import binding, commits
from benchmarks.binding import BinderAlone
from benchmarks.bindingworlds import (
    Devices,
    HamiDevices,
    SharedGpus,
    StaticVolumes,
    World,
)
from benchmarks.cluster import SETTLE_S, Cluster, open_cluster
from benchmarks.commits import Commits, Delays
from benchmarks.contenders import BareClient, BareWrites
from benchmarks.races import Lap, Standing
from benchmarks.workload import Wire
from devcluster.build import Report
from fakes.haminodes import HamiDevicePlugins, Prompt

PLAIN: Final = "binder/plain"
BARE: Final = "binder/bare-client"
FEW_BARE: Final = "binder/bare-client-few"
HAND_OVERS: Final = "binder/hand-overs"
HANDSHAKES: Final = "binder/handshakes"
IDLE: Final = "binder/idle"
WAITING: Final = "binder/waiting"
WITH_PLUGINS: Final = {
    "volumes": "binder/volumes",
    "dra": "binder/dra",
    "gpusharing": "binder/gpusharing",
    "hami": "binder/hami",
}
"""Plugin -> the laps whose pods need it."""
PODS_OF_A_LOCKED_NODE: Final = 5


@dataclass(frozen=True)
class Sizes:
    """How large the laps are."""

    nodes: int
    pods: int
    """Without plugins."""
    gang_size: int
    runs: int
    locked: int = 200
    """Pods for one node."""
    commits: int = 300
    """Gangs whose way from commit to bound is timed."""
    waiting: int = 200
    """Requests that wait for volumes meanwhile."""
    settle_s: float = SETTLE_S
    """How long a lap waits before and after its measurement."""

    @property
    def plugin_pods(self) -> int:
        """Pods with each plugin: their claims, volumes and reservations take longer to make."""
        return max(self.gang_size, self.pods // 5 // self.gang_size * self.gang_size)


@dataclass
class Found:
    """What was measured."""

    laps: dict[str, list[Lap]] = field(default_factory=dict)
    delays: dict[str, list[Delays]] = field(default_factory=dict)

    @property
    def standings(self) -> dict[str, Standing]:
        """The laps of each kind, together."""
        return {name: Standing(tuple(laps)) for name, laps in self.laps.items()}


class Rounds:
    """All that there is to measure, by name."""

    def __init__(self, sizes: Sizes, report: Report, profiles: Path | None) -> None:
        """Measure nothing yet."""
        self._sizes, self._report, self._profiles = sizes, report, profiles
        self._found = Found()

    async def run(self, wants: Callable[[str], bool]) -> Found:
        """Measure what is wanted."""
        every = {name: turn for name, turn in self._turns().items() if wants(name)}
        if not every:
            return self._found
        with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
            sizes, place = self._sizes, Path(directory)
            opened = open_cluster(place, sizes.nodes, self._report, sizes.settle_s)
            async with opened as cluster:
                self._report("warming up, not counted")
                await self._turns()[BARE](cluster)
                self._found = Found()
                names = list(every)
                for number in range(self._sizes.runs):
                    start = number % len(names)
                    for name in [*names[start:], *names[:start]]:
                        self._report(f"round {number + 1} of {self._sizes.runs}, {name}")
                        await every[name](cluster)
        return self._found

    def _turns(self) -> dict[str, Callable[[Cluster], Awaitable[None]]]:
        sizes = self._sizes
        nodes = max(1, sizes.plugin_pods // PODS_OF_A_LOCKED_NODE)
        worlds: dict[str, tuple[World, int]] = {
            PLAIN: (World(), sizes.pods),
            WITH_PLUGINS["volumes"]: (StaticVolumes(), sizes.plugin_pods),
            WITH_PLUGINS["dra"]: (Devices(), sizes.plugin_pods),
            WITH_PLUGINS["gpusharing"]: (SharedGpus(), sizes.plugin_pods),
            WITH_PLUGINS["hami"]: (HamiDevices(nodes, HamiDevicePlugins), sizes.plugin_pods),
            HAND_OVERS: (HamiDevices(1, Prompt), sizes.locked),
            HANDSHAKES: (HamiDevices(1, HamiDevicePlugins), sizes.locked),
        }
        turns = {
            name: partial(self._bind, name, world, self._binder, count)
            for name, (world, count) in worlds.items()
        }
        for name, count in ((BARE, sizes.pods), (FEW_BARE, sizes.plugin_pods)):
            turns[name] = partial(self._bind, name, World(), _bare_client, count)
        idle = Commits(sizes.commits, sizes.gang_size)
        delays = {
            IDLE: idle,
            WAITING: replace(idle, waiting=sizes.waiting),
        }
        return {
            **turns,
            **{name: partial(self._commit, name, wanted) for name, wanted in delays.items()},
        }

    async def _bind(
        self,
        name: str,
        world: World,
        make: binding.Make,
        count: int,
        cluster: Cluster,
    ) -> None:
        lap = await binding.lap(cluster, world, make, count, self._sizes.gang_size)
        self._found.laps.setdefault(name, []).append(lap)
        self._report(
            f"{lap.pods} pods in {lap.all_bound_s:.1f} s, {lap.pods_per_second:,.0f} pods/s"
        )

    async def _commit(self, name: str, wanted: Commits, cluster: Cluster) -> None:
        delays = await commits.lap(cluster, wanted)
        self._found.delays.setdefault(name, []).append(delays)
        self._report(f"bound after {delays.p50_s:.3f} s (p50), {delays.p99_s:.3f} s (p99)")

    def _binder(self, requests: Sequence[Wire]) -> BinderAlone:
        return BinderAlone(requests, profiles=self._profiles)


def _bare_client(requests: Sequence[Wire]) -> BareClient:
    return BareClient(BareWrites(requests=requests))
