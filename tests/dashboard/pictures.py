"""Pictures for tests: of scenarios, and every page of one in all three renderings."""

import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from bindery.answers.source import Source
from bindery.api.yamlfile import parse
from bindery.dashboard import rendering
from bindery.dashboard.facts import Picture
from bindery.dashboard.kept import KeptEngine
from bindery.dashboard.listing import TableQuery
from bindery.dashboard.pages.paths import gang_path
from bindery.dashboard.past import HistoryReader
from bindery.dashboard.rights import Rights
from bindery.dashboard.sitemap import PAGES, PageKind, PathParts
from bindery.scenario.creation import snapshot_of
from bindery.scenario.files import parse_scenario, read_only_scenario
from bindery.scenario.format import Scenario
from tests.dashboard.nopast import NoHistory

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scenarios"
BUSY = EXAMPLES / "busy.yaml"
TWO_TEAMS = EXAMPLES / "two-teams.yaml"


def source_of(scenario: Scenario) -> Source:
    return Source(snapshot_of(scenario), scenario.config.to_configuration(), scenario.now)


def source_in(path: Path) -> Source:
    return source_of(read_only_scenario(path))


def planned(source: Source) -> Picture:
    return KeptEngine(source.now.timestamp).picture(source, 1)


@cache
def picture_in(path: Path) -> Picture:
    return planned(source_in(path))


def picture(text: str) -> Picture:
    (document,) = parse(textwrap.dedent(text), "inline.yaml")
    return planned(source_of(parse_scenario(document)))


def rights(*namespaces: str, queues: bool = False, nodes: bool = False) -> Rights:
    return Rights(frozenset(namespaces), queues=queues, nodes=nodes)


def objects_of(kind: PageKind, of: Picture) -> list[PathParts]:
    """Return the objects that have a page of `kind`; one without a name for the others."""
    match kind.name:
        case "queue" | "trend":
            return [PathParts("", each.name) for each in of.queues]
        case "node":
            return [PathParts("", each.name) for each in of.nodes]
        case "gang" | "past":
            paths = (gang_path(each.key).split("/") for each in of.gangs)
            return [PathParts(unquote(parts[2]), unquote(parts[3])) for parts in paths]
    return [PathParts("", "")]


def renderings(of: Picture, past: HistoryReader | None = None) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of every page of a picture, as HTML, JSON and CSV."""
    for kind in PAGES:
        asked = TableQuery.of({"show": "all"}, kind.filters).whole(1000)
        for parts in objects_of(kind, of):
            page = kind.make(of, parts, asked, past or NoHistory())
            assert page is not None
            title = f"{kind.name} {parts.namespace}/{parts.name}"
            yield f"{title} html", html(kind, page, of)
            yield f"{title} json", rendering.wire(page, of, 1.0)
            yield f"{title} csv", rendering.table(page.listing)


def html(kind: PageKind, page: object, of: Picture) -> str:
    return rendering.html(
        kind.template,
        page=page,
        picture=of,
        path="/path",
        current=kind.name,
        user="someone",
        age_s=1.0,
        is_fixed=False,
        has_login=True,
        framed=True,
    )
