"""The renderings of a page: HTML by templates, JSON, and CSV of its table. Pure.

Names and messages are text of users: in HTML every value is escaped, and control characters and
marks of direction are shown as escape sequences; in CSV no cell begins a formula.
"""

import csv
import io
import json
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from bindery import __version__
from bindery.answers import amounts
from bindery.answers.wire import to_wire
from bindery.api.shown import shown
from bindery.dashboard import charts
from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Listing, cell
from bindery.dashboard.pages import paths
from bindery.dashboard.pages.gangs import SELECTIONS
from bindery.dashboard.pages.nodes import STATES

MOST_CELL: Final = 4096
"""Maximum number of characters of one value."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def html(template: str, **values: Any) -> str:
    """Return the page of `template` with `values`."""
    return _ENVIRONMENT.get_template(template).render(**values)


def wire(page: object, picture: Picture, age_s: float) -> str:
    """Return a page as JSON, with the age of the answer."""
    head = {
        "version": picture.version,
        "at": picture.at.isoformat(),
        "ageSeconds": round(age_s, 1),
    }
    return json.dumps(head | to_wire(page), allow_nan=False)


def table(listing: Listing[Any]) -> str:
    """Return a table as CSV (RFC 4180), with the titles of the columns."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(heading.title for heading in listing.headings)
    for row in listing.rows:
        writer.writerow(_csv_cell(getattr(row, heading.key)) for heading in listing.headings)
    return out.getvalue()


def _csv_cell(value: object) -> str:
    """Return a cell; a text that a spreadsheet would compute gets a quote before it."""
    if isinstance(value, int | float):
        return cell(value)
    text = shown(cell(value), MOST_CELL)
    return f"'{text}" if text.startswith(_FORMULA) else text


def duration(seconds: float | None) -> str:
    """Return a time span as text: `45 s`, `12 min`, `5 h`, `3 d`."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def clock(at: float | str | None) -> str:
    """Return a time, in seconds since the epoch or RFC 3339, as `2026-11-27 14:05:09 UTC`."""
    if at is None or at == "":
        return ""
    try:
        moment = datetime.fromtimestamp(at, UTC) if isinstance(at, float | int) else None
        moment = moment or datetime.fromisoformat(str(at)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return str(at)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def part(value: float | None, whole: float) -> str:
    """Return `value` as a part of `whole` for a length of a picture: 0 to 100."""
    if value is None or whole <= 0:
        return "0"
    return f"{min(100.0, max(0.0, value / whole * 100)):.2f}"


def resource_title(resource: str) -> str:
    """Return the heading of `resource`, beginning like the others: `GPUs`, `Memory`."""
    return "Memory" if resource == "memory" else amounts.title(resource)


def _finalized(value: object) -> object:
    """Return what a template writes: text without control characters and marks of direction."""
    if isinstance(value, Markup):
        return value
    return shown(cell(value), MOST_CELL, keep="\n")


def _load(name: str) -> str | None:
    found = files("bindery.dashboard").joinpath("templates", name)
    return found.read_text(encoding="utf-8") if found.is_file() else None


_ENVIRONMENT: Final = Environment(
    autoescape=True,
    loader=FunctionLoader(_load),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_finalized,
)
_ENVIRONMENT.filters |= {
    "clock": clock,
    "duration": duration,
    "plural": amounts.plural,
}
_ENVIRONMENT.globals |= {
    "amount": amounts.amount,
    "gang_path": paths.gang_path,
    "help_path": paths.help_path,
    "node_path": paths.node_path,
    "lines": charts.lines,
    "part": part,
    "past_path": paths.past_path,
    "queue_path": paths.queue_path,
    "resource_title": resource_title,
    "selections": {word: title for word, (title, _) in SELECTIONS.items()},
    "states": {state.word: state for state in STATES},
    "top": charts.top,
    "trend_path": paths.trend_path,
    "version": __version__,
}
