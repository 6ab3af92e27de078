"""The choice of pods for a claim: the first pods of a part that can be placed, as many as it needs.

What does not fit is left out with all equal pods that come after it, and the next pods are taken.
All actions choose by this rule.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning.next_pods import Barred, JobPart, parts
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import awaited


@dataclass(frozen=True)
class RoomClaim:
    """Pods that are placed together, all or none. Made before anything is placed or evicted.

    They are placed in the order of `tasks`. The sum of their requests is cached, because it is
    compared with every victim.
    """

    job: Job
    tasks: tuple[Task, ...]
    """The next pods of the job, and then the future pods of the stages in `later`."""
    starts: frozenset[str] = frozenset()
    """The sub-groups that start with them."""
    later: tuple[Stage, ...] = ()
    """The stages that run at the same time, so that they must fit too."""
    beside_pods: NDArray[np.int64] | None = field(default=None, compare=False)
    """What its job will hold beside its pods, in the domains that are tried: [resource].

    None: no exclusive domain is tried, or none is chosen yet.
    """

    def in_order(self, tasks: Sequence[Task]) -> "RoomClaim":
        """Return the claim for the same pods in the order of `tasks`."""
        return replace(self, tasks=tuple(tasks))

    @cached_property
    def request(self) -> Mapping[int, int]:
        """The sum of the pods' requests: position on the resource axis -> units."""
        return total(task.shape.request for task in self.tasks)

    @cached_property
    def resources(self) -> tuple[int, ...]:
        """The positions of the resources that it wants."""
        beside = () if self.beside_pods is None else np.flatnonzero(self.beside_pods).tolist()
        return tuple(sorted({*self.request, *beside}))

    def waiting_request(self) -> Mapping[int, int]:
        """Return the sum of the requests of pods without a place in the plan."""
        pending = self.job.pending
        placed = bisect_left(self.tasks, True, key=lambda task: task.uid in pending)
        return self._requests_from[placed]

    @cached_property
    def _requests_from(self) -> Sequence[Mapping[int, int]]:
        """Position in `tasks` -> sum of the requests of the pods from there on."""
        sums: list[dict[int, int]] = [{}]
        for task in reversed(self.tasks):
            so_far, request = dict(sums[-1]), task.shape.request.in_queues
            for index, amount in zip(request.indices, request.amounts, strict=True):
                so_far[index] = so_far.get(index, 0) + amount
            sums.append(so_far)
        return sums[::-1]


class Choice:
    """The claims for one part of a job, one after the other."""

    def __init__(
        self, session: Session, part: JobPart, starts: frozenset[str] = frozenset()
    ) -> None:
        """Choose for `part`; with `starts`, the sub-groups that start with it, for stages too."""
        self._session = session
        self.part = part
        self.starts = starts
        self.barred = Barred(session.placement)
        self._is_over = False
        self.refusal: Refusal | None = None
        """Why the first pods or stages that cannot be planned at all were left out; None if all
        can be."""

    def next(self) -> RoomClaim | None:
        """Return the claim for the next pods; None if too few can be planned.

        The caller clears the future pods in it when it has tried the claim.
        """
        session, barred = self._session, self.barred
        while not self._is_over and (tasks := self.part.next(barred)):
            session.timer.check()
            refusals = [(task, session.calls.task_refusal(task)) for task in tasks]
            refused = [(task, refusal) for task, refusal in refusals if refusal is not None]
            if not refused:
                return self._with_later(tasks)
            # Barring one pod can bring in others, so the choice is repeated.
            for task, _ in refused:
                barred.add(task)
            task, refusal = refused[0]
            self._refuse(Refusal(refusal.reason, f"pod {task.name}: {refusal.message}"))
        return None

    def leave_out(self, claim: RoomClaim, lost: Task | None) -> bool:
        """Leave out `lost`, a pod of `claim`, and equal pods after it; False if it is impossible.

        `lost`: the first pod without room; None if it is not known.
        """
        # If all pods are equal, any of them is the one without room.
        if lost is None and len({task.shape for task in claim.tasks}) == 1:
            lost = claim.tasks[0]
        if lost is None or lost.is_future:  # a later stage cannot do without its pods
            return False
        self.barred.add_equal(lost, claim.tasks[: claim.tasks.index(lost)])
        return True

    def leave_out_excess(
        self, claim: RoomClaim, may_have: Callable[[Sequence[Task]], bool]
    ) -> None:
        """Leave out the first pod beyond what the job `may_have`, and equal pods after it.

        If there are no other candidates, leave out all.
        """
        pending = [t for t in self.part.candidates if t.status is TaskStatus.PENDING]
        own = [task for task in claim.tasks if not task.is_future]
        if len(pending) == len(own) or len({_limited_as(task) for task in pending}) == 1:
            self.stop()
            return
        counts = range(1, len(claim.tasks))  # with all of them they are too many
        at = bisect_left(counts, True, key=lambda count: not may_have(claim.tasks[:count]))
        first = claim.tasks[at]
        if first.is_future:
            self.stop()
            return
        for task in pending[pending.index(first) :]:
            if _limited_as(task) == _limited_as(first):
                self.barred.add(task)

    def stop(self) -> None:
        """Leave out all pods: `next` returns None."""
        self._is_over = True

    def _with_later(self, tasks: Sequence[Task]) -> RoomClaim | None:
        """Return the claim for `tasks` and later stages; None if no nodes could ever take these."""
        session, job, starts = self._session, self.part.job, self.starts
        later = tuple(awaited(job, starts)) if starts else ()
        for stage in later:
            problem = session.futures.problem(job, stage)
            if problem is not None:
                self._refuse(later_refusal(stage, problem))
                return None
        pods = [task for stage in later for task in session.futures.of(job, stage)]
        return RoomClaim(job, (*tasks, *pods), starts, later)

    def _refuse(self, refusal: Refusal) -> None:
        self.refusal = self.refusal or refusal


def later_refusal(stage: Stage, why: str) -> Refusal:
    """Return the refusal of a job for whose later `stage` there is no room."""
    text = f"the later stage {stage.name} must fit at the same time: {why}"
    return Refusal(JobReason.UNSCHEDULABLE, text)


def _limited_as(task: Task) -> Hashable:
    """Return the properties of a pod that limits of queues and minima depend on."""
    return task.shape, task.is_preemptible, task.sub_group


def choices(session: Session, job: Job) -> Iterator[Choice]:
    """Yield the choice for each part that `job` may take next, best first.

    Of extra pods there is one for each shape: equal pods would fail in the same way.
    """
    tried: set[tuple[Shape | Uid, str]] = set()
    for part in parts(job, session.calls.pods_in_order(job)):
        task = part.extra
        if task is not None:
            alone = session.placement.is_filtered(task.shape)
            key = task.uid if alone else task.shape, task.sub_group if job.is_constrained else ""
            if key in tried:
                continue
            tried.add(key)
        yield Choice(session, part, part.starts)


def first_claim(session: Session, job: Job) -> RoomClaim | None:
    """Return the first claim for pods of `job`; None if too few can be planned."""
    claims = (choice.next() for choice in choices(session, job))
    return next((claim for claim in claims if claim is not None), None)
