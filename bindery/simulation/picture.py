"""The charts of reports as a PNG. Needs matplotlib, which the extra for benchmarks installs."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bindery.simulation.charts import charts
from bindery.simulation.report import Report

_HEIGHT = 2.8
"""Of one chart, in inches."""


def draw(path: Path, named: Sequence[tuple[str, Report]]) -> None:
    """Write the charts of `named` reports, one below the other, to `path`.

    Raises:
        OSError: the file cannot be written.
    """
    drawn = charts(named)
    figure = Figure(figsize=(10, _HEIGHT * len(drawn)), layout="constrained")
    for axes, chart in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        for line in chart.lines:
            axes.plot(
                line.times,
                line.values,
                linestyle="--" if line.is_dashed else "-",
                color=f"C{line.colour}",
                drawstyle="steps-post",
                label=line.name,
            )
        axes.set(title=chart.title, xlabel="hours", ylabel=chart.unit, ylim=(0, chart.top * 1.05))
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    # Without the version of matplotlib, equal reports have equal files.
    figure.savefig(path, format="png", dpi=100, metadata={"Software": None})
