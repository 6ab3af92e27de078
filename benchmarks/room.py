"""Making room and dividing shares, in memory: how long a cycle takes, and how that grows.

Run by `__main__`. Each case is timed at each size in a process of its own, after a small world that
is not counted, so that its peak memory is its own. What is timed is one whole cycle of the engine,
as in `planning`. Every cycle must have done what is right in its world, or the benchmark fails.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from typing import Final

from benchmarks import deviceworlds, queuetrees, roomworlds, ruleworlds, topologyworlds
from benchmarks.roomworlds import Outcome, World
from benchmarks.usage import Usage
from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.watches.store import Change, EventType
from bindery.observability.interpreter import collect_rarely
from bindery.scheduler.engine import Engine
from bindery.scheduler.fairness.division import fair_shares
from bindery.scheduler.model.jobs import TaskStatus

SIZES: Final = (125, 250, 500, 1000, 2000, 4000)
"""Nodes, or queues, at which each case is measured."""
_WARM_UP: Final = 50
"""The size that is not counted."""
_DIVISIONS: Final = 20
"""A division takes milliseconds: so many are timed together."""


@dataclass(frozen=True)
class Lap:
    """How long one run took."""

    wall_s: float
    cpu_s: float

    def divided(self, parts: int) -> "Lap":
        """Return the time of one of so many equal parts."""
        return Lap(self.wall_s / parts, self.cpu_s / parts)


@dataclass(frozen=True)
class Case:
    """What is timed."""

    name: str
    run: Callable[[int], Lap]
    """Runs it once at a size. Raises RuntimeError if what it did is not right."""
    bar_s: float
    """Wall seconds to stay below at the size `bar_at`."""
    bar_at: int
    published: str = ""
    """The figure that KAI-Scheduler or another scheduler publishes for the same case."""
    sizes: Sequence[int] = SIZES
    """At which it is measured."""
    unit: str = "nodes"
    """Of the size."""


@dataclass(frozen=True)
class Sample:
    """Medians of some laps of one case at one size."""

    case: str
    size: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    """The most memory the process has held, the making of the world included."""


def cycle_in(world: World) -> Lap:
    """Return how long a cycle takes in `world`.

    Raises:
        RuntimeError: it did not do what is right there.
    """
    engine = Engine(SchedulerConfiguration(), time.time)
    for item in world.objects:
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    bound = sum(len(draft.tasks) for draft in engine.cycle())
    lap = Lap(time.perf_counter() - wall_s, time.process_time() - cpu_s)
    evictions = engine.report.evictions
    pods = [pod for job in engine.report.jobs.values() for pod in job.pods.values()]
    done = Outcome(
        evicted=len(evictions),
        moved=sum(bool(eviction.moves_to) for eviction in evictions),
        promised=sum(pod.state == TaskStatus.PIPELINED.value for pod in pods),
        bound=bound,
    )
    if done != world.expected:
        raise RuntimeError(f"{world.expected} was to be done, and this was: {done}")
    return lap


def division_of(queues: int) -> Lap:
    """Return how long the division of a cluster among `queues` takes.

    Raises:
        RuntimeError: the shares are not right.
    """
    of = queuetrees.four_levels(queues)
    gc.collect()
    walls_s, cpu_s = [], time.process_time()
    for _ in range(_DIVISIONS):
        wall_s = time.perf_counter()
        share = fair_shares(of.tree, of.demand, of.total, of.unit, of.k_value)
        walls_s.append(time.perf_counter() - wall_s)
    lap = Lap(median(walls_s), (time.process_time() - cpu_s) / _DIVISIONS)
    if not queuetrees.is_right(of, share):
        raise RuntimeError(f"the shares of {queues} queues are not right")
    return lap


def _cycle(
    name: str, world: Callable[[int], World], bar_s: float, published: str = "", bar_at: int = 500
) -> Case:
    """Return the case of one cycle in the `world` of so many nodes."""
    sizes = SIZES if bar_at in SIZES else (*SIZES, bar_at)
    return Case(
        name,
        lambda nodes: cycle_in(world(nodes)),
        bar_s,
        bar_at=bar_at,
        published=published,
        sizes=sizes,
    )


CASES: Final = (
    _cycle("full cycle with reclaim", roomworlds.full_of_single_jobs, 5.0, "59.3 s"),
    _cycle(
        "does not fit: a pinned pod on every node", roomworlds.pinned_on_every_node, 0.2, "249.5 s"
    ),
    _cycle(
        "does not fit: only half may be reclaimed", roomworlds.half_of_it_may_go, 0.2, "249.5 s"
    ),
    _cycle("reclaim for one large gang", roomworlds.large_gang, 3.0, "102 s"),
    _cycle("consolidation for gangs of ten", roomworlds.scattered, 20.0, "456 s"),
    _cycle("gang in one rack", topologyworlds.gang_in_one_rack, 0.15, "48.7 s"),
    _cycle(
        "sub-groups over HyperNodes",
        topologyworlds.sub_groups_over_hyper_nodes,
        2.0,
        bar_at=1000,
    ),
    _cycle(
        "one gang among HyperNodes",
        topologyworlds.one_gang_among_hyper_nodes,
        2.0,
        "Volcano: 330 s",
        bar_at=6000,
    ),
    _cycle("two pods a node, apart and spread", ruleworlds.apart_and_spread, 5.0, bar_at=5000),
    _cycle("reclaim in one rack", topologyworlds.reclaim_in_one_rack, 3.0),
    _cycle(
        "four pods a node with parts of GPUs by HAMi", deviceworlds.parts_of_gpus, 5.0, bar_at=1000
    ),
    Case(
        "a gang of three on 5,000 nodes",
        lambda gangs: cycle_in(roomworlds.gangs_of_three(gangs)).divided(gangs),
        bar_s=0.002,
        bar_at=3000,
        published="kube-scheduler: 5.7 ms; 3.7 at 1,000, 5.0 at 2,000",
        sizes=(1000, 2000, 3000),
        unit="gangs",
    ),
    Case("fair-share division", division_of, bar_s=0.01, bar_at=1000, unit="queues"),
)
"""What is measured, in the order of the tables. At 500 nodes: 4,000 GPUs; 4,000 jobs run and 4,000
wait; 80 GPUs do not fit; 2,000 GPUs for 250 pods; 41 gangs with 410 pods; 512 pods in a rack of 64
nodes; room for 16 whole nodes in a rack of 32. At 1,000 nodes: 1,000 pods in 100 sub-groups, each
in a HyperNode of ten nodes; 4,000 pods on 8,000 shared GPUs. At 6,000 nodes: a gang of 100 nodes
among 9,600 HyperNodes."""


def samples(runs: int) -> Iterator[Sample]:
    """Measure every case at every size; yield each as soon as it is known."""
    for case in CASES:
        for size in case.sizes:
            context = get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as process:
                yield process.submit(sample, case.name, size, runs).result()


def sample(name: str, size: int, runs: int) -> Sample:
    """Measure the case `name` in this process."""
    collect_rarely()
    case = next(case for case in CASES if case.name == name)
    case.run(_WARM_UP)
    laps = [case.run(size) for _ in range(runs)]
    return Sample(
        case=name,
        size=size,
        wall_s=median(lap.wall_s for lap in laps),
        cpu_s=median(lap.cpu_s for lap in laps),
        peak_mb=Usage.own().peak_mb,
    )
