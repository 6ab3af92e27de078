"""A stand-in for a Prometheus server: an HTTP server on loopback with its query API.

It does not evaluate PromQL. A test sets each answer for a word that occurs in the query;
the queries are kept, so that tests can check them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


def vector(samples: Mapping[str, float | str], label: str = "queue") -> dict[str, Any]:
    """Return the answer with one series a queue; "" is a series without labels."""
    result = [
        {"metric": {label: name} if name else {}, "value": [1.0, str(value)]}
        for name, value in samples.items()
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


class PrometheusStandIn:
    """Answers `/api/v1/query` as the test has set."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        """Word in the query -> the JSON of the answer, or its text."""
        self.status = 200
        self.asked: list[dict[str, str]] = []
        """The parameters of each query."""
        self.silent = asyncio.Event()
        """While set, nothing is answered."""
        self.queries = asyncio.Semaphore(0)
        """Released once a query."""
        self.address = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["PrometheusStandIn"]:
        application = web.Application()
        application.add_routes([web.get("/prom/api/v1/query", self._query)])
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}/prom"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        self.queries.release()
        if self.silent.is_set():
            await asyncio.Event().wait()
        query = request.query["query"]
        answer = next((a for word, a in self.answers.items() if word in query), vector({}))
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(text=text, status=self.status, content_type="application/json")
