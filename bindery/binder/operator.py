"""The kopf operator: watches BindRequests and translates its events.

Started by `process` while this binder leads; `statements.intake` takes over every request. The
handler only decodes: no annotations, no finalizers, no peering and no handler state are written, so
that an outcome stays the only write to a request. kopf ends itself when it meets an answer that it
does not expect; it is then started again, and lists everything again.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Collection
from types import AsyncGeneratorType
from typing import Any, Final

import aiohttp
import msgspec
import structlog

from bindery.api.bindrequest import Phase
from bindery.binder.imports import absent
from bindery.binder.metrics import KOPF_STARTS
from bindery.binder.statements.intake import Intake
from bindery.binder.statements.manager import Malformed
from bindery.kube.access.credentials import Credentials
from bindery.kube.objects import reading
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.resources import BIND_REQUESTS

# kopf imports the whole Kubernetes client, if there is one, to recognize the types of its objects.
# None of them ever gets there, and the binder starts a third of a second earlier without.
with absent("kubernetes"):
    import kopf

_log: Final = structlog.get_logger(__name__)

_RESTART_S: Final = 1.0
_RESTART_CAP_S: Final = 15.0
_STOP_S: Final = 5.0
"""For kopf's own end, which is otherwise not bounded."""
_WATCH: Final = "infinite_watch"
"""The name of kopf's generator of events."""
_STABLE_S: Final = 60.0
"""After running for so long, the next restart is a quick one again."""


class Operator:
    """Runs kopf in the event loop of the binder."""

    def __init__(
        self,
        intake: Intake,
        credentials: Credentials,
        identity: str,
        restore_signals: Callable[[], None],
    ) -> None:
        """Make an operator that does not run yet.

        Args:
            intake: is told every change.
            credentials: those of the binder's own client.
            identity: the holder of the binder's Lease.
            restore_signals: takes SIGTERM and SIGINT back, which kopf claims at each start.
        """
        self._intake, self._credentials = intake, credentials
        self._identity: Any = identity  # kopf does not export the type for it
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
        # Not kopf.operator(): when it ends, it cancels every task of the event loop that is younger
        # than itself, and with them our transactions.
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=_settings(),
            clusterwide=True,
            standalone=True,
            # Without one, kopf asks for the name of the user, who has none in a pod.
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
            """Give kopf a session of its own with the credentials of our client."""
            if self._session_header is not None:
                await self._credentials.renew(rejected=self._session_header)
            self._session_header = self._credentials.authorization
            return _session(self._credentials)

        @kopf.on.event(
            BIND_REQUESTS.group, BIND_REQUESTS.version, BIND_REQUESTS.plural, registry=registry
        )
        async def on_bind_request(event: Any, **_: Any) -> None:
            """Hand the request over to the intake."""
            translate(event["type"], event["object"], self._intake)

        return registry


async def _ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait until kopf's tasks have ended, but not longer than twice `_STOP_S`."""
    # For a process that was frozen meanwhile, every time limit is over at once. Then kopf gets its
    # time after all: tasks that are cancelled twice leave connections open, or never end.
    for _ in range(2):
        _, running = await asyncio.wait(tasks, timeout=_STOP_S)
        if not running:
            return
    _log.warning("kopf has not ended", tasks=sorted(task.get_name() for task in running))


async def _close_watches() -> None:
    """Close the watches that kopf's cancelled tasks have left open.

    A task that is cancelled while it handles an event leaves its watch to the garbage collector.
    The watch holds a second generator. If both are still there at the end of the event loop,
    asyncio closes them in any order, and the inner one first is an error.
    """
    for each in gc.get_objects():
        is_watch = isinstance(each, AsyncGeneratorType) and each.ag_code.co_name == _WATCH
        if is_watch and not each.ag_running:
            await each.aclose()


def translate(kind: str | None, raw: Any, intake: Intake) -> None:
    """Translate a watch event into calls of the intake.

    Args:
        kind: ADDED, MODIFIED, DELETED; None: the object was there before we looked.
        raw: the object as JSON.
        intake: is told.
    """
    try:
        stored = reading.convert(raw, BindRequest)
    except msgspec.ValidationError as error:
        if kind != "DELETED":
            _translate_malformed(raw, f"the request cannot be decoded: {error}", intake)
        return
    if kind == "DELETED":
        intake.gone(stored)
    else:
        intake.observe(stored, adopted=kind is None)


def _translate_malformed(raw: Any, message: str, intake: Intake) -> None:
    metadata, status = raw.get("metadata") or {}, raw.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    intake.malformed(
        Malformed(
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            message=message,
        ),
        is_final=phase in (Phase.SUCCEEDED, Phase.FAILED),
    )


def _session(credentials: Credentials) -> kopf.AiohttpSession:
    # As the rest of Bindery does: compressing long lists costs the API server more than sending.
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
    """Spares kopf the deep copy of every request that only handlers of differences need."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing: requests carry no annotations of ours."""


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # events are written by the binder, aggregated
    settings.scanning.disabled = True  # neither new kinds nor namespaces matter
    settings.persistence.diffbase_storage = _NoMemory()
    settings.process.ultimate_exiting_timeout = None  # the process looks after its own end
    settings.queueing.idle_timeout = 1.0  # most requests have their few events within a second
    settings.queueing.exit_timeout = 1.0
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = (0.2, 0.5, 1, 2)
    settings.watching.connect_timeout = 5.0
    settings.watching.server_timeout = 600
    settings.watching.chunk_size = 500
    # kopf reports every handled event; its warnings are what matters.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return settings
