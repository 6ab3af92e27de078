"""The pages of the site: path, parameters, template, and the function that makes the page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Listing, TableQuery
from bindery.dashboard.pages.gang import gang_page
from bindery.dashboard.pages.gangs import gangs_page
from bindery.dashboard.pages.nodes import TILES, node_page, nodes_page
from bindery.dashboard.pages.overview import overview_page
from bindery.dashboard.pages.past import past_page
from bindery.dashboard.pages.paths import gang_of_path
from bindery.dashboard.pages.promises import promises_page
from bindery.dashboard.pages.queues import queue_page, queues_page
from bindery.dashboard.pages.trend import trend_page
from bindery.dashboard.past import HistoryReader

_FORM: Final = r"{form:(\.json|\.csv)?}"


class HasListing(Protocol):
    """A page with a table, which CSV has."""

    @property
    def listing(self) -> Listing[Any]:
        """The table of the page."""
        ...


@dataclass(frozen=True, slots=True)
class PathParts:
    """The object that a path names."""

    namespace: str
    name: str


Make = Callable[[Picture, PathParts, TableQuery, HistoryReader], HasListing | None]


@dataclass(frozen=True)
class PageKind:
    """One kind of page."""

    name: str
    noun: str
    """What a page of this kind is about, for the answer that there is none."""
    routes: tuple[str, ...]
    template: str
    make: Make
    filters: tuple[str, ...] = ()
    """The parameters that the page reads, beside those of its table."""


PAGES: Final = (
    PageKind(
        "overview",
        "page",
        ("/", r"/overview{form:\.json|\.csv}"),
        "overview.html",
        lambda picture, _, asked, __: overview_page(picture, asked),
        ("kind",),
    ),
    PageKind(
        "queues",
        "page",
        (f"/queues{_FORM}",),
        "queues.html",
        lambda picture, _, asked, __: queues_page(picture, asked),
        ("resource",),
    ),
    PageKind(
        "queue",
        "queue",
        ("/queues/{name}",),
        "queue.html",
        lambda picture, parts, asked, past: queue_page(picture, parts.name, asked, past),
        ("resource",),
    ),
    PageKind(
        "trend",
        "queue",
        (f"/queues/{{name}}/trend{_FORM}",),
        "trend.html",
        lambda picture, parts, asked, past: trend_page(picture, parts.name, asked, past),
        ("resource",),
    ),
    PageKind(
        "gangs",
        "page",
        (f"/gangs{_FORM}",),
        "gangs.html",
        lambda picture, _, asked, __: gangs_page(picture, asked),
        ("show", "queue", "namespace"),
    ),
    PageKind(
        "gang",
        "gang",
        ("/gangs/{namespace}/{name}",),
        "gang.html",
        lambda picture, parts, asked, past: gang_page(
            picture, gang_of_path(parts.namespace, parts.name), asked, past
        ),
    ),
    PageKind(
        "past",
        "gang",
        (f"/gangs/{{namespace}}/{{name}}/past{_FORM}",),
        "past.html",
        lambda picture, parts, asked, past: past_page(
            picture, gang_of_path(parts.namespace, parts.name), asked, past
        ),
    ),
    PageKind(
        "nodes",
        "page",
        (f"/nodes{_FORM}",),
        "nodes.html",
        lambda picture, _, asked, __: nodes_page(picture, asked.at_least(TILES)),
        ("rack", "state"),
    ),
    PageKind(
        "node",
        "node",
        ("/nodes/{name}",),
        "node.html",
        lambda picture, parts, asked, __: node_page(picture, parts.name, asked),
    ),
    PageKind(
        "promises",
        "page",
        (f"/promises{_FORM}",),
        "promises.html",
        lambda picture, _, asked, __: promises_page(picture, asked),
    ),
)
