"""Pods that come during a rehearsal: those of later stages, which controllers create in their turn.

Used by `rehearsal`. A pod comes when all pods of the stages before it run. What follows the end of
a stage does not come: how long pods run is not known.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.jobs import Job, JobKey, TaskStatus
from bindery.scheduler.model.stages import COMPLETE
from bindery.scheduler.world import World


@dataclass(frozen=True)
class Arrival:
    """A pod of a later stage."""

    pod: Pod
    job: JobKey
    sub_group: str
    after: tuple[tuple[str, str], ...]
    """The sub-groups that come before, with their conditions; also those of the groups above."""


@dataclass(frozen=True, slots=True)
class LaterStage:
    """Pods that come when others have ended."""

    sub_group: str
    pods: int
    after: tuple[str, ...]
    """The sub-groups that must have ended."""


class Arrivals:
    """The pods that have not come yet."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._left = list(arrivals)

    def __len__(self) -> int:
        return len(self._left)

    def come(self, world: World) -> bool:
        """Add the pods to `world` whose turn it is; return whether there were any."""
        jobs = world.engine.cluster.state.jobs
        # First all are asked: the stages before are judged by the pods that were there.
        due = {id(each) for each in self._left if self._is_due(each, jobs.get(each.job))}
        for each in self._left:
            if id(each) in due:
                world.put(each.pod)
        self._left = [each for each in self._left if id(each) not in due]
        return bool(due)

    def missing(self, job: Job) -> int:
        """Return how many pods of `job` wait only for earlier stages that do not run."""
        ended = self._behind_end(job)
        return sum(each.sub_group not in ended for each in self._of(job))

    def after_end(self, job: Job) -> Iterator[LaterStage]:
        """Yield the stages of `job` that follow the end of others."""
        ended = self._behind_end(job)
        pods = Counter(each.sub_group for each in self._of(job) if each.sub_group in ended)
        for sub_group, count in pods.items():
            yield LaterStage(sub_group, count, ended[sub_group])

    def _of(self, job: Job) -> Iterator[Arrival]:
        return (each for each in self._left if each.job == job.key)

    def _behind_end(self, job: Job) -> dict[str, tuple[str, ...]]:
        """Return the leaves that come after the end of others, or after such a leaf, with those."""
        found: dict[str, tuple[str, ...]] = {}
        stages = {each.sub_group: each.after for each in self._of(job)}
        for _ in stages:  # each round adds at least one, or no round does
            for leaf, after in stages.items():
                ends = [name for name, condition in after if condition == COMPLETE]
                for name, _ in after:
                    before = job.leaves_of(name) or frozenset()
                    ends += [end for each in before for end in found.get(each, ())]
                if ends:
                    found[leaf] = tuple(dict.fromkeys(ends))
        return found

    def _is_due(self, arrival: Arrival, job: Job | None) -> bool:
        return job is not None and all(
            condition != COMPLETE and self._runs(job, name) for name, condition in arrival.after
        )

    def _runs(self, job: Job, sub_group: str) -> bool:
        """Return whether all pods of a sub-group have come and run."""
        leaves = job.leaves_of(sub_group) or frozenset()
        if any(each.job == job.key and each.sub_group in leaves for each in self._left):
            return False
        tasks = [task for task in job.tasks.values() if task.sub_group in leaves]
        return bool(tasks) and all(task.status is TaskStatus.RUNNING for task in tasks)
