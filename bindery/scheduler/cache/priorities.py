"""The PriorityClasses of PodGroups, and the default priority.

Written by cluster.py, read by tasks.py and the session. A class that does not exist has no value,
and its gangs wait. For pods, the API server set the priority when they were created.
"""

from bindery.api.states import NON_PREEMPTIBLE_FROM
from bindery.kube.objects.watched import PriorityClass
from bindery.scheduler.model.jobs import Job, Task


class PriorityClasses:
    """The classes by name."""

    def __init__(self) -> None:
        self._classes: dict[str, PriorityClass] = {}
        self.default = 0
        """The priority of pods without one: the value of the class with `globalDefault`.

        If several classes have it, the smallest value applies, as in Kubernetes."""

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def put(self, item: PriorityClass, *, gone: bool) -> None:
        """Add or update a class, or remove it if it is `gone`."""
        if gone:
            self._classes.pop(item.metadata.name, None)
        else:
            self._classes[item.metadata.name] = item
        self._find_default()

    def value(self, name: str | None) -> int | None:
        """Return the priority of the class `name`; None without a name or if it does not exist."""
        found = self._classes.get(name or "")
        return found.value if found is not None else None

    def asks_preemptible(self, job: Job, task: Task) -> bool:
        """Return whether the owners of `task` of `job` ask for it to be preemptible.

        The pod decides, then its PodGroup, then the priority (below 100, as in KAI-Scheduler).
        """
        if task.own_preemptible is not None:
            return task.own_preemptible
        if job.own_preemptible is not None:
            return job.own_preemptible
        of_class = self.value(job.priority_class)
        return (task.priority if of_class is None else of_class) < NON_PREEMPTIBLE_FROM

    def knows(self, job: Job) -> bool:
        """Return whether the objects are known by which `job` asks to be preemptible or not."""
        is_by_class = job.own_preemptible is None and job.priority_class
        return job.exists and (not is_by_class or job.priority_class in self._classes)

    def never_preempts(self, name: str | None) -> bool:
        """Return whether no pods may be evicted for gangs of the class `name`."""
        found = self._classes.get(name or "")
        return found is not None and found.preemption_policy == "Never"

    def _find_default(self) -> None:
        values = (item.value for item in self._classes.values() if item.global_default)
        self.default = min(values, default=0)
