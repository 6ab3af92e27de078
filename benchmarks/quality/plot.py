"""Draws allocation against requested GPUs for the default trace, and the gains of every trace."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.quality.figures import Means, Published, Result, means
from benchmarks.quality.traces import DEFAULT


def draw(path: Path, results: Sequence[Result], published: Published) -> None:
    """Write the picture of `results` to `path`, as SVG."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    curves, bars = figure.subplots(2, 1)
    _draw_curves(curves, [result for result in results if result.trace == DEFAULT])
    _draw_bars(bars, means(results, published))
    with mpl.rc_context({"svg.hashsalt": "bindery", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_curves(axes: Axes, results: Sequence[Result]) -> None:
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.node_order is None:
            groups[result.policy].append(result)
    for policy, group in groups.items():
        shared = set.intersection(*(set(each.allocation) for each in group))
        columns = sorted(column for column in shared if column >= 70)
        values = [np.mean([each.allocation[c] for each in group]) for c in columns]
        axes.plot(columns, values, label=policy)
    axes.set(title="Default trace", xlabel="requested GPUs, %", ylabel="allocated GPUs, %")
    axes.grid(visible=True, alpha=0.3)
    if groups:
        axes.legend(frameon=False)


def _draw_bars(axes: Axes, found: Means) -> None:
    policies = sorted({policy for each in found.values() for policy in each})
    width = 0.8 / max(len(policies), 1)
    for number, policy in enumerate(policies):
        values = [each.get(policy, {}).get("130", np.nan) for each in found.values()]
        axes.bar(np.arange(len(found)) + number * width, values, width, label=policy)
    axes.set_xticks(np.arange(len(found)) + 0.4, list(found), rotation=45, ha="right")
    axes.set(ylim=(75, 100), ylabel="allocated GPUs at 130 %, %")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
