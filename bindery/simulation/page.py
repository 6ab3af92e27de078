"""The report as one HTML page that needs no other file: tables, and charts as inline SVG.

Names of the trace are escaped. The page has no scripts and loads nothing.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from bindery.simulation.charts import Chart, Line, charts
from bindery.simulation.report import Report
from bindery.simulation.tables import Table, tables

_WIDTH, _HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 30
_TICKS = 5
_COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.9rem 0.2rem 0; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
.legend span { margin-right: 1.2rem; }
.axis { stroke: #8888; } .label { font-size: 12px; fill: #888; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd; } }
"""


def make_page(
    title: str, named: Sequence[tuple[str, Report]], further: Sequence[Table] = ()
) -> str:
    """Return the page of `named` reports; `further`: tables that follow the reports' own."""
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [_table(table) for table in (*tables(named), *further)]
    parts += [_figure(chart) for chart in charts(named)]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>"
        for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2>\n<table>\n<tr>{head}</tr>\n{rows}\n</table>"


def _figure(chart: Chart) -> str:
    span = max((line.times[-1] for line in chart.lines if line.times), default=0.0) or 1.0
    marks = [*_axes(chart, span), *(_path(line, span, chart.top) for line in chart.lines)]
    legend = "".join(
        f'<span style="color:{_colour(line)}">{"┅" if line.is_dashed else "━"} '
        f"{escape(line.name)}</span>"
        for line in chart.lines
    )
    inside = "\n".join(marks)
    return (
        f"<h2>{escape(chart.title)}</h2>\n"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
        f'aria-label="{escape(chart.title)}">\n{inside}\n</svg>\n<p class="legend">{legend}</p>'
    )


def _axes(chart: Chart, span: float) -> Iterable[str]:
    for number in range(_TICKS + 1):
        part = number / _TICKS
        x, y = _x(part * span, span), _y(part * chart.top, chart.top)
        yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield (
            f'<text class="label" x="{_LEFT - 6}" y="{y}" text-anchor="end" '
            f'dominant-baseline="middle">{part * chart.top:,.4g}</text>'
        )
        yield (
            f'<text class="label" x="{x}" y="{_HEIGHT - 8}" text-anchor="middle">'
            f"{part * span:.4g} h</text>"
        )


def _path(line: Line, span: float, top: float) -> str:
    """Return the line as steps: a value holds until the next one."""
    points: list[str] = []
    for time, value in zip(line.times, line.values, strict=True):
        x, y = _x(time, span), _y(value, top)
        points.append(f"H{x}V{y}" if points else f"M{x} {y}")
    if points:
        points.append(f"H{_x(span, span)}")
    dashes = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    return f'<path d="{"".join(points)}" fill="none" stroke="{_colour(line)}"{dashes}/>'


def _colour(line: Line) -> str:
    return _COLOURS[line.colour % len(_COLOURS)]


def _x(time: float, span: float) -> float:
    return round(_LEFT + time / span * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM), 1)
