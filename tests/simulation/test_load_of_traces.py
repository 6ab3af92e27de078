"""The load of a trace, and its effect on the times and the number of jobs."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.simulation.load import compressed, packed, peak_gpus
from bindery.simulation.openb import read_trace
from bindery.simulation.trace import Arrival, Trace, TraceError
from tests.simulation.tracefiles import TINY, task, write_trace

FOUR_GPUS = "n,64000,65536,4,A10\n"


def sparse(folder: Path) -> Trace:
    """Return a trace of ten jobs with one GPU each, which run one after another."""
    rows = [task(f"t{n}", at=100 * n, until=100 * n + 50) for n in range(10)]
    return read_trace(write_trace(folder, FOUR_GPUS, "".join(rows)))


def test_a_job_counts_from_its_arrival_to_its_end() -> None:
    arrivals = [Arrival(0.0, (), runtime_s=10.0, gpus=2.0), Arrival(9.0, (), gpus=1.0)]

    assert peak_gpus(arrivals) == 3.0
    assert peak_gpus(arrivals, factor=2.0) == 2.0


@pytest.mark.parametrize("load", [0.25, 0.5, 1.0, 2.5])
def test_the_peak_of_requested_gpus_is_the_load(tmp_path: Path, load: float) -> None:
    trace = sparse(tmp_path)

    assert peak_gpus(compressed(trace, load, seed=1).arrivals) == load * trace.capacity_gpus


def test_jobs_are_duplicated_if_all_of_them_request_too_little(tmp_path: Path) -> None:
    trace = compressed(sparse(tmp_path), 5.0, seed=1)

    names = [pod.metadata.name for arrival in trace.arrivals for pod in arrival.pods]
    assert len(names) == len(set(names)) > 10
    assert peak_gpus(trace.arrivals) == 20.0


def test_jobs_without_an_end_cannot_be_spread_over_time(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, FOUR_GPUS, task("a") + task("b", at=5)))

    with pytest.raises(TraceError, match=r"never request less than 0\.25 of the GPUs"):
        compressed(trace, 0.25, seed=1)


def test_a_trace_without_gpus_has_no_load(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "n,8000,8192,0,\n", task("a", gpus=0)))

    with pytest.raises(TraceError, match="its nodes have none"):
        compressed(trace, 0.5, seed=1)


def test_jobs_for_packing_never_end_and_keep_their_order() -> None:
    trace = packed(read_trace(TINY), None, seed=1)

    assert [arrival.pods[0].metadata.name for arrival in trace.arrivals] == [
        *("train-0", "notebook", "probe", "report")
    ]
    assert {arrival.runtime_s for arrival in trace.arrivals} == {math.inf}
    assert [arrival.at_s for arrival in trace.arrivals] == [0.0, 1.0, 2.0, 3.0]


@given(seed=st.integers(), load=st.floats(0.1, 3.0))
def test_jobs_for_packing_arrive_up_to_the_load(seed: int, load: float) -> None:
    trace = packed(read_trace(TINY), load, seed)

    assert trace.requested_gpus <= load * trace.capacity_gpus
    # The largest job has four GPUs, and drawing ends with the first job that does not fit.
    assert trace.requested_gpus > load * trace.capacity_gpus - 4.0
    assert trace == packed(read_trace(TINY), load, seed)
