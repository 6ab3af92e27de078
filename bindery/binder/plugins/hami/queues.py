"""Queues for node locks: one for each lock, fair among namespaces, driven by watches.

The plugin waits here right before a binding. Each queue has one task, which acts for the first
waiter and ends with the last. Queues of different nodes are independent, so a slow holder delays
only its own node. Invariant: a lock value is given to at most one waiter, and a value without a
waiter is removed.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from bindery.api.bindrequest import BindFailureReason
from bindery.api.hami.vendor import Lock
from bindery.binder.plugins.hami import holders, metrics
from bindery.binder.plugins.hami.lock import LockWriter
from bindery.binder.plugins.hami.mirror import Mirror, PodKey
from bindery.binder.plugins.hami.objects import LockedNode
from bindery.binder.plugins.hami.places import (
    LockHolder,
    LockPlace,
    LockQueue,
    Timing,
    Waiter,
    copy_of,
    stalled_error,
)
from bindery.binder.plugins.interface import PluginError
from bindery.kube.errors import KubeError

_log: Final = structlog.get_logger(__name__)

_CAMBRICON_EXPIRE_S: Final = 120.0
"""Cambricon's lock names no holder, and HAMi treats it as dead after two minutes."""
_ASK_AGAIN_S: Final = 5.0
"""Seconds between two reads of a holder that is not watched."""
_MARGIN_S: Final = 0.01
"""Seconds after the moment at which a lock may be taken, so that the check comes later."""
_PAUSE_S: Final = 0.5
"""Pause in seconds after an error of the API server."""


class LockQueues:
    """All queues. `clock`: returns seconds since the epoch, as in locks."""

    def __init__(
        self, mirror: Mirror, writer: LockWriter, timing: Timing, clock: Callable[[], float]
    ) -> None:
        self._mirror, self._writer, self._timing, self._clock = mirror, writer, timing, clock
        self._queues: dict[LockPlace, LockQueue] = {}
        self._stalled_by: dict[LockPlace, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, place: LockPlace, pod: PodKey, priority: int = 0) -> str:
        """Wait for the pod's turn; return the value of the pod's lock.

        Raises:
            PluginError: the queue makes no progress.
        """
        loop = asyncio.get_running_loop()
        waiter = Waiter(pod, loop.create_future(), loop.time(), priority)
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = LockQueue(place, moved_s=loop.time())
            task = asyncio.create_task(self._serve(queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.add(waiter)
        if queue.holder(queue.found[0]) is waiter:
            self._mirror.wake(place.node)  # earlier waiters wait for the lock that this pod holds
        value = await waiter.granted
        metrics.WAIT_SECONDS.observe(loop.time() - waiter.since_s)
        return value

    def stalled(self, place: LockPlace) -> str:
        """Return the reason if the queue makes no progress, else ""."""
        seen = self._mirror.node(place.node)
        value = seen.lock(place.lock) if seen is not None else None
        if self._stalled_by.get(place, "") != value:
            self._stalled_by.pop(place, None)
        return self._stalled_by.get(place, "")

    async def close(self) -> None:
        """End all queues and cancel the waiters."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- one queue ------------------------------------------------------------------------------

    async def _serve(self, queue: LockQueue) -> None:
        """Get the lock for one waiter after the other, until the queue is empty."""
        loop = asyncio.get_running_loop()
        failure = PluginError("the watches have ended", reason="NotReady")
        try:
            while queue.waiters:
                waiter, value = await self._get(queue, queue.waiters[0])
                if value is not None:
                    await self._grant(queue.place, waiter, value)
                    queue.moved_s = loop.time()
                queue.waiters.remove(waiter)
        except PluginError as error:
            failure = error
        except Exception as error:  # a defect must not leave pods waiting
            _log.exception("the queue for a node's lock ended", node=queue.place.node)
            failure = PluginError(repr(error), reason=BindFailureReason.INTERNAL_ERROR)
        finally:
            del self._queues[queue.place]
            for waiter in queue.waiters:
                if not waiter.granted.done():
                    waiter.granted.set_exception(copy_of(failure))

    async def _grant(self, place: LockPlace, waiter: Waiter, value: str) -> None:
        if not waiter.granted.done():
            metrics.HANDOVERS.inc()
            waiter.granted.set_result(value)
            return
        try:  # the waiter was cancelled while the lock was being written
            await self._writer.remove(place.node, place.lock, value)
        except KubeError as error:
            _log.warning("a lock is left to expire", node=place.node, error=str(error))

    async def _get(self, queue: LockQueue, first: Waiter) -> tuple[Waiter, str | None]:
        """Return the waiter that has the lock, and its value; None if `first` stops waiting.

        The waiter is `first`, or a later one that holds the lock since an earlier process died: it
        could not release the lock before its turn.
        """
        must_read = False
        while not first.granted.done():
            with self._mirror.woken_by(queue.place.node) as changed:
                try:
                    seen = await self._look(queue, must_read=must_read)
                    waiter = queue.holder(seen.lock(queue.place.lock)) or first
                    outcome = await self._try(queue, waiter, seen)
                except KubeError as error:
                    await self._pause_after(queue, error)
                    must_read = True
                    continue
            if isinstance(outcome, str):
                return waiter, outcome
            # Without a holder, another process was faster, or the mirror is behind.
            must_read = outcome is None or await self._wait(queue, outcome, changed)
        return first, None

    async def _look(self, queue: LockQueue, *, must_read: bool) -> LockedNode:
        node = queue.place.node
        mirrored = self._mirror.node(node)
        seen = None if must_read else mirrored
        if seen is not None and queue.written and queue.written[0] is mirrored:
            seen = queue.written[1]  # the mirror does not show the last own write yet
        if seen is None:
            seen = await self._writer.read(node)
        if seen is None:
            message = f"the node {node} does not exist"
            raise PluginError(message, reason=BindFailureReason.NODE_GONE, permanent=True)
        return seen

    async def _try(
        self, queue: LockQueue, waiter: Waiter, seen: LockedNode
    ) -> str | LockHolder | None:
        """Write the lock if it is free; None if the node has changed since it was read."""
        place, mirrored = queue.place, self._mirror.node(queue.place.node)
        standing = seen.lock(place.lock)
        value = self._writer.value_for(place.lock, *waiter.pod)
        if standing is None:
            written = await self._writer.put(seen, place.lock, value)
        else:
            if not self._is_own(queue, waiter, standing):
                held = await self._held(queue, standing)
                if not held.may_be_taken:
                    return held
                reason = held.judgement.reason
                _log.warning("a lock is healed", node=place.node, lock=standing, why=reason)
                metrics.HEALED.labels(reason).inc()
            # Also for a lock of an earlier attempt or process: its time starts again.
            written = await self._writer.swap(place.node, place.lock, standing, value)
        if written is None:
            return None
        queue.written = (mirrored, written)
        return value

    def _is_own(self, queue: LockQueue, waiter: Waiter, standing: str) -> bool:
        lock = holders.read(standing)
        return (
            queue.place.lock is not Lock.CAMBRICON and lock is not None and lock.is_of(*waiter.pod)
        )

    # ---- somebody else has it -------------------------------------------------------------------

    async def _held(self, queue: LockQueue, standing: str) -> LockHolder:
        """Judge the lock `standing` of another holder."""
        lock, expire_s = holders.read(standing), self._timing.expire_s
        if queue.place.lock is Lock.CAMBRICON:
            expire_s = min(expire_s, _CAMBRICON_EXPIRE_S)
        is_watched, holder = True, ("", "")
        if lock is None or lock.is_anonymous:
            judgement = holders.judge_unknown(lock, expire_s)
        else:
            holder = (lock.namespace, lock.name)
            pod, is_watched = await self._mirror.holder(holder)
            judgement = holders.judge(lock, pod, queue.place.node, expire_s)
        now_s, found = self._clock(), (standing, judgement.reason)
        if queue.found != found:
            queue.found, queue.found_s = found, now_s
        return LockHolder(
            standing,
            holder,
            judgement,
            judgement.may_be_taken(now_s, queue.found_s),
            judgement.left_s(now_s, queue.found_s),
            is_watched,
        )

    async def _wait(self, queue: LockQueue, held: LockHolder, changed: asyncio.Event) -> bool:
        """Wait for a change, or for the time to take the lock; return whether to reread.

        No change is lost between the judgement and the subscription, because there is no await in
        between.
        """
        if changed.is_set():
            return False
        limit_s = min(self._left_s(queue), held.left_s + _MARGIN_S)
        if not held.is_watched:
            limit_s = min(limit_s, _ASK_AGAIN_S)
        with self._mirror.woken_by(queue.place.node, held.holder) as event:
            try:
                async with asyncio.timeout(limit_s):
                    await event.wait()
            except TimeoutError:
                self._demand_progress(queue, held)
                return True
        return False

    async def _pause_after(self, queue: LockQueue, error: KubeError) -> None:
        _log.warning("a node's lock was not written", node=queue.place.node, error=str(error))
        if self._left_s(queue) <= 0:
            raise stalled_error(queue.place, self._timing, str(error)) from error
        await asyncio.sleep(_PAUSE_S)

    def _left_s(self, queue: LockQueue) -> float:
        now_s = asyncio.get_running_loop().time()
        return max(0.0, queue.moved_s + self._timing.stall_s - now_s)

    def _demand_progress(self, queue: LockQueue, held: LockHolder) -> None:
        if self._left_s(queue) > 0 or held.left_s <= _MARGIN_S:
            return
        self._stalled_by[queue.place] = held.standing
        metrics.STALLED.inc()
        why = f"held by {held.standing} ({held.judgement.reason})"
        raise stalled_error(queue.place, self._timing, why)
