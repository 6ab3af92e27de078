"""Draws how measurements grow, as an SVG with logarithmic axes.

Called by `report`. The same numbers give the same file, so that it changes only when they do.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.growth import Growth
from benchmarks.room import CASES


def draw(path: Path, growths: Sequence[Growth]) -> None:
    """Write the picture of `growths`, in seconds, to `path`."""
    bars = {case.name: (case.bar_at, case.bar_s) for case in CASES}
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    for growth in growths:
        sizes = sorted(growth.values)
        (line,) = axes.plot(
            sizes, [growth.values[size] for size in sizes], marker="o", label=growth.series
        )
        size, bar_s = bars[growth.series]
        axes.plot([size], [bar_s], marker="_", markersize=18, color=line.get_color(), mew=3)
    ticks = sorted({size for growth in growths for size in growth.values})
    axes.set(xscale="log", yscale="log", xlabel="nodes, or queues for the division", ylabel="s")
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.set_title("One cycle; a bar of the same colour is what it is to stay below")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    with mpl.rc_context({"svg.hashsalt": "bindery", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
