"""Plays a plan: the product and its world in one thread, from the first write to rest.

One plan is one history, in every process and for every hash seed: the same writes at the same
virtual moments, which `Played.digest` sums up.
"""

import gc
import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import structlog

from bindery.binder.stopping import Stop
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.http.requests import ApiRequest
from tests.histories import components
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change
from tests.histories.judge import BrokenInvariantError, Judge
from tests.histories.leftovers import Leftovers
from tests.histories.loop import Process, SpinsError, VirtualLoop
from tests.histories.needs import room
from tests.histories.network import LOST, Network, late_s
from tests.histories.plan import (
    EPOCH_S,
    PROCESSES,
    QUIET_AFTER_S,
    CallFate,
    Fault,
    FaultKind,
    Plan,
)
from tests.histories.rest import Rest
from tests.histories.world import World

REST_WITHIN_S: Final = 100.0
"""How long everything has to come to rest, in virtual seconds: longer than the longest pause after
a failure (60 s), and shorter than a promise lasts (120 s)."""
_LOOK_S: Final = 5.0
_GIVEN_WITHIN_S: Final = 45.0
"""How long the schedulers have to give all free room to pods that go before all others.

Longer than a process needs to notice that the request of a watch was lost (30 s)."""
_CALL_S: Final = 30.0
_FROM_PEOPLE: Final = "people"


@dataclass
class Played:
    """What a history came to."""

    plan: Plan
    problem: str = ""
    """The invariant that broke; empty: none."""
    digest: str = ""
    """Of all writes, with their moments."""
    virtual_s: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    """Process -> requests that reached the API server."""
    faults: Counter[FaultKind] = field(default_factory=Counter)
    calls_struck: int = 0
    """Faults that struck at a call."""
    evicted: int = 0
    """Pods that schedulers evicted."""
    bound: int = 0
    log: list[str] = field(default_factory=list)
    """Warnings and errors of the processes, with their moments."""
    writes: list[Change] = field(default_factory=list)


class History:
    """One plan being played."""

    def __init__(self, plan: Plan, rest_within_s: float) -> None:
        self._plan, self._rest_within_s = plan, rest_within_s
        self._played = Played(plan)
        self._loop = VirtualLoop()
        self._server = ModelApiServer(self._now_s, Random(f"server {plan.seed}"))
        self._network = Network(self._server, self._loop, plan.seed)
        self._judge = Judge(self._server, plan)
        self._network.after_call = self._judge.look
        self._network.before_call = self._before_call
        self._running: dict[str, Process] = {}
        self._stops: dict[str, Stop] = {}
        """Process -> its stop; a binder reads it."""
        self._dead: list[Process] = []
        self._starts: Counter[str] = Counter()
        self._jumped_s: defaultdict[str, float] = defaultdict(float)
        """Process -> how far the wall clock of its machine has jumped ahead."""
        environment = Environment(self._now_s, Random(f"people {plan.seed}"))
        self._client = Client(self._network.carrier(_FROM_PEOPLE), _CALL_S, environment)
        self._world = World(plan, self._server, self._client, Random(f"world {plan.seed}"))
        self._judge.see = self._world.see
        self._problem: BaseException | None = None
        self._has_ended = False

    def play(self) -> Played:
        """Play to the end, or until an invariant breaks."""
        self._loop.set_exception_handler(self._note_error)
        structlog.configure(processors=[self._note_log], cache_logger_on_first_use=False)
        living = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(living)
        except (BrokenInvariantError, SpinsError) as broken:
            self._played.problem = str(broken)
            living.cancel()
        self._end()
        return self._played

    def _now_s(self) -> float:
        return EPOCH_S + self._loop.time()

    async def _live(self) -> None:
        await self._world.prepare()
        for name in PROCESSES:
            self._start(name)
        for fault in self._plan.faults:
            begin = self._set_trap if fault.at_call else self._begin
            self._loop.outside(fault.at_s, begin, fault)
        living = self._loop.start(_FROM_PEOPLE, self._world.live())
        rest, leftovers = Rest(self._server, self._world), Leftovers(self._server)

        def problems() -> list[str]:
            return rest.problems(self._now_s) or leftovers.problems()

        await self._sleep(QUIET_AFTER_S)
        for name in PROCESSES:
            self._come_back(name)
        found = problems()
        while found and self._loop.time() < QUIET_AFTER_S + self._rest_within_s:
            await self._sleep(_LOOK_S)
            found = problems()
            if living.error is not None:
                raise living.error
        found = found or await self._held_room()
        living.kill()
        if found:
            raise BrokenInvariantError(f"at rest: {'; '.join(found)}")

    async def _held_room(self) -> list[str]:
        """Ask for all room that is free; return what the schedulers do not give."""
        await room.ask_for_all(self._server, self._plan, self._client)
        end_s = self._loop.time() + _GIVEN_WITHIN_S
        held = room.held_by_schedulers(self._server, self._plan)
        while held and self._loop.time() < end_s:
            await self._sleep(1.0)
            held = room.held_by_schedulers(self._server, self._plan)
        return held

    async def _sleep(self, seconds: float) -> None:
        """Let time pass; raise what has gone wrong meanwhile."""
        end_s = self._loop.time() + seconds
        while self._loop.time() < end_s:
            slept: Any = self._loop.create_future()
            self._loop.call_later(min(1.0, end_s - self._loop.time()), slept.set_result, None)
            await slept
            if self._problem is not None:
                raise self._problem

    # -- processes and faults --------------------------------------------------------------------

    def _start(self, name: str) -> None:
        self._starts[name] += 1
        number = PROCESSES.index(name)
        skew_s = self._plan.skew_s[number]
        identity = f"{name}-{self._starts[name]}"
        environment = Environment(
            lambda: self._now_s() + skew_s + self._jumped_s[name],
            Random(f"{self._plan.seed} {identity}"),
        )
        main = components.MAINS[name.partition("-")[0]]
        carrier = self._network.carrier(name)
        stop = self._stops[name] = Stop()
        self._running[name] = self._loop.start(
            name, main(carrier, environment, self._plan, identity, stop)
        )

    def _come_back(self, name: str) -> None:
        process = self._running[name]
        self._clear(name)
        if process.is_frozen:
            self._loop.wake(process)
        if process.is_dead:
            if process.error is not None:
                self._note(name, f"ended: {process.error!r}")
            self._dead.append(process)
            self._network.line(name).forget_watches()
            self._start(name)

    def _stop(self, name: str) -> None:
        """Do what SIGTERM does."""
        if name.startswith("binder"):
            self._stops[name].set()
        else:
            self._running[name].cancel()

    def _clear(self, name: str) -> None:
        """End all faults of a process."""
        line = self._network.line(name)
        line.faults.clear()
        line.traps.clear()
        self._jumped_s[name] = 0.0

    def _set_trap(self, fault: Fault) -> None:
        """Let a fault strike at the next call of its kind, by the process that makes it."""
        if self._has_ended:
            return
        names = [name for name in PROCESSES if name.startswith(fault.process)]
        lines = [self._network.line(name) for name in names]

        def strike(call: str) -> float | None:
            name = self._loop.current()
            if call != fault.at_call or self._running[name].is_dead:
                return None
            for line in lines:
                if strike in line.traps:  # a process that came back has none
                    line.traps.remove(strike)
            self._played.calls_struck += 1
            self._begin(replace(fault, process=name, after_steps=1))
            match fault.fate:
                case CallFate.IS_LOST:
                    return LOST
                case CallFate.IS_LATE:
                    return late_s(call, fault.seconds)
            return 0.0

        for line in lines:
            line.traps.append(strike)

    def _begin(self, fault: Fault) -> None:
        if self._has_ended:
            return  # the processes end now
        self._played.faults[fault.kind] += 1
        line, process = self._network.line(fault.process), self._running[fault.process]
        match fault.kind:
            case FaultKind.KILL:
                process.dies_at_step = process.steps + fault.after_steps
            case FaultKind.FREEZE:
                process.freeze()
            case FaultKind.STOP:
                self._stop(fault.process)
            case FaultKind.BREAK_WATCHES:
                line.break_watches()
            case FaultKind.JUMP:
                is_back = fault.after_steps % 2
                self._jumped_s[fault.process] = -fault.seconds if is_back else fault.seconds
            case FaultKind.CUT | FaultKind.REBUILD_CACHE:
                line.faults[fault.kind] = fault.seconds
                line.break_watches()
            case _:
                line.faults[fault.kind] = fault.seconds
        self._loop.outside(fault.seconds, self._finish, fault)

    def _finish(self, fault: Fault) -> None:
        if self._has_ended or self._loop.time() > QUIET_AFTER_S:
            return  # all faults have ended
        process = self._running[fault.process]
        match fault.kind:
            case FaultKind.KILL | FaultKind.STOP:
                process.kill()
                self._come_back(fault.process)
            case FaultKind.FREEZE:
                self._loop.wake(process)
            case FaultKind.JUMP:
                self._jumped_s[fault.process] = 0.0
            case FaultKind.REBUILD_CACHE:
                line = self._network.line(fault.process)
                if line.faults.pop(fault.kind, None) is not None:
                    line.first_version = self._server.store.revision
            case _:
                self._network.line(fault.process).faults.pop(fault.kind, None)

    def _before_call(self, request: ApiRequest, caller: str) -> None:
        self._judge.look_at_request(request, caller, self._now_s())

    # -- what is noted ---------------------------------------------------------------------------

    def _note(self, who: str, text: str) -> None:
        self._played.log.append(f"{self._loop.time():9.3f} {who}: {text}")

    def _note_log(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        if method in ("warning", "error", "exception", "critical"):
            more = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
            self._note(self._loop.current() or _FROM_PEOPLE, f"{event['event']} {more}")
            if event.get("exc_info"):
                error = sys.exc_info()[1]
                self._problem = self._problem or BrokenInvariantError(
                    f"{self._loop.current()} logs: {event['event']}: {error!r}"
                )
                self._problem.__cause__ = error
        raise structlog.DropEvent

    def _note_error(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._problem = self._problem or error
        self._note("loop", str(context.get("message")))

    def _end(self) -> None:
        self._has_ended = True
        played, log = self._played, self._server.store.log
        played.virtual_s = self._loop.time()
        played.writes = log
        played.calls = self._network.calls
        played.bound = len(self._judge.nodes_of)
        played.evicted = len(self._judge.evictions.evicted)
        digest = hashlib.sha256()
        for change in log:
            digest.update(f"{change.at_s:.6f} {change.writer} {change.type} ".encode())
            digest.update(change.version.body)
        played.digest = digest.hexdigest()
        log_lines = len(played.log)
        self._network.shut()
        self._loop.end()
        del played.log[log_lines:]
        structlog.reset_defaults()


def play(plan: Plan, rest_within_s: float = REST_WITHIN_S) -> Played:
    """Play a plan. Everything has `rest_within_s` virtual seconds to come to rest."""
    with _without_garbage_collection():
        return History(plan, rest_within_s).play()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect no cycles meanwhile: it took an eighth of the time, and came at moments of chance.

    What a history leaves, some ten MB, is collected when the next one is made.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
