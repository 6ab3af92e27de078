"""An event loop with a virtual clock, whose tasks belong to processes that can die and freeze.

Time passes at once when nothing is ready. A task, a callback and a timer belong to the process in
whose context they were made; callbacks of the network and of the world belong to no process.
Nothing of a dead process runs again: no `finally`, no cancellation, as after kill -9. What is due
for a frozen process waits until it wakes, as after SIGSTOP.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVarTuple

Ts = TypeVarTuple("Ts")

_ROUNDS: Final = 3
_END_S: Final = 30.0
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
    error: BaseException | None = None
    """What ended its main coroutine, if an error did."""
    waiting: deque[tuple["_Guard[*tuple[Any, ...]]", tuple[Any, ...]]] = field(
        default_factory=deque
    )
    """What became due while it was frozen or dead, in order; for a dead process it never runs."""
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)
    """All unfinished tasks. A dead process keeps them: collected, they would run `finally`."""

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.is_dead = True

    def freeze(self) -> None:
        """Let nothing of it run until the loop wakes it."""
        self.is_frozen = True


class _Idle(selectors.DefaultSelector):
    """Counts the seconds in which the loop has nothing to do, instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise StalledError
        self.passed_s += timeout
        return ()


class StalledError(Exception):
    """The loop has neither work nor a timer: the history waits for something that never comes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)
        self.set_task_factory(_task)
        self._processes: list[Process] = []

    def time(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._idle.passed_s

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` soon, if its process lives then."""
        context = copy_context() if context is None else context  # an empty one is false
        guard = _Guard(callback, context)
        guard.handle = super().call_soon(guard, *args, context=context)
        return guard.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at `when`, if its process lives then."""
        context = copy_context() if context is None else context  # an empty one is false
        guard = _Guard(callback, context)
        guard.handle = timer = super().call_at(when, guard, *args, context=context)
        return timer

    @staticmethod
    def current() -> str:
        """Return the name of the process that runs; empty: the world."""
        process = _CURRENT.get()
        return "" if process is None else process.name

    def outside(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Run `callback` after `delay_s` for the world, whatever becomes of the caller."""
        self.call_later(delay_s, callback, *args, context=Context())

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
        waiting, process.waiting = process.waiting, deque()
        for guard, args in waiting:
            super().call_soon(guard, *args, context=guard.context)

    def start(self, name: str, main: Coroutine[Any, Any, object]) -> Process:
        """Start a process that runs `main`."""
        process = Process(name)
        self._processes.append(process)
        context = Context()
        context.run(_CURRENT.set, process)
        task = self.create_task(main, context=context)
        task.add_done_callback(lambda ended: _note_end(process, ended), context=Context())
        return process


class _Guard(Generic[*Ts]):
    """A callback, and whether the process it belongs to lets it run."""

    __slots__ = ("_callback", "_process", "context", "handle")

    def __init__(self, callback: Callable[[*Ts], object], context: Context) -> None:
        self._callback, self.context = callback, context
        self._process = context.get(_CURRENT)
        self.handle: asyncio.Handle | None = None
        """By which it may be cancelled while it waits for its process to wake."""

    def __call__(self, *args: *Ts) -> None:
        handle, process = self.handle, self._process
        if handle is not None and handle.cancelled():
            return
        if process is not None:
            if process.is_dead or process.is_frozen:
                process.waiting.append((self, args))
                return
            process.steps += 1
            if process.steps == process.dies_at_step:
                process.kill()
                process.waiting.append((self, args))
                return
        self.handle = None
        self._callback(*args)


def _task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None
) -> "asyncio.Task[Any]":
    task = asyncio.Task(coroutine, loop=loop, context=context)
    process = (copy_context() if context is None else context).get(_CURRENT)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard, context=Context())
    return task


def _note_end(process: Process, ended: "asyncio.Task[Any]") -> None:
    process.is_dead = True
    if not ended.cancelled():
        process.error = ended.exception()
