"""The HTTPS server that the API server calls: /validate and /mutate.

Started by `process`; `rotation` gives it each new certificate, which serves from the next
connection on. Answers never wait for anything, so a slow network elsewhere delays no pod.
"""

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog
from aiohttp import web
from prometheus_client import Counter

from bindery.binder.webhook.review import MalformedReviewError, Plugins, Review

_log: Final = structlog.get_logger(__name__)

_MOST_BYTES: Final = 4 * 2**20
"""More than the API server's own limit for an object."""
REVIEWS: Final = Counter("bindery_webhook_reviews_total", "Admission reviews.", ["step", "outcome"])


class WebhookServer:
    """Serves while it is entered; before `use` it refuses all connections."""

    def __init__(self, plugins: Plugins, port: int, host: str) -> None:
        self._plugins, self._port, self._host = plugins, port, host
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._runner: web.AppRunner | None = None
        self.is_trusted = False
        """Whether it has a certificate."""

    def use(self, certificate: str, key: str) -> None:
        """Serve new connections with this certificate, in PEM."""
        with tempfile.TemporaryDirectory() as directory:  # the ssl module reads files only
            path = Path(directory) / "served.pem"
            path.touch(mode=0o600)
            path.write_text(certificate + key, encoding="ascii")
            self._context.load_cert_chain(path)
        self.is_trusted = True

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=_MOST_BYTES)
        application.add_routes(
            [
                web.post("/validate", lambda r: _serve(r, "validate", self._plugins.validate)),
                web.post("/mutate", lambda r: _serve(r, "mutate", self._plugins.mutate)),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=5.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._context).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


async def _serve(
    request: web.Request, step: str, decide: Callable[[bytes], Review]
) -> web.Response:
    try:
        review = decide(await request.read())
    except MalformedReviewError as error:
        REVIEWS.labels(step, "malformed").inc()
        return web.Response(status=400, text=str(error))
    response = review["response"]
    outcome = "changed" if "patch" in response else "allowed" if response["allowed"] else "refused"
    REVIEWS.labels(step, outcome).inc()
    return web.json_response(review)
