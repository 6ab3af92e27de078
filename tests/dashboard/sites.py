"""A site for tests: a fixed cluster, people with tokens, and a clock that only tests move."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bindery.answers.source import Source
from bindery.dashboard.guard import Entrance
from bindery.dashboard.live import FixedCluster
from bindery.dashboard.rights import Rights
from bindery.dashboard.sessions import Sessions
from bindery.dashboard.state import StateKeeper
from bindery.dashboard.web import Server, Site
from bindery.kube.errors import ForbiddenError, UnreachableError
from tests.dashboard.nopast import NoHistory

Browser = TestClient[web.Request, web.Application]


@dataclass
class People:
    """Reviews tokens: token -> rights."""

    by_token: dict[str, Rights] = field(default_factory=dict)
    reviews: int = 0
    is_down: bool = False

    async def name_of(self, token: str) -> str:
        if token not in self.by_token:
            raise ForbiddenError(401, "Unauthorized", "Unauthorized")
        return f"user of {token[:3]}"

    async def rights_of(self, token: str, namespaces: Collection[str]) -> Rights:
        assert namespaces, "the namespaces of the cluster are asked about"
        self.reviews += 1
        if self.is_down:
            raise UnreachableError("no API server in zzsecret")
        if token not in self.by_token:
            raise ForbiddenError(401, "Unauthorized", "Unauthorized")
        return self.by_token[token]


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Visit:
    """A browser at a site, and what tests change about the site."""

    browser: Browser
    people: People
    clock: Clock
    site: Site

    async def log_in(self, token: str) -> int:
        """Log in as the form does; return the status of the answer."""
        answer = await self.browser.post(
            "/login", data={"token": token, "next": "/"}, headers=SAME_SITE, allow_redirects=False
        )
        return answer.status

    async def text(self, path: str) -> str:
        """Return the page at `path`, once an answer that it waits for is there."""
        async with asyncio.timeout(60):
            while True:
                answer = await self.browser.get(path)
                assert answer.status == 200, (path, answer.status)
                if "data-asking" not in (text := await answer.text()):
                    return text
                await asyncio.sleep(0.05)

    async def status(self, path: str, **options: object) -> int:
        answer = await self.browser.get(path, allow_redirects=False, **options)  # type: ignore[arg-type]
        return answer.status


SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


@asynccontextmanager
async def visit(
    source: Source, people: dict[str, Rights] | None = None, *, is_local: bool = False
) -> AsyncIterator[Visit]:
    """Serve the pages of `source`; `people`: token -> rights, for a site with logins."""
    clock, reader, reviewer = Clock(), FixedCluster(source), People(people or {})
    sessions = Sessions(None if is_local else reviewer, clock)
    entrance = Entrance(is_local=is_local, is_secure=False)
    site = Site(StateKeeper(reader, clock), reader, sessions, NoHistory(), entrance)
    async with TestClient(TestServer(Server(site).application())) as browser:
        yield Visit(browser, reviewer, clock, site)
