"""Where blows of the kill matrix are dealt: between the binder and the API server.

The proxy knows which corner a write concerns and notes it. A write that is to be met by a kill is
held, undone or done but unanswered, until all gangs of the volley are so far: one kill then befalls
each of them at its own write, and one start of the binder has to mend them all.
"""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from faultproxy import FaultProxy
from matrixworld import Blow, Phase, Step

_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=/|$)")
"""What the API server appends to a `generateName`."""
_NOT_OF_PLUGINS = re.compile(r"/(events|leases|bindrequests)\b")


@dataclass(eq=False)
class Strike:
    """A blow to be dealt once, at one step in one corner."""

    step: Step
    blow: Blow
    corner: str = ""
    """Its namespace, which is part of the names of all its objects."""
    is_dealt: bool = False
    seen: int = 0

    def meets(self, write: Step) -> bool:
        """Return whether this is the write, and count it."""
        step = self.step
        if (write.phase, write.method, write.path) != (step.phase, step.method, step.path):
            return False
        self.seen += 1
        return self.seen == step.at


@dataclass
class Volley:
    """The kills of some runs that happen together: `awaited` has the strikes of each run."""

    awaited: list[list[Strike]]
    held: list[Strike] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, strike: Strike) -> None:
        """Take in that the write of `strike` has come, and waits."""
        self.held.append(strike)
        self.changed.set()

    def end(self, run: list[Strike]) -> None:
        """Take in that a run has ended: what it has not met will not come."""
        self.awaited = [other for other in self.awaited if other is not run]
        self.held = [strike for strike in self.held if strike not in run]
        self.changed.set()

    def deal(self) -> None:
        """Take in that the binder was killed."""
        for strike in self.held:
            strike.is_dealt = True
        self.held.clear()
        self.awaited = [run for run in self.awaited if not all(each.is_dealt for each in run)]

    async def gathered(self, patience_s: float) -> None:
        """Wait until every run that awaits a kill is held; for `patience_s` after the first."""
        while self.awaited and not self.held:
            await self._wait(None)
        deadline_s = asyncio.get_running_loop().time() + patience_s
        while len(self.held) < len(self.awaited):
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            await self._wait(left_s)

    async def _wait(self, timeout_s: float | None) -> None:
        self.changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self.changed.wait()
        except TimeoutError:
            return


class Arena(FaultProxy):
    """Stands between the binder and the API server, notes every write and deals blows."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(kubeconfig, directory)
        self.phases: dict[str, Phase] = {}
        """Corner -> the phase of its gang; corners without one are not looked at."""
        self.strikes: list[Strike] = []
        self.volley = Volley([])
        self.writes: dict[str, list[Step]] = {}
        """Corner -> the writes concerning it, in order, not numbered."""
        self._owners: dict[str, str] = {}
        """Name of an object that was made for a corner, though it does not say so -> corner."""

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        strike = await self._note(request) if request.method != "GET" else None
        if strike is None:
            return await super()._handle(request)
        if strike.blow in (Blow.ERROR, Blow.CONFLICT):
            strike.is_dealt = True
            return web.Response(status=500 if strike.blow is Blow.ERROR else 409, text="made up")
        if strike.blow is not Blow.KILLED_BEFORE:
            await super()._handle(request)
        if strike.blow.kills:
            self.volley.hold(strike)
            await asyncio.Event().wait()  # the end of the binder, or its patience, cancels this
        strike.is_dealt = True
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _note(self, request: web.BaseRequest) -> Strike | None:
        if _NOT_OF_PLUGINS.search(request.path):
            return None
        corner = self._corner_of(request, (await request.read()).decode(errors="replace"))
        if corner is None:
            return None
        write = Step(self.phases[corner], request.method, _without_names(request.path, corner))
        self.writes.setdefault(corner, []).append(write)
        mine = (strike for strike in self.strikes if strike.corner == corner)
        return next((strike for strike in mine if strike.meets(write)), None)

    def _corner_of(self, request: web.BaseRequest, body: str) -> str | None:
        path, name = request.path, request.path.rsplit("/", 1)[-1]
        corner = next((corner for corner in self.phases if corner in path + body), None)
        if corner is None:
            owner = self._owners.get(name)
            return owner if owner in self.phases else None
        if request.method == "POST" and corner not in path:
            self._owners[json.loads(body)["metadata"]["name"]] = corner
        return corner


def _without_names(path: str, corner: str) -> str:
    """Return `path` without what differs from run to run: group, version, and drawn names."""
    path = re.sub(r"^/apis?/([^/]+/)?v\w+/", "", path).replace(corner, "*")
    path = re.sub(r"namespaces/[^/]+/", "", path)
    path = _GENERATED.sub("-*", path)
    return re.sub(r"[0-9a-f]{5,}[0-9a-f-]*", "*", path)
