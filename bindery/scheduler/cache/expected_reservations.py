"""Reservation pods that the binder may still create for deleted pods.

Owned by `tasks`. A BindRequest names the GPU groups of its pods, and the binder creates a
reservation pod for each group before it binds. If the pod is deleted in between, no task holds the
device any more, but the reservation pod may still appear. Until the request has ended, and
`LINGER_S` longer, a placeholder task holds the device, so that no other pod gets it, and
what the reservation pod requests beside it: pods that join its group need that pod. If no
reservation pod appears, the room stays unused for that time.
"""

from collections.abc import Iterator

from bindery.api import gpushare
from bindery.api.gpureservation import given_resources
from bindery.kube.objects.podspec import Container, PodSpec, ResourceRequirements
from bindery.kube.objects.watched import Meta, Pod
from bindery.scheduler.cache.holds import LINGER_S, Hold
from bindery.scheduler.cache.members import JobMembership
from bindery.scheduler.cache.reading import read_pod
from bindery.scheduler.model.jobs import JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import ShapeBook


class ExpectedReservations:
    """The placeholder tasks of expected reservations, by pod."""

    def __init__(self, shapes: ShapeBook) -> None:
        self._shapes = shapes
        self._resources = ResourceRequirements(requests=dict(given_resources().planned))
        self._standing: dict[Uid, tuple[Uid, ...]] = {}
        """Pod -> the placeholders of its reservations."""
        self._ends_at: dict[Uid, float] = {}
        """Pod -> end of its placeholders, once its request has ended; epoch seconds."""

    def expect(self, uid: Uid, hold: Hold) -> Iterator[Task]:
        """Yield new placeholders for the reservations of the pod `uid`, which `hold` had placed."""
        if uid in self._standing:
            return
        tasks = [self._task(uid, hold.node_name, group) for group in hold.gpu_groups]
        self._standing[uid] = tuple(task.uid for task in tasks)
        yield from tasks

    def end(self, uid: Uid) -> tuple[Uid, ...]:
        """Forget the pod `uid`; return its placeholders."""
        self._ends_at.pop(uid, None)
        return self._standing.pop(uid, ())

    def due(self, held: frozenset[Uid], now: float) -> list[Uid]:
        """Return the pods whose placeholders end at `now`; `held` has the pods in live requests."""
        for uid in self._standing:
            if uid in held:  # a request holds it again: the time starts over when that one ends
                self._ends_at.pop(uid, None)
            else:
                self._ends_at.setdefault(uid, now + LINGER_S)
        return [uid for uid, at in self._ends_at.items() if at <= now]

    def pods(self) -> tuple[Uid, ...]:
        """Return the pods with placeholders."""
        return tuple(self._standing)

    def _task(self, uid: Uid, node_name: str, group: str) -> Task:
        meta = Meta(
            name=gpushare.reservation_name(node_name, group),
            namespace=gpushare.RESERVATION_NAMESPACE,
            uid=f"{uid}/{group}",
        )
        container = Container(resources=self._resources)
        pod = Pod(metadata=meta, spec=PodSpec(node_name=node_name, containers=[container]))
        place = JobMembership(JobKey(meta.namespace, meta.name, False), "")
        task = read_pod(pod, TaskStatus.RUNNING, self._shapes.of(pod), "", place)
        task.is_ours, task.reserves_gpu, task.gpu_groups = False, True, (group,)
        return task
