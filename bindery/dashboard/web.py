"""The web server: from a request over the person's rights to a rendered page.

`guard` decides who gets in, `state` has the picture, `seen` reduces it, `pages` make the page, and
`rendering` writes it. Pages are made in a thread, because tables can be large.
"""

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Final

import structlog
from aiohttp import web

from bindery.answers.errors import NoAnswerError
from bindery.dashboard import guard, rendering
from bindery.dashboard.asking import PlanDesk
from bindery.dashboard.facts import Picture
from bindery.dashboard.guard import Entrance
from bindery.dashboard.listing import TableQuery
from bindery.dashboard.metrics import SECONDS_BY_PAGE, SESSIONS
from bindery.dashboard.pages.help import AskedPage, help_page
from bindery.dashboard.pages.paths import ENDINGS, gang_of_path
from bindery.dashboard.pages.whatif import WhatifPage
from bindery.dashboard.past import HistoryReader
from bindery.dashboard.rights import ALL, Rights
from bindery.dashboard.seen import SeenHistory, shown_to
from bindery.dashboard.sessions import Session, Sessions
from bindery.dashboard.sitemap import PAGES, HasListing, PageKind, PathParts
from bindery.dashboard.state import PATIENCE_S, ClusterReader, StateKeeper
from bindery.kube.errors import ForbiddenError, KubeError

_SEEN_KEPT: Final = 16
"""Number of reductions of the newest picture that are kept, each for people with equal rights."""
_ALIVE_S: Final = 15.0
"""Seconds between two signs of life in a stream of events."""
_MOST_ROWS_OF_CSV: Final = 1_000_000
_STATIC: Final[Mapping[str, str]] = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "login.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_SESSION: Final = web.RequestKey("session", Session)
_IDENTITY: Final = web.RequestKey("identity", str)

_log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Site:
    """Everything that pages are made from."""

    keeper: StateKeeper
    reader: ClusterReader
    sessions: Sessions
    past: HistoryReader
    entrance: Entrance
    ticket: str = ""
    """The one-time token of a local page; used up when a browser has shown it."""


class Server:
    """The handlers of one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._desk = PlanDesk(site.keeper, site.reader)
        self._seen: OrderedDict[tuple[int, Rights], Picture] = OrderedDict()
        self._static = {
            name: files("bindery.dashboard").joinpath("static", name).read_bytes()
            for name in _STATIC
        }

    def application(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(middlewares=[self._guarded], client_max_size=2**20)
        app.add_routes(
            [
                web.get("/static/{name}", self._asset),
                web.get("/login", self._login_form),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
                web.get("/events", self._events),
                web.get(r"/gangs/{namespace}/{name}/help{form:(\.json|\.csv)?}", self._help),
                web.get("/whatif", self._whatif),
                web.post(r"/whatif{form:(\.json)?}", self._whatif),
            ]
        )
        for kind in PAGES:
            app.add_routes([web.get(path, self._handler(kind)) for path in kind.routes])
        return app

    # -- who gets in -----------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = await self._admitted(request, handler)
        except web.HTTPException as error:
            answer = self._refusal(request, error.status, error.reason)
        except ForbiddenError as error:
            answer = self._to_login(request) if error.status == 401 else self._unavailable(request)
        except (KubeError, NoAnswerError) as error:
            _log.warning("a page could not be made", path=request.path, error=str(error))
            answer = self._unavailable(request)
        except Exception:  # a defect: its text may name what the person must not see
            _log.exception("a page could not be made", path=request.path)
            answer = self._refusal(request, 500, "This is a defect; the log of the server has it.")
        if not answer.prepared:
            answer.headers.update(guard.HEADERS)
            answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._site.entrance.knows_host(request):
            raise web.HTTPMisdirectedRequest
        if request.method == "POST" and not guard.is_from_own_page(request):
            raise web.HTTPForbidden(reason="The form does not come from this page.")
        if request.path == "/login" or request.path.startswith("/static/"):
            return await handler(request)
        session = await self._session(request)
        if session is None:
            return self._to_login(request)
        request[_SESSION] = session
        return await handler(request)

    async def _session(self, request: web.Request) -> Session | None:
        sessions = self._site.sessions
        token = guard.bearer_token(request)
        if token is not None and sessions.reviews_tokens:
            return await sessions.of_token(token)
        identity = request.cookies.get(self._site.entrance.cookie, "")
        request[_IDENTITY] = identity
        return sessions.of_cookie(identity) if identity else None

    def _to_login(self, request: web.Request) -> web.StreamResponse:
        """Return the way to the login; programs get 401."""
        if request.method != "GET" or _form(request)[1] != ".html" or request.path == "/events":
            return self._refusal(request, 401, "Log in first.")
        target = "" if request.path == "/" else f"?next={request.rel_url.raw_path_qs}"
        return _see_other(f"/login{target}")

    def _unavailable(self, request: web.Request) -> web.Response:
        return self._refusal(request, 503, "The cluster does not answer.")

    def _refusal(self, request: web.Request, status: int, text: str) -> web.Response:
        """Return a refusal, which names no object."""
        if request.method == "GET" and _form(request)[1] == ".html":
            body = rendering.html("error.html", status=status, text=text, user="", framed=False)
            return web.Response(status=status, text=body, content_type="text/html")
        return web.json_response({"error": text}, status=status)

    # -- login -----------------------------------------------------------------------------------

    async def _login_form(self, request: web.Request) -> web.Response:
        return self._login_page(request, "")

    def _login_page(self, request: web.Request, problem: str, status: int = 200) -> web.Response:
        target = guard.next_path(request.query.get("next", "/"))
        body = rendering.html(
            "login.html",
            problem=problem,
            target=target,
            is_local=self._site.entrance.is_local,
            user="",
            framed=False,
        )
        return web.Response(status=status, text=body, content_type="text/html")

    async def _login(self, request: web.Request) -> web.Response:
        form = await request.post()
        token = str(form.get("token", "")).strip()
        target = guard.next_path(str(form.get("next", "/")))
        if not guard.is_token(token):
            return self._login_page(request, "This is no token.", 400)
        if self._site.entrance.is_local:
            if not self._site.ticket or not hmac.compare_digest(token, self._site.ticket):
                text = "The address was used before. Start `bindery dashboard open` again."
                return self._login_page(request, text, 403)
            self._site.ticket = ""
            identity = self._site.sessions.let_in("this machine", ALL)
        else:
            try:
                identity = await self._site.sessions.log_in(token)
            except ForbiddenError:
                return self._login_page(request, "The API server does not accept the token.", 403)
        SESSIONS.set(len(self._site.sessions))
        answer = _see_other(target)
        answer.set_cookie(
            self._site.entrance.cookie,
            identity,
            httponly=True,
            samesite="Strict",
            secure=self._site.entrance.is_secure,
            path="/",
        )
        return answer

    async def _logout(self, request: web.Request) -> web.Response:
        self._site.sessions.log_out(request.get(_IDENTITY, ""))
        SESSIONS.set(len(self._site.sessions))
        answer = _see_other("/login")
        answer.del_cookie(self._site.entrance.cookie, path="/")
        return answer

    # -- pages -----------------------------------------------------------------------------------

    def _handler(self, kind: PageKind) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            with SECONDS_BY_PAGE.labels(kind.name).time():
                return await self._page(request, kind)

        return handle

    async def _page(self, request: web.Request, kind: PageKind) -> web.Response:
        rights = await self._rights(request)
        picture = await self._seen_by(rights)
        past = SeenHistory(self._site.past, rights)
        names, form = _form(request)
        asked = TableQuery.of(request.query, kind.filters)
        if form == ".csv":
            asked = asked.whole(_MOST_ROWS_OF_CSV)
        parts = PathParts(request.match_info.get("namespace", ""), names)

        def made() -> str | None:
            page = kind.make(picture, parts, asked, past)
            if page is None:
                return None
            return self._rendered(request, form, (kind.template, kind.name), page, picture)

        text = await asyncio.to_thread(made)
        if text is None:
            raise web.HTTPNotFound(reason=f"There is no such {kind.noun}, or you may not see it.")
        return _answer(text, form, kind.name)

    async def _rights(self, request: web.Request) -> Rights:
        namespaces = self._site.reader.namespaces()
        return await self._site.sessions.rights(request[_SESSION], namespaces)

    async def _seen_by(self, rights: Rights) -> Picture:
        """Return what a person with `rights` may see now."""
        picture = await self._site.keeper.picture()
        if rights.see_all:
            return picture
        key = (picture.version, rights)
        found = self._seen.get(key)
        if found is None:
            found = await asyncio.to_thread(shown_to, picture, rights)
            for old in [each for each in self._seen if each[0] < picture.version]:
                del self._seen[old]  # it would keep the objects of an earlier picture in memory
            self._seen[key] = found
            while len(self._seen) > _SEEN_KEPT:
                self._seen.popitem(last=False)
        return found

    def _rendered(
        self,
        request: web.Request,
        form: str,
        template: tuple[str, str],
        page: HasListing,
        picture: Picture,
    ) -> str:
        """Return a page with a table in the asked form; `template`: with the place in the menu."""
        if form == ".csv":
            return rendering.table(page.listing)
        return self._written(request, form, template, page, picture)

    def _written(
        self,
        request: web.Request,
        form: str,
        template: tuple[str, str],
        page: object,
        picture: Picture,
    ) -> str:
        """Return a page as JSON, or in the frame that is around every page."""
        if form == ".json":
            return rendering.wire(page, picture, self._site.keeper.age_s)
        template_name, current = template
        return rendering.html(
            template_name,
            page=page,
            picture=picture,
            path=request.path.removesuffix(".html"),
            current=current,
            user=request[_SESSION].user,
            age_s=self._site.keeper.age_s,
            is_fixed=self._site.reader.is_fixed,
            has_login=not self._site.entrance.is_local,
            framed=True,
        )

    async def _help(self, request: web.Request) -> web.Response:
        rights = await self._rights(request)
        picture = await self._seen_by(rights)
        name, form = _form(request)
        key = gang_of_path(request.match_info["namespace"], name)
        # Asked only about a gang that may be seen: otherwise the time of the answer would differ.
        if key not in picture.gang_by_key:
            raise _no_such_gang()
        question = await self._desk.explanation(key)
        if not await question.is_answered_within(_patience_s(form)):
            waiting = AskedPage(key, question.age_s, self._site.keeper.took_s)
            text = self._written(request, form, ("asked.html", "gang"), waiting, picture)
            return _answer(text, form, "help")
        page, explained = None, question.answer()
        if explained is not None:
            query = TableQuery.of(request.query)
            query = query.whole(_MOST_ROWS_OF_CSV) if form == ".csv" else query
            page = help_page(picture, explained, question.age_s, query, rights)
        if page is None:
            raise _no_such_gang()
        text = self._rendered(request, form, ("help.html", "gang"), page, picture)
        return _answer(text, form, "help")

    async def _whatif(self, request: web.Request) -> web.Response:
        rights = await self._rights(request)
        page, (_, form) = await self._desk.form(rights), _form(request)
        if request.method == "POST":
            sent = await request.post()
            manifest, namespace = str(sent.get("manifest", "")), str(sent.get("namespace", ""))
            page = await self._desk.form(rights, namespace, manifest)
            try:
                name, question = self._desk.ask(manifest, page, rights)
            except NoAnswerError as error:
                page = replace(page, problem=str(error))
            else:
                if not await question.is_answered_within(_patience_s(form)):
                    return _see_other(f"/whatif?asked={name}")
                page = question.answer()
        elif name := request.query.get("asked", ""):
            page = self._asked(name, page, rights)
        picture = await self._seen_by(rights)
        text = self._written(request, form, ("whatif.html", "whatif"), page, picture)
        return _answer(text, form, "whatif")

    def _asked(self, name: str, form: WhatifPage, rights: Rights) -> WhatifPage:
        """Return the page about the question called `name`; `form`: the empty one."""
        question = self._desk.asked(name, rights)
        if question is None:
            return replace(form, problem="This answer is not kept any more. Plan it again.")
        if question.is_answered:
            return question.answer()
        return replace(form, asked_s=question.age_s, last_s=self._site.keeper.took_s)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the number of each new picture, until the person goes or the session ends."""
        answer = web.StreamResponse(
            headers={
                **guard.HEADERS,
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
            }
        )
        with suppress(ConnectionError):  # the person has closed the page
            await answer.prepare(request)
            await self._tell_news(request, answer)
        return answer

    async def _tell_news(self, request: web.Request, answer: web.StreamResponse) -> None:
        version = -1
        async with self._site.keeper.looking():
            while self._is_in(request):
                picture = await self._site.keeper.after(version, _ALIVE_S)
                if picture is None:
                    await answer.write(b": alive\n\n")
                    continue
                version = picture.version
                await answer.write(f"event: state\ndata: {version}\n\n".encode())

    def _is_in(self, request: web.Request) -> bool:
        """Return whether the session of an open stream still exists."""
        identity = request.get(_IDENTITY)
        return identity is None or self._site.sessions.of_cookie(identity) is not None

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound
        return web.Response(
            body=self._static[name],
            content_type=_STATIC[name],
            charset="utf-8",
            headers={"Cache-Control": "public, max-age=3600"},
        )


def _form(request: web.Request) -> tuple[str, str]:
    """Return the name in the path, without the ending of a form, and that ending."""
    name = request.match_info.get("name", "")
    form = request.match_info.get("form")
    if form is not None:
        return name, form or ".html"
    for ending in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending), ending
    return name, ".html"


def _patience_s(form: str) -> float | None:
    """Return how long a page waits for an answer before it is shown without; None: always."""
    return PATIENCE_S if form == ".html" else None


def _no_such_gang() -> web.HTTPNotFound:
    return web.HTTPNotFound(reason="There is no such gang, or you may not see it.")


def _see_other(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})


def _answer(text: str, form: str, name: str) -> web.Response:
    kinds = {".html": "text/html", ".json": "application/json", ".csv": "text/csv"}
    answer = web.Response(text=text, content_type=kinds[form], charset="utf-8")
    if form == ".csv":
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer
