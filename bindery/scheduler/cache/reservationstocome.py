"""Reservation pods that the binder may still create for pods that are gone.

Owned by `tasks`. A BindRequest names the GPU groups of its pods, and the binder creates a
reservation pod for each before it binds. When a pod is deleted meanwhile, its task goes, but the
reservation may come. Until the request has ended, and a little longer, as a creation may be under
way when it ends, a task without requests stands for the reservation, so that its device is not
given away. A device that is free in truth waits for those seconds.
"""

from collections.abc import Iterator

from bindery.api import gpushare
from bindery.kube.objects import Meta, Pod
from bindery.kube.podspec import PodSpec
from bindery.scheduler.cache.holds import Hold
from bindery.scheduler.cache.reading import read_pod
from bindery.scheduler.model.jobs import Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import ShapeBook

LINGER_S = 5.0
"""How long a creation may be under way after its request has ended."""


class ReservationsToCome:
    """Which tasks stand for reservations, by the pod that is gone."""

    def __init__(self, shapes: ShapeBook) -> None:
        self._shapes = shapes
        self._standing: dict[Uid, tuple[Uid, ...]] = {}
        """Pod that is gone -> the tasks that stand for its reservations."""
        self._ends_at: dict[Uid, float] = {}
        """Pod whose request has ended -> when its tasks go; seconds since the epoch."""

    def expect(self, uid: Uid, hold: Hold) -> Iterator[Task]:
        """Yield new tasks for the reservations of the pod `uid`, which is gone."""
        if uid in self._standing:
            return
        tasks = [self._task(uid, hold.node_name, group) for group in hold.gpu_groups]
        self._standing[uid] = tuple(task.uid for task in tasks)
        yield from tasks

    def end(self, uid: Uid) -> tuple[Uid, ...]:
        """Forget the pod `uid`; return the tasks that stood for its reservations."""
        self._ends_at.pop(uid, None)
        return self._standing.pop(uid, ())

    def due(self, held: frozenset[Uid], now: float) -> list[Uid]:
        """Return the pods whose tasks are to go at `now`; `held`: those that a request holds."""
        for uid in self._standing:
            if uid in held:
                self._ends_at.pop(uid, None)
            else:
                self._ends_at.setdefault(uid, now + LINGER_S)
        return [uid for uid, at in self._ends_at.items() if at <= now]

    def pods(self) -> tuple[Uid, ...]:
        """Return the pods that are gone and whose reservations may still come."""
        return tuple(self._standing)

    def _task(self, uid: Uid, node_name: str, group: str) -> Task:
        meta = Meta(
            name=gpushare.reservation_name(node_name, group),
            namespace=gpushare.RESERVATION_NAMESPACE,
            uid=f"{uid}/{group}",
        )
        pod = Pod(metadata=meta, spec=PodSpec(node_name=node_name))
        task = read_pod(pod, TaskStatus.RUNNING, self._shapes.of(pod), "")
        task.is_ours, task.reserves_gpu, task.gpu_groups = False, True, (group,)
        return task
