"""The measures of the experiment: allocation by requested GPUs, as in the published files. Pure."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.traces import Run


def columns(run: Run, placed: NDArray[np.bool_]) -> dict[int, float]:
    """Return the allocation in % by column; `placed`: whether each arrival was placed.

    Column k is the mean over the arrivals after which the requested GPUs round to k % of all.
    """
    milli = np.array([task.total_milli for task in run.arrivals], dtype=np.int64)
    requested = 100.0 * milli.cumsum() / run.capacity_milli
    allocated = 100.0 * (milli * placed).cumsum() / run.capacity_milli
    column = np.rint(requested).astype(np.int64)
    sums = np.bincount(column, weights=allocated)
    counts = np.bincount(column)
    return {int(k): float(sums[k] / counts[k]) for k in np.flatnonzero(counts)}
