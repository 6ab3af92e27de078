"""Runs one cycle in its own thread, so that the event loop is never blocked.

During a long cycle or plugin call, the Lease is renewed, watches are read, committed requests are
written and probes are answered. The loop is the only caller. Invariant: while a cycle runs, only
its thread reads and changes the cluster; its drafts reach the event loop's thread in order. A cycle
that takes longer than `limit_s` hangs. As Python cannot end a thread, the process must exit then.
"""

import asyncio
import contextvars
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress

from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.cycles import CycleHangsError
from bindery.scheduler.planning.rounds import CycleStoppedError, Deadline

STOP_S = 10.0
"""Time for a stopped cycle to end, in seconds; it stops between two jobs."""


class BackgroundRunner:
    """Runs each cycle in a thread; see `CycleRunner`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.dropped: Sequence[StatementDraft] = ()
        self.has_finished = False
        self._limit_s = 0.0
        self._started_s: float | None = None

    def clock(self) -> float:
        """Return the time of the event loop."""
        return self._loop.time()

    def stopwatch(self) -> float:
        """Return the processor time of the calling thread, which is that of a cycle."""
        return time.thread_time()

    def is_healthy(self) -> bool:
        """Return whether no cycle has been running for longer than its limit."""
        started_s = self._started_s
        return started_s is None or self.clock() - started_s <= self._limit_s

    async def run(
        self,
        cycle: Generator[StatementDraft, None, None],
        take: Callable[[StatementDraft], None],
        deadline: Deadline,
        limit_s: float,
    ) -> None:
        """Run `cycle` to its end; when cancelled, stop it between two jobs and wait for its end.

        Raises:
            CycleHangsError: it has not ended after `limit_s`, or `STOP_S` after a cancellation.
            Exception: any error of the cycle.
        """
        self._limit_s, self._started_s = limit_s, self.clock()
        self.has_finished = False
        thread = _CycleThread(cycle, take)
        thread.start()
        try:
            await self._wait(thread, limit_s)
        except asyncio.CancelledError:
            # Its thread still uses the cluster, so the cancellation must wait for its end.
            deadline.stop()
            thread.stop()
            await self._wait(thread, STOP_S)
            raise
        finally:
            self.dropped = thread.dropped
            if thread.done.done():
                self._started_s = None
                self.has_finished = thread.done.exception() is None
        thread.done.result()

    async def _wait(self, thread: "_CycleThread", limit_s: float) -> None:
        done, _ = await asyncio.wait({thread.done}, timeout=limit_s)
        if not done:
            raise CycleHangsError(limit_s, thread.stack())


class _CycleThread:
    """A cycle and its thread. `done` is set in the event loop, after the last draft."""

    def __init__(
        self,
        cycle: Generator[StatementDraft, None, None],
        take: Callable[[StatementDraft], None],
    ) -> None:
        self._cycle = cycle
        self._take = take
        self._is_stopped = threading.Event()
        self.dropped: list[StatementDraft] = []
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        # The context has the fields of log lines, such as the number of the cycle.
        # A daemon thread: at exit, the interpreter does not wait for one that hangs.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="cycle", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Pass on no more drafts."""
        self._is_stopped.set()

    def stack(self) -> str:
        """Return the stack of the thread, formatted as in a traceback."""
        frames = sys._current_frames()  # noqa: SLF001  # documented, and the only way
        frame = frames.get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with closing(self._cycle):  # here, as closing undoes the open session
                for draft in self._cycle:
                    if self._is_stopped.is_set():
                        self.dropped.append(draft)
                        error = CycleStoppedError()
                        break
                    self._call(self._take, draft)
        except BaseException as raised:
            error = raised
        self._call(self._finish, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call `function` in the event loop's thread."""
        with suppress(RuntimeError):  # the event loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(function, *arguments)

    def _finish(self, error: BaseException | None) -> None:
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
