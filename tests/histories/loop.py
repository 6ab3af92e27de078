"""An event loop with a virtual clock, whose tasks belong to processes that can die and freeze.

Time passes at once when nothing is ready. A task, a callback and a timer belong to the process in
whose context they were made; callbacks of the network and of the world belong to no process.
Nothing of a dead process runs again: no `finally`, no cancellation, as after kill -9. What is due
for a frozen process waits until it wakes, as after SIGSTOP.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, TypeVarTuple

Ts = TypeVarTuple("Ts")

_ROUNDS: Final = 3
_END_S: Final = 30.0
_MOST_STEPS: Final = 200_000
"""More steps than any history takes at one moment; the most that were seen are 2,000."""
_MOST_LOOKS: Final = 1_000_000
"""More looks at the clock than any round of steps takes."""
_CURRENT: Final = ContextVar["Process | None"]("process", default=None)
"""The process in whose context the code runs."""


@dataclass(eq=False)
class Process:
    """A simulated process: what runs in its context."""

    name: str
    is_dead: bool = False
    is_frozen: bool = False
    steps: int = 0
    """Callbacks that have run."""
    dies_at_step: int | None = None
    main: "asyncio.Task[object] | None" = None
    error: BaseException | None = None
    """What ended its main coroutine, if an error did."""
    waiting: deque["_Step"] = field(default_factory=deque)
    """What became due while it was frozen or dead, in order; for a dead process it never runs."""
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)
    """All unfinished tasks. A dead process keeps them: collected, they would run `finally`."""

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.is_dead = True

    def cancel(self) -> None:
        """Cancel its main coroutine, so that it ends in order."""
        if self.main is not None:
            self.main.cancel()

    def freeze(self) -> None:
        """Let nothing of it run until the loop wakes it."""
        self.is_frozen = True


class StalledError(Exception):
    """The loop has neither work nor a timer: the history waits for something that never comes."""


class SpinsError(Exception):
    """A process works without end and lets no time pass."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. Timers of one moment run in the order in which they were set."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(_task)
        self._now_s = 0.0
        self._due: deque[_Step] = deque()
        self._timers: list[tuple[float, int, _Step]] = []
        """A heap by time and number."""
        self._timers_set = 0
        self._steps_now = 0
        """Steps since time has passed."""
        self._looks = 0
        """How often the current round of steps has asked for the time."""
        self._spins: SpinsError | None = None
        self._processes: list[Process] = []
        self._outside = Context()
        """The context of callbacks of the network and of the world."""

    def time(self) -> float:
        """Return the virtual seconds since the beginning.

        Raises:
            SpinsError: a step asks for the time without end. Nothing else can interrupt it.
        """
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            self._spins = SpinsError(f"at {self._now_s:.3f} s, {self.current()} spins in one step")
            raise self._spins
        return self._now_s

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` soon, if its process lives then."""
        context = copy_context() if context is None else context  # an empty one is false
        step = _Step(callback, args, context, self._now_s)
        self._due.append(step)
        return step

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` soon. There is one thread; an unfinished generator calls this."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` after `delay` seconds, if its process lives then."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at `when`, if its process lives then."""
        context = copy_context() if context is None else context  # an empty one is false
        step = _Step(callback, args, context, when)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, step))
        return step

    def _run_once(self) -> None:
        """Do what is due; if nothing is, let time pass to the next timer."""
        due, timers = self._due, self._timers
        self._looks = 0
        if self._spins is not None:
            spins, self._spins = self._spins, None
            raise spins
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not due:
            if not timers:
                raise StalledError
            if timers[0][0] > self._now_s:
                self._now_s, self._steps_now = timers[0][0], 0
        while timers and timers[0][0] <= self._now_s:
            due.append(heappop(timers)[2])
        self._steps_now += len(due)
        if self._steps_now > _MOST_STEPS:
            self._steps_now = 0
            who = next((step.who for step in due if step.who), "the world")
            raise SpinsError(f"at {self._now_s:.3f} s, {who} spins")
        for _ in range(len(due)):
            step = due.popleft()
            if not step.cancelled():
                self._run(step)

    def _run(self, step: "_Step") -> None:
        try:
            step.run()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"{step} failed", "exception": error})

    @staticmethod
    def current() -> str:
        """Return the name of the process that runs; empty: the world."""
        process = _CURRENT.get()
        return "" if process is None else process.name

    def outside(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Run `callback` after `delay_s` for the world, whatever becomes of the caller."""
        self.call_later(delay_s, callback, *args, context=self._outside)

    def end(self) -> None:
        """Let all processes end in order, dead ones too, and close the loop.

        A coroutine that is dropped instead would end later, without a loop, in a place of chance.
        """
        self.set_exception_handler(lambda _loop, _context: None)
        for process in self._processes:
            process.is_dead, process.dies_at_step = False, None
            self.wake(process)
        for _ in range(_ROUNDS):
            tasks = [task for process in self._processes for task in process.tasks]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def wake(self, process: Process) -> None:
        """Let a frozen process go on; what became due meanwhile runs first, in order."""
        process.is_frozen = False
        self._due.extend(process.waiting)
        process.waiting.clear()

    def start(self, name: str, main: Coroutine[Any, Any, object]) -> Process:
        """Start a process that runs `main`."""
        process = Process(name)
        self._processes.append(process)
        context = Context()
        context.run(_CURRENT.set, process)
        process.main = task = self.create_task(main, context=context)
        task.add_done_callback(lambda ended: _note_end(process, ended), context=Context())
        return process


class _Step(asyncio.TimerHandle):
    """A callback, and the process that it belongs to."""

    __slots__ = ("_arguments", "_at_s", "_call", "_in", "_is_cancelled", "_process")

    def __init__(
        self, call: Callable[..., object], arguments: tuple[Any, ...], context: Context, at_s: float
    ) -> None:
        # Not the base's own: it asks the loop for the time and for its debug mode.
        self._call, self._arguments, self._in, self._at_s = call, arguments, context, at_s
        self._process: Process | None = context.get(_CURRENT)
        self._is_cancelled = False

    def __repr__(self) -> str:
        return f"{self._call} at {self._at_s:.3f} s"

    def cancel(self) -> None:
        """Do not run."""
        self._is_cancelled = True

    def cancelled(self) -> bool:
        """Return whether it is cancelled."""
        return self._is_cancelled

    @property
    def who(self) -> str:
        """The name of the process that it belongs to; empty: the world."""
        return "" if self._process is None else self._process.name

    def when(self) -> float:
        """Return the time of the loop at which it is due."""
        return self._at_s

    def run(self) -> None:
        """Run, unless the process dies or waits."""
        process = self._process
        if process is not None:
            if process.is_dead or process.is_frozen:
                process.waiting.append(self)
                return
            process.steps += 1
            if process.steps == process.dies_at_step:
                process.kill()
                process.waiting.append(self)
                return
        self._in.run(self._call, *self._arguments)


def _task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None
) -> "asyncio.Task[Any]":
    context = copy_context() if context is None else context
    task = asyncio.Task(coroutine, loop=loop, context=context)
    process = context.get(_CURRENT)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard, context=Context())
    return task


def _note_end(process: Process, ended: "asyncio.Task[Any]") -> None:
    process.is_dead = True
    if not ended.cancelled():
        process.error = ended.exception()
