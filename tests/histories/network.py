"""The network between simulated processes and the model of the API server.

Every request takes drawn time there and back. The server executes it whether or not the caller is
still there, as a request that was sent is not taken back by the caller's death. Faults apply to the
requests of one process; `history` begins and ends them.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final
from urllib.parse import parse_qs

from bindery.kube.errors import (
    OutcomeUnknownError,
    SilentError,
    UnreachableError,
    error_from_answer,
)
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from tests.histories.apiserver.carrier import BOOKMARK_S
from tests.histories.apiserver.refusals import Refusal
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.watches import Watch
from tests.histories.loop import VirtualLoop
from tests.histories.plan import LATEST_S, FaultKind

_WAY_S: Final = (0.0005, 0.02)
"""Time of a request or an answer on its way, in seconds: at least and at most."""
_SLOW_WAY_S: Final = 0.4
_VERSION: Final = b'"resourceVersion"'
LOST: Final = float("inf")
_END: Final = b""
_SILENCE: Final = b"silence"


@dataclass
class Line:
    """The connection of one process: what is wrong with it, and its chance."""

    chance: Random
    faults: dict[FaultKind, float] = field(default_factory=dict)
    """What is wrong now -> seconds, for LAG."""
    watches: set["_Watch"] = field(default_factory=set)
    traps: list[Callable[[str], float | None]] = field(default_factory=list)
    """Called with verb and resource before each request is sent. They return by how many seconds
    the request is late, `LOST`, or None where they do not strike."""
    first_version: int = 0
    """Watches cannot begin at an earlier version, as the cache of the server lacks it."""

    def way_s(self) -> float:
        """Draw how long a message is on its way."""
        if self.chance.random() < 0.03:
            return self.chance.uniform(0.0, _SLOW_WAY_S)
        return self.chance.uniform(*_WAY_S)

    def meets(self, kind: FaultKind, likelihood: float) -> bool:
        """Draw whether a request meets a fault that lies on the line."""
        return kind in self.faults and self.chance.random() < likelihood

    def to_server_s(self, request: ApiRequest) -> float:
        """Draw how long a request is on its way to the server."""
        delay_s = self.faults.get(FaultKind.DELAY)
        if delay_s is None:
            return self.way_s()
        return self.chance.uniform(0.0, late_s(f"{request.verb} {request.resource}", delay_s))

    def from_server_s(self) -> float:
        """Draw how long an answer is on its way."""
        delay_s = self.faults.get(FaultKind.OLD_ANSWERS)
        return self.way_s() if delay_s is None else self.chance.uniform(0.0, delay_s)

    def struck(self, call: str) -> float:
        """Let the traps see a call; return by how much it is late."""
        for trap in tuple(self.traps):
            delay_s = trap(call)
            if delay_s is not None:
                return delay_s
        return 0.0

    def forget_watches(self) -> None:
        """Close the watches of a process that has died."""
        for watch in self._in_order():
            watch.close()
        self.watches.clear()

    def break_watches(self) -> None:
        """Cut all watches, some within a line."""
        for watch in self._in_order():
            watch.cut()

    def _in_order(self) -> list["_Watch"]:
        return sorted(self.watches, key=lambda each: each.number)


class Network:
    """Carries requests of all processes to one model."""

    def __init__(self, server: ModelApiServer, loop: VirtualLoop, seed: int) -> None:
        self._server, self._loop, self._seed = server, loop, seed
        self._lines: dict[str, Line] = {}
        """Name of a process -> its line, which outlives it."""
        self.calls: Counter[str] = Counter()
        """Name of a process -> requests that reached the server."""
        self.before_call: Callable[[ApiRequest, str], None] = lambda _request, _caller: None
        self.after_call: Callable[[], None] = lambda: None
        self.held_s: Callable[[ApiRequest, str], float] = lambda _request, _caller: 0.0
        """How long a request of a process is held on its way, beside the usual."""
        self._watches = 0

    def line(self, process: str) -> Line:
        """Return the line of a process."""
        if process not in self._lines:
            self._lines[process] = Line(Random(f"line {self._seed} {process}"))
        return self._lines[process]

    def carrier(self, process: str) -> "NetworkCarrier":
        """Return a carrier for a process."""
        return NetworkCarrier(self, process)

    def shut(self) -> None:
        """Cut all lines for good, at the end of a history."""
        self.before_call, self.after_call = lambda _request, _caller: None, lambda: None
        for line in self._lines.values():
            line.faults = {FaultKind.CUT: 0.0}

    async def exchange(self, request: ApiRequest, caller: str, timeout_s: float) -> Answer:
        """Send a request and wait for its answer."""
        line, loop = self.line(caller), self._loop
        if line.meets(FaultKind.CUT, 1.0):
            raise UnreachableError(f"{request.verb} {request.resource}: no connection")
        answered: asyncio.Future[Answer] = loop.create_future()
        delay_s = line.struck(f"{request.verb} {request.resource}")
        is_commit = f"{request.verb} {request.resource}" == "create bindrequests"
        if is_commit and line.meets(FaultKind.LOSE_COMMITS, 1.0):
            delay_s = LOST
        if delay_s != LOST and not line.meets(FaultKind.LOSE_REQUESTS, 1 / 3):
            held_s = self.held_s(request, caller)
            way_s = delay_s + line.to_server_s(request) + held_s
            loop.outside(way_s, self._arrive, request, caller, answered, held_s > 0)
        # Half of all timers of a history: asyncio.timeout would cost more.
        late = loop.call_later(timeout_s, _give_up, answered, request, timeout_s)
        try:
            return await answered
        finally:
            late.cancel()

    def _arrive(
        self,
        request: ApiRequest,
        caller: str,
        answered: "asyncio.Future[Answer]",
        is_held: bool,
    ) -> None:
        line = self.line(caller)
        answer = self._refusal(request, line)
        if answer is None:
            self.calls[caller] += 1
            if not is_held:  # it was sent long before: the judge of requests asks when
                self.before_call(request, caller)
            answer = self._server.handle(request, caller)
            self.after_call()
            if line.meets(FaultKind.FAIL, 1 / 4):
                answer = _status(500, "InternalError")
        if not line.meets(FaultKind.LOSE_ANSWERS, 1 / 3):
            self._loop.outside(line.from_server_s(), _give, answered, answer)

    @staticmethod
    def _refusal(request: ApiRequest, line: Line) -> Answer | None:
        """Return a refusal without effect, if the request meets one."""
        if line.meets(FaultKind.THROTTLE, 1 / 2):
            return _status(429, "TooManyRequests", line.chance.choice((None, 1, 2)))
        if line.meets(FaultKind.FAIL, 1 / 4):
            return _status(500, "InternalError")
        if request.verb == "list" and line.meets(FaultKind.EXPIRE, 1 / 2):
            return _status(410, "Expired")
        is_commit = f"{request.verb} {request.resource}" == "create bindrequests"
        if is_commit and line.meets(FaultKind.REFUSE, 1 / 2):
            return _status(403, "Forbidden")
        has_version = _VERSION in (request.body or b"") and request.verb in ("update", "patch")
        if has_version and line.meets(FaultKind.CONFLICT, 1 / 2):
            return _status(409, "Conflict")
        return None

    async def watch(
        self, request: ApiRequest, caller: str, idle_s: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch."""
        line = self.line(caller)
        await asyncio.sleep(line.way_s())
        if line.meets(FaultKind.CUT, 1.0):
            raise UnreachableError(f"watch {request.resource}: no connection")
        if FaultKind.REBUILD_CACHE in line.faults:
            # "storage is (re)initializing", as kube-apiserver answers until its cache is full.
            raise error_from_answer(429, _status(429, "TooManyRequests", 1).body, "1")
        if _version(request) < line.first_version or line.meets(FaultKind.EXPIRE, 1 / 2):
            raise error_from_answer(410, _status(410, "Expired").body)
        try:
            opened = self._server.watch(request, caller)
        except Refusal as refusal:
            answer = refusal.answer()
            raise error_from_answer(answer.status, answer.body) from refusal
        self._watches += 1
        watch = _Watch(self._watches, opened, line, self._loop)
        line.watches.add(watch)
        try:
            async for received in watch.lines(idle_s):
                yield received
        finally:
            line.watches.discard(watch)
            watch.close()


class NetworkCarrier:
    """The product's way to the API server: one process on the network."""

    def __init__(self, network: Network, process: str) -> None:
        self._network, self._process = network, process
        self.field_manager = process

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        answer = await self._network.exchange(request, self._process, timeout_s)
        if answer.status >= 400:
            raise error_from_answer(answer.status, answer.body, answer.retry_after)
        return answer

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch."""
        return self._network.watch(request, self._process, idle_s)

    async def close(self) -> None:
        """Close nothing: a connection is there for one request."""


class _Watch:
    """One open watch: lines arrive in order, each after some time on its way."""

    def __init__(self, number: int, opened: Watch, line: Line, loop: VirtualLoop) -> None:
        self.number = number
        self._opened, self._line, self._loop = opened, line, loop
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._on_way: deque[bytes] = deque()
        self._last_s = 0.0
        self._heard_s = loop.time()
        """When the last line arrived."""
        self._listening: asyncio.TimerHandle | None = None
        self._is_cut = False
        opened.wake = self._send_all
        self._send_all()
        loop.outside(BOOKMARK_S, self._mark)

    def close(self) -> None:
        """Close it at the server."""
        self._opened.close()

    def _mark(self) -> None:
        if self._opened.is_open:
            self._opened.bookmark()
            self._loop.outside(BOOKMARK_S, self._mark)

    def _send_all(self) -> None:
        while self._opened.lines:
            self._send(self._opened.lines.popleft())
        if not self._opened.is_open:
            self._send(_END)

    def _send(self, sent: bytes) -> None:
        lag_s = self._line.faults.get(FaultKind.LAG)
        delay_s = self._line.way_s() if lag_s is None else self._line.chance.uniform(0.0, lag_s)
        self._last_s = max(self._last_s, self._loop.time() + delay_s)
        self._on_way.append(sent)
        self._loop.outside(self._last_s - self._loop.time(), self._receive)

    def _receive(self) -> None:
        # Timers of one moment run in any order, lines do not.
        sent = self._on_way.popleft()
        self._heard_s = self._loop.time()
        if not self._is_cut:
            self._received.put_nowait(sent)

    def cut(self) -> None:
        """End it, perhaps within a line."""
        if self._line.chance.random() < 0.3:
            self._received.put_nowait(b'{"type":"MODIFIED","object":{"kin')
        self._received.put_nowait(_END)
        self._is_cut = True

    async def lines(self, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield what arrives; raise an error at a cut and after `idle_s` of silence."""
        self._listen(idle_s)
        try:
            while (received := await self._received.get()) not in (_END, _SILENCE):
                yield received
        finally:
            if self._listening is not None:
                self._listening.cancel()
        if received == _SILENCE:
            raise SilentError(f"silence for {idle_s:.0f} s")
        if self._is_cut:
            raise OutcomeUnknownError("the watch was cut")

    def _listen(self, idle_s: float) -> None:
        """Look again when it could have been silent for `idle_s`: one timer, not one for a line."""
        at_s = self._heard_s + idle_s
        if at_s > self._loop.time():
            self._listening = self._loop.call_at(at_s, self._listen, idle_s)
        else:
            self._received.put_nowait(_SILENCE)


def late_s(call: str, seconds: float) -> float:
    """Return how late a call may be, at most `seconds`.

    Fencing tokens make the creation of a BindRequest harmless for as long as it is on its way.
    """
    return seconds if call == "create bindrequests" else min(seconds, LATEST_S)


def _version(request: ApiRequest) -> int:
    """Return the version at which a watch is to begin."""
    return int(parse_qs(request.target.partition("?")[2])["resourceVersion"][0])


def _give(answered: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not answered.done():
        answered.set_result(answer)


def _give_up(answered: "asyncio.Future[Answer]", request: ApiRequest, timeout_s: float) -> None:
    if not answered.done():
        text = f"{request.verb} {request.resource}: no answer in {timeout_s:.1f} s"
        answered.set_exception(OutcomeUnknownError(text))


def _status(code: int, reason: str, retry_after_s: int | None = None) -> Answer:
    details = {"retryAfterSeconds": retry_after_s} if retry_after_s is not None else None
    return Refusal(code, reason, "a fault of the history", details=details).answer()
