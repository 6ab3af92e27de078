"""How long a node's decisions take, and their prediction for many nodes.

Run by `__main__`, or alone: `python -m benchmarks.nodedecisions`. Nothing here starts a process.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.nodeworlds import Pods, admit, managers, pod, zones_of_node
from bindery.nodecore.pods import Pod
from bindery.nodecore.prediction import vectors
from bindery.nodecore.prediction.arrays import stack
from bindery.nodecore.prediction.requests import request_of
from bindery.nodecore.topology import policies

RUNS: Final = 5
_CALLS: Final = 40
"""Calls in a run; the run counts with its mean."""

NODES: Final = 5000
_MOST_ZONES: Final = 8

MERGE_MS: Final = 5.0
ADMISSION_MS: Final = 2.0
PREDICTION_MS: Final = 20.0

BEST: Final = policies.BEST_EFFORT
RESTRICTED: Final = policies.RESTRICTED
SINGLE: Final = policies.SINGLE_NUMA_NODE

ASKING: Final = {
    "one zone": pod("asking", cpus=8, devices=2),
    "two zones": pod("asking", cpus=40, devices=5, memory_gib=80),
    "no preferred choice": pod("asking", cpus=40, devices=3),
}
"""What a pod needs on a machine with 32 CPUs and four devices of each kind in a zone."""


@dataclass(frozen=True)
class Sample:
    """The time of one decision.

    Attributes:
        name: what is decided.
        milliseconds: median of the runs.
        bar_ms: what it is to stay below.
    """

    name: str
    milliseconds: float
    bar_ms: float


def samples() -> Iterator[Sample]:
    """Yield the samples."""
    for what, asking in ASKING.items():
        yield Sample(f"topology merge, 8 zones, {what}", _median_ms(_merging(asking)), MERGE_MS)
    for zones, policy in ((2, SINGLE), (_MOST_ZONES, SINGLE), (_MOST_ZONES, BEST)):
        name = f"admission, {zones} zones, {policy}"
        yield Sample(name, _admission_ms(zones, policy), ADMISSION_MS)
    for zones, policy, what in (
        (2, SINGLE, "one zone"),
        (_MOST_ZONES, SINGLE, "one zone"),
        (_MOST_ZONES, RESTRICTED, "two zones"),
        (_MOST_ZONES, BEST, "no preferred choice"),
    ):
        name = f"prediction for {NODES} nodes, {zones} zones, {policy}, {what}"
        yield Sample(name, _median_ms(_predicting(zones, policy, ASKING[what])), PREDICTION_MS)


def _merging(asking: Pod) -> Callable[[], object]:
    """Return the merge of the hints of a node on which pods of all sizes run."""
    pods = Pods()
    of = managers(_MOST_ZONES, BEST, pods)
    for number in range(10):
        one = pod(f"pod-{number}", cpus=2 + number, devices=number % 3)
        pods.pods.append(one)
        admit(of, one)
    providers = of.devices, of.cpu, of.memory
    hints = [provider.container_hints(asking, asking.containers[0]) for provider in providers]
    return lambda: of.topology.merged(hints)


def _admission_ms(zones: int, policy: str) -> float:
    """Return the median time to admit a pod on a node that fills up."""
    times = []
    for _ in range(RUNS):
        pods = Pods()
        of = managers(zones, policy, pods)
        each = []
        for number in range(zones * 4):
            asking = pod(f"pod-{number}")
            pods.pods.append(asking)
            start = time.perf_counter()
            if not admit(of, asking):
                raise RuntimeError(f"{asking.uid} does not fit")
            each.append(time.perf_counter() - start)
        times.append(sum(each) / len(each))
    return median(times) * 1000


def _predicting(zones: int, policy: str, asking: Pod) -> Callable[[], object]:
    arrays = stack([zones_of_node(zones, policy, node) for node in range(NODES)])
    request = request_of(asking)
    if not vectors.predict(arrays, request).admit.any():
        raise RuntimeError("no node admits the pod")
    return lambda: vectors.predict(arrays, request)


def _median_ms(call: Callable[[], object]) -> float:
    call()
    times = []
    gc.collect()
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(_CALLS):
            call()
        times.append((time.perf_counter() - start) / _CALLS)
    return median(times) * 1000


def main() -> None:
    """Print the samples."""
    for sample in samples():
        verdict = "" if sample.milliseconds <= sample.bar_ms else "  MISSED"
        print(f"{sample.name}: {sample.milliseconds:.2f} ms, below {sample.bar_ms:g}{verdict}")


if __name__ == "__main__":
    main()
