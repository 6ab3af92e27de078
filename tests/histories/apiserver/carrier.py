"""A carrier over the model, for one process of a history."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from bindery.kube.errors import SilentError, error_from_answer
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from tests.histories.apiserver.refusals import Refusal
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.watches import Watch

BOOKMARK_S: Final = 60.0
_UNMARKED: Final = "events"
"""The API server has no watch cache of events, and sends no bookmarks for them."""


class ModelCarrier:
    """Passes requests to the model at once, as `caller`; watches are lines from its queues."""

    def __init__(self, server: ModelApiServer, caller: str) -> None:
        self.field_manager = caller
        self._server = server
        self._watches: set[Watch] = set()

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        del timeout_s
        answer = self._server.handle(request, self.field_manager)
        if answer.status >= 400:
            raise error_from_answer(answer.status, answer.body, answer.retry_after)
        return answer

    async def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch; silence for `idle_s` is a failure."""
        try:
            watch = self._server.watch(request, self.field_manager)
        except Refusal as refusal:
            answer = refusal.answer()
            raise error_from_answer(answer.status, answer.body, answer.retry_after) from refusal
        self._watches.add(watch)
        try:
            async for line in lines(watch, idle_s):
                yield line
        finally:
            watch.close()
            self._watches.discard(watch)

    async def close(self) -> None:
        """End all watches."""
        for watch in tuple(self._watches):
            watch.close()


async def lines(watch: Watch, idle_s: float) -> AsyncGenerator[bytes, None]:
    """Yield the lines of `watch` as they come, with a bookmark each minute, until it ends."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    watch.wake = came.set
    ends_at = loop.time() + watch.timeout_s
    marks = watch.with_bookmarks and watch.kind.plural != _UNMARKED
    mark_at = loop.time() + BOOKMARK_S if marks else ends_at
    silent_at = loop.time() + idle_s
    while True:
        while watch.lines:
            yield watch.lines.popleft()
            silent_at = loop.time() + idle_s
        if not watch.is_open or loop.time() >= ends_at:
            return
        if loop.time() >= mark_at:
            mark_at += BOOKMARK_S
            watch.bookmark()
            continue
        if loop.time() >= silent_at:
            raise SilentError(f"watch {watch.kind.plural}: nothing came for {idle_s:g} s")
        came.clear()
        timer = loop.call_at(min(ends_at, mark_at, silent_at), came.set)
        try:
            await came.wait()
        finally:
            timer.cancel()
