"""The proxy that deals the blows of the kill matrix, between the binder and the API server.

The proxy finds the corner that a write concerns, and records the write. A write with a kill is
held, undone or done but unanswered, until all gangs of the volley have reached theirs. One kill
then hits each gang at its own write, and one start of the binder must mend them all.
"""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.e2e.matrixworld import Blow, Phase, Step
from tests.kube.faultproxy import FaultProxy

_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=/|$)")
"""What the API server appends to a `generateName`."""
_NOT_OF_PLUGINS = re.compile(r"/(events|leases|bindrequests)\b")
_STATUS = re.compile(r"/bindrequests/[^/]+/status$")


@dataclass(eq=False)
class Strike:
    """Blows to be dealt at one step in one corner: one after the other, as the write is repeated.

    A blow after which the write is not repeated ends it, as it is what the run shows.
    """

    step: Step
    blows: list[Blow]
    """Those to come."""
    corner: str = ""
    """Its namespace, which is part of the names of all its objects."""
    dealt: list[Blow] = field(default_factory=list)
    _seen: int = 0
    _target: str = ""
    _is_under_way: bool = False

    def meets(self, write: Step, target: str) -> bool:
        """Return whether this is the write, and count it; `target`: the object's path."""
        step = self.step
        if (write.phase, write.method, write.path) != (step.phase, step.method, step.path):
            return False
        if not self._target:
            self._seen += 1
            if self._seen == step.at:
                self._target = target
        # Both pods of a gang may write the same object at once: the other's write passes.
        if self._is_under_way or not self.blows or target != self._target:
            return False
        self._is_under_way = True
        return True

    def deal(self) -> None:
        """Take in that the next blow is dealt."""
        self.dealt.append(self.blows.pop(0))
        self._is_under_way = False


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
        """Record that a run has ended: its remaining blows will not come."""
        self.awaited = [other for other in self.awaited if other is not run]
        self.held = [strike for strike in self.held if strike not in run]
        self.changed.set()

    def deal(self) -> None:
        """Record that the binder was killed."""
        for strike in self.held:
            strike.deal()
        self.held.clear()
        self.awaited = [run for run in self.awaited if any(each.blows for each in run)]

    async def gathered(self, patience_s: float) -> None:
        """Wait until every run that awaits a kill is held, or no further one comes for
        `patience_s`.
        """
        while self.awaited and not self.held:
            await self._wait(None)
        count = -1
        while count < len(self.held) < len(self.awaited):
            count = len(self.held)
            await self._wait(patience_s)

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
        self.notes_status = False
        """Whether writes of the status of BindRequests are looked at too."""
        self.writes: dict[str, list[Step]] = {}
        """Corner -> the writes concerning it, in order, not numbered."""
        self._owners: dict[str, str] = {}
        """Name of an object that was created for a corner, without its name -> corner."""

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        strike = await self._note(request) if request.method != "GET" else None
        if strike is None:
            return await super()._handle(request)
        blow = strike.blows[0]
        if blow in (Blow.ERROR, Blow.CONFLICT):
            strike.deal()
            return web.Response(status=500 if blow is Blow.ERROR else 409, text="made up")
        if blow is not Blow.KILLED_BEFORE:
            await super()._handle(request)
        if blow.kills:
            self.volley.hold(strike)
            await asyncio.Event().wait()  # the end of the binder, or its patience, cancels this
        strike.deal()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _note(self, request: web.BaseRequest) -> Strike | None:
        is_status = self.notes_status and _STATUS.search(request.path)
        if _NOT_OF_PLUGINS.search(request.path) and not is_status:
            return None
        body = (await request.read()).decode(errors="replace")
        target = request.path
        if request.method == "POST":
            target += "/" + json.loads(body).get("metadata", {}).get("name", "")
        corner = self._corner_of(request, target, body)
        if corner is None:
            return None
        write = Step(self.phases[corner], request.method, _without_names(request.path, corner))
        self.writes.setdefault(corner, []).append(write)
        mine = (strike for strike in self.strikes if strike.corner == corner)
        return next((strike for strike in mine if strike.meets(write, target)), None)

    def _corner_of(self, request: web.BaseRequest, target: str, body: str) -> str | None:
        name = target.rsplit("/", 1)[-1]
        corner = next((corner for corner in self.phases if corner in request.path + body), None)
        if corner is None:
            owner = self._owners.get(name)
            return owner if owner in self.phases else None
        if corner not in request.path:
            self._owners[name] = corner
        return corner


def _without_names(path: str, corner: str) -> str:
    """Return `path` without what differs from run to run: group, version, and drawn names."""
    path = re.sub(r"^/apis?/([^/]+/)?v\w+/", "", path).replace(corner, "*")
    path = re.sub(r"namespaces/[^/]+/", "", path)
    path = _GENERATED.sub("-*", path)
    return re.sub(r"[0-9a-f]{5,}[0-9a-f-]*", "*", path)
