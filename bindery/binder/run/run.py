"""Executes one Statement: attempts, pauses, status writes, interruption.

`statements.manager` creates a Run when all parts are known and calls `start`, which creates a task.
A waiting Run holds no resource that others need. A Run ends with an outcome written into the status
of every part, with `interrupt` (a part was deleted or changed: roll back, write nothing to that
part), or with the stop of the process, which leaves the state to the next process. Only this module
decides on retries.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

import structlog

from bindery.api.bindrequest import BindFailureReason
from bindery.api.times import seconds, timestamp_milli
from bindery.binder.outcome.outcome import Outcome, PodFailure, Verdict, Wait
from bindery.binder.outcome.ports import RequestChangedError, RequestGoneError
from bindery.binder.outcome.status import Status, final_status, retry_status
from bindery.binder.run.dependencies import RunDependencies, StartGate
from bindery.binder.run.transaction import BindTransaction
from bindery.kube.errors import KubeError
from bindery.kube.objects.bindrequests import CommittedStatement, StatementKey

_log: Final = structlog.get_logger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

_CLEAN_UP_ATTEMPTS: Final = 8
"""Maximum attempts of a failing rollback at the end: over four minutes with the backoff."""
_JITTER: Final = 0.2
"""Pauses vary by ±20 %, so that Runs that failed together do not retry together."""


class Interruption(Enum):
    """The reason why a Run was interrupted."""

    GONE = auto()
    CHANGED = auto()


class Run:
    """A Statement with its transaction and its task. The parts are kept in their newest state."""

    def __init__(
        self,
        parts: Sequence[CommittedStatement],
        dependencies: RunDependencies,
        *,
        fence: Callable[[], PodFailure | None],
        adopted: bool,
        confirm_first: bool,
    ) -> None:
        """Create without starting.

        Args:
            parts: in order.
            dependencies: shared by all Runs.
            fence: returns whether a newer scheduler has planned since.
            adopted: whether another process may have worked on it.
            confirm_first: whether to read the parts again first, because they may be old.
        """
        self.parts: dict[StatementKey, CommittedStatement] = {part.key: part for part in parts}
        self.failed_attempts = max(part.status.failed_attempts for part in parts)
        self.ended = asyncio.Event()
        self.since_s = dependencies.clock()
        """Time of creation."""
        self._dependencies, self._confirm_first = dependencies, confirm_first
        self._backoff_limit = min(part.backoff_limit for part in parts)
        self._transaction = BindTransaction(
            parts, dependencies.port, dependencies.plugins, fence=fence, adopted=adopted
        )
        self._interruption: Interruption | None = None
        self._gone: set[StatementKey] = set()
        self._started = self._changed = False
        self._concluded = False
        self._task: asyncio.Task[None] | None = None
        self._gate: StartGate | None = None
        self._log = _log.bind(statement=parts[0].spec.id, requests=self.names)

    # ---- for the manager ------------------------------------------------------------------------

    @property
    def pod_uids(self) -> list[str]:
        """The UIDs of all pods of the Statement."""
        return [pod.pod_uid for part in self.parts.values() for pod in part.spec.pods]

    def has(self, statement: CommittedStatement) -> bool:
        """Whether `statement` is a part of the Statement, in the same request."""
        part = self.parts.get(statement.key)
        return part is not None and part.metadata.uid == statement.metadata.uid

    @property
    def names(self) -> list[str]:
        """Namespace and name of each part."""
        metadata = (part.metadata for part in self.parts.values())
        return [f"{meta.namespace}/{meta.name}" for meta in metadata]

    @property
    def has_changed(self) -> bool:
        """Whether a part has changed and has no outcome from this Run."""
        return self._changed or self._interruption is Interruption.CHANGED

    @property
    def is_leaving(self) -> bool:
        """Whether the Run will certainly release its pods soon."""
        return self._concluded or self._interruption is not None

    @property
    def wait(self) -> Wait | None:
        """What the Run waits for; None after the outcome, or during a withdrawal."""
        if self.is_leaving:
            return None
        return self._gate.wait if self._gate is not None else self._transaction.wait

    def rewritten(
        self, key: StatementKey, statement: CommittedStatement, newer: CommittedStatement
    ) -> None:
        """Store the newer state of the part at `key` after its status was written."""
        if self.parts.get(key) is statement:
            self.parts[key] = newer

    def start(self, gate: StartGate, spawn: Spawn) -> None:
        """Start the Run's task with `spawn`."""
        self._gate = gate
        self._task = spawn(self._carry_out(gate))

    def interrupt(self, key: StatementKey, why: Interruption) -> None:
        """Roll back pods that are not bound, because the part at `key` was deleted or changed.

        A Run with a known outcome only records the interruption; its status writes will fail.
        """
        if why is Interruption.GONE:
            self._gone.add(key)
        if self._concluded or self._interruption:
            return
        self._interruption = why
        # A task that is cancelled before its first step would never run its cleanup.
        if self._task is not None and self._started:
            self._task.cancel()

    async def look_again(self) -> None:
        """Read the parts again, and interrupt the Run if they have changed."""
        for key, part in list(self.parts.items()):
            try:
                await self._dependencies.store.confirm(part)
            except RequestGoneError:
                self.interrupt(key, Interruption.GONE)
            except RequestChangedError:
                self.interrupt(key, Interruption.CHANGED)
            except KubeError:
                continue  # keep the last known state

    # ---- the task -------------------------------------------------------------------------------

    async def _carry_out(self, gate: StartGate) -> None:
        self._started = True
        try:
            try:
                if self._interruption is None:
                    await self._attempts(gate)
            except asyncio.CancelledError:
                if self._interruption is None:
                    raise
            except RequestGoneError:
                self._interruption = Interruption.GONE
            except RequestChangedError:
                self._interruption = Interruption.CHANGED
            if self._interruption is not None and not self._concluded:
                await self._take_back()
        except Exception:  # a defect must not stop the other Runs
            self._log.exception(
                "a Statement was abandoned; the scheduler removes it after its timeout"
            )
        finally:
            self.ended.set()

    async def _attempts(self, gate: StartGate) -> None:
        await gate.wait_turn()
        if self._confirm_first:
            await self._confirm()
        self._transaction.refuse(await gate.claim(list(self.parts.values())))
        self._gate = None
        if not await self._await_turn():
            return
        while True:
            last = self.failed_attempts >= self._backoff_limit
            outcome = await self._attempt(last=last)
            if outcome.verdict is not Verdict.RETRY:
                await self._conclude(outcome)
                return
            delay_s = self._backoff_s()
            self.failed_attempts += 1
            self._log.warning(
                "attempt failed", reason=outcome.reason, message=outcome.message, retry_in_s=delay_s
            )
            self._dependencies.reporter.attempt_failed(list(self.parts.values()), outcome)
            next_attempt = timestamp_milli(self._dependencies.clock() + delay_s)
            await self._write(
                lambda part: retry_status(part, outcome, self.failed_attempts, next_attempt)  # noqa: B023  # awaited within the iteration
            )
            if not await self._dependencies.pause(delay_s):
                return
            await self._confirm()

    async def _await_turn(self) -> bool:
        """Wait for the time of the next attempt, set by an earlier Run."""
        if any(part.is_withdrawn for part in self.parts.values()):
            return await self._dependencies.pause(0.0)
        times = [seconds(part.status.next_attempt_time) for part in self.parts.values()]
        due_s = max((time for time in times if time is not None), default=0.0)
        wait_s = min(due_s - self._dependencies.clock(), self._dependencies.max_backoff_s)
        return await self._dependencies.pause(max(wait_s, 0.0))

    async def _attempt(self, *, last: bool) -> Outcome:
        try:
            return await self._transaction.attempt(last=last)
        except Exception as error:  # a defect must not stop the other transactions
            self._log.exception("an attempt ended unexpectedly")
            failure = PodFailure(BindFailureReason.INTERNAL_ERROR, repr(error), permanent=False)
            return self._transaction.outcome_of_breakdown(failure, last=last)

    async def _conclude(self, outcome: Outcome) -> None:
        self._concluded = True
        if not await self._clean_up():
            return
        if not self._transaction.is_clean:
            message = f"{outcome.message}; the rollback is incomplete"
            outcome = replace(outcome, message=message)
        now = timestamp_milli(self._dependencies.clock())
        await self._write(lambda part: final_status(part, outcome, self.failed_attempts, now))
        if self._changed:
            return  # the next Run will find the state of the pods
        self._log.info(
            "concluded",
            verdict=outcome.verdict,
            reason=outcome.reason,
            message=outcome.message,
            bound=outcome.bound_count,
            pods=len(outcome.pods),
        )
        self._dependencies.reporter.concluded(list(self.parts.values()), outcome)

    async def _take_back(self) -> None:
        """Roll back; then write the outcome to the remaining parts."""
        self._log.info("the Statement was taken back", why=self._interruption)
        self._concluded = True
        await self._transaction.abandon()
        clean = await self._clean_up()
        if not clean or self._interruption is Interruption.CHANGED:
            return
        if len(self.parts) == len(self._gone):
            return
        failure = PodFailure(
            BindFailureReason.PART_GONE, "another part was deleted", permanent=True
        )
        outcome = self._transaction.outcome_of_abandonment(failure)
        now = timestamp_milli(self._dependencies.clock())
        await self._write(lambda part: final_status(part, outcome, self.failed_attempts, now))
        self._dependencies.reporter.concluded(list(self.parts.values()), outcome)

    async def _clean_up(self) -> bool:
        """Repeat a failed rollback, not without end; return False if the process is to stop."""
        for number in range(_CLEAN_UP_ATTEMPTS):
            if self._transaction.is_clean:
                return True
            pause_s = min(2.0**number, self._dependencies.max_backoff_s)
            if not await self._dependencies.pause(pause_s):
                return False
            await self._transaction.abandon()
        if not self._transaction.is_clean:
            self._log.error("rollback is incomplete; what plugins prepared may be left over")
        return True

    # ---- the parts ------------------------------------------------------------------------------

    async def _write(self, status_of: Callable[[CommittedStatement], Status]) -> None:
        """Write the status of every existing part without a final status.

        Raises:
            RequestGoneError, RequestChangedError: only while the outcome is open.
        """
        async with asyncio.TaskGroup() as group:
            for key, part in list(self.parts.items()):
                if key not in self._gone and not part.is_final:
                    group.create_task(self._write_part(key, part, status_of(part)))
        if not self._concluded and self._changed:
            raise RequestChangedError
        if not self._concluded and self._gone:
            raise RequestGoneError

    async def _write_part(
        self, key: StatementKey, part: CommittedStatement, status: Status
    ) -> None:
        try:
            self.parts[key] = await self._dependencies.store.write_status(part, status)
        except RequestGoneError:
            self._gone.add(key)
        except RequestChangedError:
            self._changed = True

    async def _confirm(self) -> None:
        for key, part in list(self.parts.items()):
            try:
                self.parts[key] = await self._dependencies.store.confirm(part)
            except RequestGoneError:
                self._gone.add(key)
                raise
            except KubeError:
                continue  # no change is known; the attempt will show it

    def _backoff_s(self) -> float:
        """Return 2^failedAttempts seconds, at most the configured bound, with jitter."""
        bound_s = min(2.0 ** min(self.failed_attempts, 60), self._dependencies.max_backoff_s)
        return bound_s * (1 + _JITTER * (2 * self._dependencies.draw() - 1))
