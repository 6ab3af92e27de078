"""The kopf operator: watches BindRequests and translates its events.

Started by `process` while this binder leads; passes every request to `statements.intake`. The
handler only decodes. It writes no annotations, finalizers, peering or handler state, so that an
outcome is the only write to a request. kopf ends when it gets an unexpected response; then this
module starts it again, and it lists all requests again.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Collection
from types import AsyncGeneratorType
from typing import Any, Final

import aiohttp
import structlog

from bindery.binder.imports import absent
from bindery.binder.metrics import KOPF_STARTS
from bindery.binder.requestevents import translate
from bindery.binder.statements.intake import Intake
from bindery.kube.access.credentials import Credentials
from bindery.kube.objects.resources import BIND_REQUESTS

# kopf imports the whole Kubernetes client, if installed, to recognize the types of its objects. The
# binder uses none of them, and starts a third of a second faster without the import.
with absent("kubernetes"):
    import kopf

_log: Final = structlog.get_logger(__name__)

_RESTART_S: Final = 1.0
_RESTART_CAP_S: Final = 15.0
_STOP_S: Final = 5.0
"""Seconds for kopf to end, because kopf has no limit of its own."""
_WATCH: Final = "infinite_watch"
"""The name of kopf's generator of events."""
_STABLE_S: Final = 60.0
"""After kopf has run for so long, the next restart is again without a long pause."""


class Operator:
    """Runs kopf in the event loop of the binder."""

    def __init__(
        self,
        intake: Intake,
        credentials: Credentials,
        identity: str,
        restore_signals: Callable[[], None],
    ) -> None:
        """Create without starting.

        Args:
            intake: receives every change.
            credentials: the credentials of the binder's own client.
            identity: the holder of the binder's Lease.
            restore_signals: restores the handlers of SIGTERM and SIGINT, which kopf replaces at
                each start.
        """
        self._intake, self._credentials = intake, credentials
        self._identity: Any = identity  # kopf does not export the type
        self._restore_signals = restore_signals
        self._session_header: str | None = None  # Authorization in kopf's session, if any
        self.is_alive = False
        """Whether kopf runs."""

    async def run(self) -> None:
        """Run kopf until cancelled; start it again when it ends."""
        loop = asyncio.get_running_loop()
        delay_s = _RESTART_S
        while True:
            started_s = loop.time()
            await self._run_once()
            if loop.time() - started_s > _STABLE_S:
                delay_s = _RESTART_S
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RESTART_CAP_S)

    async def _run_once(self) -> None:
        KOPF_STARTS.inc()
        self._session_header = None
        # Not kopf.operator(): when it ends, it cancels all tasks of the event loop that are younger
        # than itself, including the binder's transactions.
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=_settings(),
            clusterwide=True,
            standalone=True,
            # Without an identity, kopf reads the user's name, which does not exist in a pod.
            identity=self._identity,
        )
        self._restore_signals()
        self.is_alive = True
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = None if task.cancelled() else task.exception()
                _log.warning("kopf ended", task=task.get_name(), error=repr(error))
        finally:
            self.is_alive = False
            for task in tasks:
                task.cancel()
            await _ended(tasks)
            await _close_watches()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            """Return a session for kopf with the credentials of the binder's client."""
            if self._session_header is not None:
                await self._credentials.renew(rejected=self._session_header)
            self._session_header = self._credentials.authorization
            return _session(self._credentials)

        @kopf.on.event(
            BIND_REQUESTS.group, BIND_REQUESTS.version, BIND_REQUESTS.plural, registry=registry
        )
        async def on_bind_request(event: Any, **_: Any) -> None:
            """Pass the request to the intake."""
            translate(event["type"], event["object"], self._intake)

        return registry


async def _ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait until kopf's tasks have ended, at most twice `_STOP_S`."""
    # After a freeze of the process, all timeouts are over at once. Then kopf still gets time to
    # end: tasks that are cancelled twice leave connections open, or never end.
    for _ in range(2):
        _, running = await asyncio.wait(tasks, timeout=_STOP_S)
        if not running:
            return
    _log.warning("kopf has not ended", tasks=sorted(task.get_name() for task in running))


async def _close_watches() -> None:
    """Close the watches left open by kopf's cancelled tasks.

    A task that is cancelled while it handles an event leaves its watch to the garbage collector.
    The watch holds an inner generator. At the end of the event loop, asyncio closes remaining
    generators in any order, and closing the inner one first is an error.
    """
    for each in gc.get_objects():
        is_watch = isinstance(each, AsyncGeneratorType) and each.ag_code.co_name == _WATCH
        if is_watch and not each.ag_running:
            await each.aclose()


def _session(credentials: Credentials) -> kopf.AiohttpSession:
    # As in the rest of Bindery: compressing long lists costs the API server more than sending them.
    headers = {"User-Agent": "bindery-binder-kopf", "Accept-Encoding": "identity"}
    if credentials.authorization is not None:
        headers["Authorization"] = credentials.authorization
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=credentials.tls or False),
        headers=headers,
        proxy=credentials.proxy,
    )
    return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)


class _NoMemory(kopf.DiffBaseStorage):
    """Avoids kopf's deep copy of every request, which only handlers of differences need."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing: the binder writes no annotations to requests."""


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the binder writes its own aggregated events
    settings.scanning.disabled = True  # new kinds and namespaces do not matter
    settings.persistence.diffbase_storage = _NoMemory()
    settings.process.ultimate_exiting_timeout = None  # the process handles its own end
    settings.queueing.idle_timeout = 1.0  # most requests have their few events within a second
    settings.queueing.exit_timeout = 1.0
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = (0.2, 0.5, 1, 2)
    settings.watching.connect_timeout = 5.0
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = 500
    # kopf logs every handled event; only its warnings matter.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return settings
