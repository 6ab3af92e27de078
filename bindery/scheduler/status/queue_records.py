"""Records on bound pods the queue that their gang was assigned to.

The binder records the queue when it binds a pod. When somebody who may assign to another queue
moves the running gang, the record has to follow, so that it holds after a restart and after the
PodGroup is gone. Offered by `loop` after each cycle, written in the background.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from bindery.api.names import CHARGED_QUEUE_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.lease import Leadership
from bindery.kube.resources import PODS
from bindery.scheduler.model.jobs import Task, Uid

_CONCURRENT_WRITES = 4
_SHOWN_AFTER_S = 30.0
"""After so long the watch has shown what was written; what is still offered is written again."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Record:
    namespace: str
    name: str
    queue: str


class QueueRecorder:
    """Patches the records of pods. `clock`: seconds since the epoch."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._waiting: dict[Uid, _Record] = {}
        self._tried: dict[Uid, tuple[_Record, float]] = {}
        """What was written, or could not be, and when."""
        self._wake = asyncio.Event()

    def offer(self, tasks: Iterable[Task]) -> None:
        """Record on each of `tasks` the queue that it counts in, unless that was just done."""
        since = self._clock() - _SHOWN_AFTER_S
        self._tried = {uid: tried for uid, tried in self._tried.items() if tried[1] > since}
        for task in tasks:
            record = _Record(task.namespace, task.name, task.queue)
            if task.uid not in self._tried or self._tried[task.uid][0] != record:
                self._waiting[task.uid] = record
                self._wake.set()

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading; what an earlier term left is forgotten."""
        self._waiting.clear()
        self._tried.clear()
        while leadership.is_valid():
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()
                continue
            due = list(self._waiting.items())[:_CONCURRENT_WRITES]
            await asyncio.gather(*(self._write(uid, record) for uid, record in due))

    async def _write(self, uid: Uid, record: _Record) -> None:
        del self._waiting[uid]
        self._tried[uid] = (record, self._clock())
        # The scheduler may write the status of pods and nothing else; metadata is part of it.
        annotations = {CHARGED_QUEUE_ANNOTATION: record.queue}
        patch = {"metadata": {"uid": uid, "annotations": annotations}}
        try:
            await self._client.patch(
                PODS, record.name, patch, namespace=record.namespace, subresource="status"
            )
        except NotFoundError:
            return
        except KubeError as error:
            _log.warning("queue not recorded", pod=record.name, error=str(error))
