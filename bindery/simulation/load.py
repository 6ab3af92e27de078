"""Change the load of a trace: how much its jobs request at once, as a share of the GPUs.

Pure; a seed gives the same trace each time. A trace without GPUs cannot be changed.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.api.times import timestamp
from bindery.kube.objects.watched import Meta, Pod
from bindery.simulation.trace import Arrival, Trace, TraceError

_STEPS: Final = 60
"""Bisections: more than the digits of a float."""
_LARGEST: Final = 2.0**40
"""The largest factor that is tried."""
_SPARE: Final = 1.05
"""How much the jobs must request together, as a multiple of the load at the busiest time."""


def compressed(trace: Trace, load: float, seed: int) -> Trace:
    """Return `trace` with its arrival times multiplied by one factor, so that its peak is `load`.

    The peak is the largest number of GPUs that jobs request at once if each starts when it arrives,
    as a share of the cluster's GPUs. If all jobs together request less, jobs are drawn again.

    Raises:
        TraceError: the trace has no GPUs, or jobs without an end that request too many.
    """
    _demand_gpus(trace)
    wanted = load * trace.capacity_gpus
    chosen = random.Random(seed)  # noqa: S311  # no secret
    span_s = max(arrival.at_s for arrival in trace.arrivals)
    arrivals = list(trace.arrivals)
    total = trace.requested_gpus
    while total < wanted * _SPARE:
        again = _copy(chosen.choice(trace.arrivals), len(arrivals))
        arrivals.append(replace(again, at_s=chosen.uniform(0.0, span_s)))
        total += again.gpus
    low, high = 0.0, 1.0
    while peak_gpus(arrivals, high) > wanted:
        low, high = high, high * 2
        if high > _LARGEST:
            raise TraceError(f"{trace.name}: its jobs never request less than {load:g} of the GPUs")
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if peak_gpus(arrivals, middle) > wanted else (low, middle)
    return replace(trace, arrivals=_at_times(trace, [(a, a.at_s * high) for a in arrivals]))


def packed(trace: Trace, load: float | None, seed: int) -> Trace:
    """Return `trace` with jobs that never end and arrive one a second.

    Without `load` they arrive in the order of the trace. With it, they are shuffled, and cut or
    drawn again until they request `load` times the GPUs of the cluster.

    Raises:
        TraceError: there is a `load`, and the trace has no GPUs.
    """
    arrivals = [replace(arrival, runtime_s=math.inf) for arrival in trace.arrivals]
    if load is not None:
        _demand_gpus(trace)
        chosen = random.Random(seed)  # noqa: S311  # no secret
        chosen.shuffle(arrivals)
        arrivals = _until(arrivals, load * trace.capacity_gpus, chosen)
    timed = [(arrival, float(number)) for number, arrival in enumerate(arrivals)]
    return replace(trace, arrivals=_at_times(trace, timed))


def _until(shuffled: Sequence[Arrival], most: float, chosen: random.Random) -> list[Arrival]:
    """Return the first of `shuffled`, then draws, up to `most` GPUs."""
    found: list[Arrival] = []
    total = 0.0
    while True:
        number = len(found)
        if number < len(shuffled):
            arrival = shuffled[number]
        else:
            arrival = _copy(chosen.choice(shuffled), number)
        if total + arrival.gpus > most:
            return found
        found.append(arrival)
        total += arrival.gpus


def peak_gpus(arrivals: Sequence[Arrival], factor: float = 1.0) -> float:
    """Return the largest number of GPUs requested at once if each job starts when it arrives.

    `factor`: multiplies the times of arrival.
    """
    changes: list[tuple[float, float]] = []
    for arrival in arrivals:
        at_s = arrival.at_s * factor
        changes.append((at_s, arrival.gpus))
        changes.append((at_s + arrival.runtime_s, -arrival.gpus))
    now = peak = 0.0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak


def _demand_gpus(trace: Trace) -> None:
    if not trace.capacity_gpus or not trace.requested_gpus:
        missing = "jobs" if trace.capacity_gpus else "nodes"
        raise TraceError(f"{trace.name}: a load needs GPUs, and its {missing} have none")


def _at_times(trace: Trace, timed: Sequence[tuple[Arrival, float]]) -> tuple[Arrival, ...]:
    moved = [_moved(arrival, at_s, trace.start_s) for arrival, at_s in timed]
    return tuple(sorted(moved, key=lambda arrival: arrival.at_s))


def _moved(arrival: Arrival, at_s: float, start_s: float) -> Arrival:
    created = timestamp(start_s + at_s)

    def at(meta: Meta) -> Meta:
        return msgspec.structs.replace(meta, creation_timestamp=created)

    group = arrival.group
    if group is not None:
        group = msgspec.structs.replace(group, metadata=at(group.metadata))
    pods = tuple(msgspec.structs.replace(pod, metadata=at(pod.metadata)) for pod in arrival.pods)
    return replace(arrival, at_s=at_s, pods=pods, group=group)


def _copy(arrival: Arrival, number: int) -> Arrival:
    """Return `arrival` once more, with names and UIDs of its own."""
    end = f"-again-{number}"

    def own(meta: Meta) -> Meta:
        return msgspec.structs.replace(meta, name=meta.name + end, uid=meta.uid + end)

    def own_pod(pod: Pod) -> Pod:
        meta = own(pod.metadata)
        if arrival.group is not None:
            annotations = {
                **meta.annotations,
                POD_GROUP_ANNOTATION: arrival.group.metadata.name + end,
            }
            meta = msgspec.structs.replace(meta, annotations=annotations)
        return msgspec.structs.replace(pod, metadata=meta)

    group = arrival.group
    if group is not None:
        group = msgspec.structs.replace(group, metadata=own(group.metadata))
    return replace(arrival, pods=tuple(own_pod(pod) for pod in arrival.pods), group=group)
