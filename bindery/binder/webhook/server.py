"""The HTTPS server that the API server calls with reviews.

Started by `process`; `rotation` passes each new certificate, which is used from the next connection
on. Answers need no other requests, so a slow network elsewhere delays no pod.
"""

import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Self

from aiohttp import web
from prometheus_client import Counter

from bindery.binder.webhook.answers import MalformedReviewError, Review
from bindery.kube.access.credentials import load_pem
from bindery.observability.listening import serving

_MOST_BYTES: Final = 4 * 2**20
"""More than the API server's own limit for an object."""
_SHUTDOWN_S: Final = 5.0
_OUTCOMES: Final = ("allowed", "changed", "refused", "malformed")
REVIEWS: Final = Counter("bindery_webhook_reviews_total", "Admission reviews.", ["step", "outcome"])


Decide = Callable[[bytes], Review]
"""Returns the answer to a review; raises MalformedReviewError if the review cannot be read."""


class WebhookServer:
    """Serves inside a `with` block; refuses all connections before `use`.

    Raises:
        ListenError: on entering, if the port cannot be listened on.
    """

    def __init__(self, reviews: Mapping[str, Decide], port: int, host: str) -> None:
        """`reviews`: path -> function that answers reviews sent there."""
        for path in reviews:
            for outcome in _OUTCOMES:
                REVIEWS.labels(path.strip("/"), outcome)
        self._reviews, self._port, self._host = reviews, port, host
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._stack = AsyncExitStack()
        self.is_trusted = False
        """Whether the server has a certificate."""

    def use(self, certificate: str, key: str) -> None:
        """Serve new connections with this certificate, in PEM."""
        load_pem(self._context, (certificate + key).encode("ascii"))
        self.is_trusted = True

    async def __aenter__(self) -> Self:
        routes = [
            web.post(path, partial(_serve, path.strip("/"), decide))
            for path, decide in self._reviews.items()
        ]
        server = serving(
            routes,
            self._host,
            self._port,
            tls=self._context,
            most_bytes=_MOST_BYTES,
            shutdown_s=_SHUTDOWN_S,
        )
        await self._stack.enter_async_context(server)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._stack.aclose()


async def _serve(step: str, decide: Decide, request: web.Request) -> web.Response:
    try:
        review = decide(await request.read())
    except MalformedReviewError as error:
        REVIEWS.labels(step, "malformed").inc()
        return web.Response(status=400, text=str(error))
    response = review["response"]
    outcome = "changed" if "patch" in response else "allowed" if response["allowed"] else "refused"
    REVIEWS.labels(step, outcome).inc()
    return web.json_response(review)
