"""Updates the records of charges on bound pods after changes.

The binder writes the record of a pod's charge at the binding. If an authorized user moves the
running gang to another queue, or the gang becomes preemptible or non-preemptible, the records on
its pods must change too, so that they are right after a restart and after the deletion of the
PodGroup. `loop` offers the pods after each cycle; the writes run in the background.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from bindery.api import preemptibility
from bindery.api.names import CHARGED_PREEMPTIBILITY_ANNOTATION, CHARGED_QUEUE_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.resources import PODS
from bindery.scheduler.model.jobs import Task, Uid

_CONCURRENT_WRITES = 4
_SHOWN_AFTER_S = 30.0
"""Time after which a pod that is still offered is written again, in seconds."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Record:
    namespace: str
    name: str
    annotations: Mapping[str, str]


class ChargeRecorder:
    """Patches the records of pods. `clock` returns seconds since the epoch."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._waiting: dict[Uid, _Record] = {}
        self._tried: dict[Uid, tuple[_Record, float]] = {}
        """The last attempt for each pod, successful or not, and its time."""
        self._wake = asyncio.Event()

    def offer(self, tasks: Iterable[Task]) -> None:
        """Record the charge of each of `tasks`, unless a recent attempt exists."""
        since = self._clock() - _SHOWN_AFTER_S
        self._tried = {uid: tried for uid, tried in self._tried.items() if tried[1] > since}
        for task in tasks:
            record = _Record(task.namespace, task.name, charges(task))
            if task.uid not in self._tried or self._tried[task.uid][0] != record:
                self._waiting[task.uid] = record
                self._wake.set()

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading. Writes of an earlier term are dropped."""
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
        del self._waiting[uid]  # before the call: a record offered during it must stay
        self._tried[uid] = (record, self._clock())
        # RBAC allows the scheduler only pods/status; a status patch may also change metadata.
        patch = {"metadata": {"uid": uid, "annotations": record.annotations}}
        try:
            await self._client.patch(
                PODS, record.name, patch, namespace=record.namespace, subresource="status"
            )
        except NotFoundError:
            return
        except KubeError as error:
            log_failure(_log, "charge not recorded", error, pod=record.name)


def charges(task: Task) -> dict[str, str]:
    """Return the annotations of the bound pod of `task` that must change."""
    annotations: dict[str, str] = {}
    if task.recorded_queue and task.recorded_queue != task.queue:
        annotations[CHARGED_QUEUE_ANNOTATION] = task.queue
    if task.recorded_preemptible != task.is_preemptible:
        annotations[CHARGED_PREEMPTIBILITY_ANNOTATION] = preemptibility.word(task.is_preemptible)
    return annotations
